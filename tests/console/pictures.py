"""Pictures of the console's main pages, at the width of a desk and of a phone, for the docs.

    python -m tests.console.pictures AUDIT FOLDER

AUDIT is the folder of an audit with `terms.toml`; a book is charged by these terms, with squared
norms drawn within the audited band, and one member doubles its updates in the last rounds.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from selenium import webdriver

from verax.console.follow import key_of
from verax.ledger import Book, Report
from verax.mechanism import Terms

from .conftest import served
from .test_browser import Browser

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


def take(browser, width, height, path):
    """The first screen of a page as a picture."""
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.driver.save_screenshot(str(path))


def main(audit, folder):
    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"):
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
                    browser.open(f"/f/{key_of(FEDERATION)}{tab}")
                    if not tab:
                        browser.until(lambda browser=browser: browser.all("path.line"))
                    take(browser, width, height, folder / f"{name}-{size}.png")
    driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
