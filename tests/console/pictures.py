"""Pictures of the console's main pages, at the width of a desk and of a phone, for the docs.

    python -m tests.console.pictures AUDIT FOLDER

AUDIT is the folder of an audit with `terms.toml`; a book is charged by these terms, with squared
norms drawn within the audited band, and one member doubles its updates in the last rounds.
Amounts and norms are open to all members, so that the book can be checked.
"""

import io
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from selenium import webdriver

from verax.console.follow import key_of
from verax.ledger import Book, Report
from verax.mechanism import Openness, Terms

from .conftest import served
from .test_browser import VERIFIER_IS_THERE, Browser

FEDERATION, ROUNDS = "clinics", 24
HOSPITALS = ("North Hospital", "South Clinic", "West Institute")
WIDTHS = {"desk": (1280, 860), "phone": (390, 844)}
PAGES = {
    "run": ("operator", ""),
    "balances": ("operator", "/balances"),
    "audit": ("operator", "/audit"),
    "settlement": ("operator", "/settlement"),
    "account": ("member", ""),
    "check": ("member", "/book"),
}


def charge(path, terms):
    """A book of rounds under the terms; the middle member doubles its updates at the end."""
    terms = replace(terms, openness=Openness("all", "all"))
    rng = np.random.default_rng(0)
    members = terms.members or ("a", "b", "c")
    with Book.create(path) as book:
        book.create_federation(FEDERATION, terms)
        for member, label in zip(members, HOSPITALS, strict=True):
            book.join(FEDERATION, member, label)
        for t in range(1, ROUNDS + 1):
            low, high = terms.audited.band(t)
            norms = np.exp(rng.uniform(np.log(low), np.log(high), len(members)))
            norms[1] *= 4 if t > ROUNDS - 3 else 1
            reports = [Report(m, statistic=float(n)) for m, n in zip(members, norms, strict=True)]
            book.post(FEDERATION, "spring", t, reports)
        book.deposit(FEDERATION, members[0], 10**terms.scale // 50, "advance", reference="d-1")
    return members


def take(browser, path):
    """The first screen of a page as a picture, in as many colours as a reader can tell apart."""
    picture = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")
    few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def prepare(browser, name):
    """Wait until the charts are drawn; check the book."""
    if name in ("run", "account"):
        browser.until(lambda: browser.all("path.line"))
        browser.until(lambda: browser.all(".pulse.on"))
    if name == "check":
        browser.until(lambda: browser.run(VERIFIER_IS_THERE))
        browser["#check-export"].click()
        browser.until(lambda: browser.all("#check-verdict"))
        browser.run("document.getElementById('checker').scrollIntoView()")


def main(audit, folder):
    options = webdriver.ChromeOptions()
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--force-color-profile=srgb",
        "--hide-scrollbars",
    ):
        options.add_argument(flag)
    service = webdriver.ChromeService("/usr/bin/chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    terms = Terms.from_toml((audit / "terms.toml").read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "book.db"
        members = charge(path, terms)
        with served(path, Path(scratch) / "console", audit=audit) as at:
            at.tokens["operator"] = at.access.create(1)
            at.tokens["member"] = at.access.create(1, federation=FEDERATION, member=members[1])
            for name, (who, tab) in PAGES.items():
                browser = Browser(driver, at).sign_in(who)
                for size, (width, height) in WIDTHS.items():
                    browser.resize(width, height)
                    browser.open(f"/f/{key_of(FEDERATION)}{tab}")
                    prepare(browser, name)
                    take(browser, folder / f"{name}-{size}.png")
    driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
