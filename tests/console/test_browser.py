"""The console as people meet it: in a real browser."""

import base64
import subprocess
import sys
import threading
import time
import unicodedata
from pathlib import Path

import pytest
from flwr.serverapp.strategy import FedAvg

from verax.flower import PaidStrategy
from verax.ledger import Book, Report, look_alikes
from verax.ledger.export import export_book
from verax.mechanism import Openness, Price, Terms, Weights
from verax.verifier import forms, verify

from ..flower.grid import Honest, LocalGrid, model, nodes
from .conftest import BANKS, CLINICS, make_tokens, served
from .forged import evidence, exports, signed_book
from .test_attacks import HOSTILE


class Browser:
    """A browser at a console, with what a reader does and sees."""

    def __init__(self, driver, at):
        self.driver, self.at = driver, at
        driver.get(at.url + "/healthz")
        driver.delete_all_cookies()
        driver.get_log("browser")

    def open(self, path):
        self.driver.get(self.at.url + path)
        return self

    def sign_in(self, who):
        self.open(f"/sign-in#token={self.at.tokens[who]}")
        self.until(lambda: self.all(".who"))
        return self

    def __getitem__(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def run(self, script, *args):
        return self.driver.execute_script(script, *args)

    def text(self):
        return self.run("return document.body.textContent")

    def until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not self._holds(condition):
            assert time.monotonic() < end, self.text()
            time.sleep(0.02)

    def _holds(self, condition):
        from selenium.common.exceptions import StaleElementReferenceException

        try:
            return condition()
        except StaleElementReferenceException:
            return False  # the page replaced the element while it was looked at

    def resize(self, width, height=900):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def overflows(self):
        root = "document.documentElement"
        return self.run(f"return {root}.scrollWidth > {root}.clientWidth")

    def errors(self):
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]


def test_the_link_of_the_terminal_signs_in_and_leaves_no_token_behind(chromium, at):
    page = Browser(chromium, at).sign_in("operator")
    page.open(f"/f/{CLINICS}")
    assert "Round 3" in page["h1"].text
    assert "vx_" not in page.run("return location.href + document.cookie + document.referrer")
    page.driver.back()
    assert "vx_" not in page.driver.current_url
    assert page.errors() == []


def test_a_token_is_typed_and_a_wrong_one_refused(chromium, own):
    page = Browser(chromium, own).open("/sign-in")
    page["#token"].send_keys("vx_wrong\n")
    page.until(lambda: page.all("[role=alert]"))
    page["#token"].send_keys(own.tokens["a"] + "\n")
    page.until(lambda: "North" in page["h1"].text)
    assert page.run("return document.cookie") == ""  # no script can read the session
    page[".who button"].click()
    page.until(lambda: page.all("#token"))
    page.open(f"/f/{CLINICS}")
    assert page.all("#token")


def test_a_run_appears_round_by_round_without_reloading(chromium, tmp_path):
    """The book of a federation on Flower, which runs beside the page."""
    path = tmp_path / "book.db"
    names = tuple(f"client-{i}" for i in range(3))
    agreed = Terms(Price.constant(0.5), members=names, weights=Weights("equal"), scale=4)
    go = threading.Semaphore(0)
    with Book.create(path) as book:
        paid = PaidStrategy(FedAvg(), terms=agreed, ledger=book, federation="clinics", run="spring")
        honest = Honest(examples=(10, 10, 10))

        def client(i, request):
            if i == 0 and request.metadata.message_type == "train":
                go.acquire()  # a round begins when the test has seen the one before
            return honest(i, request)

        grid = LocalGrid(nodes(3), client)
        runner = threading.Thread(target=lambda: paid.start(grid, model(), 3, timeout=60))
        with served(path, tmp_path / "console") as at:
            make_tokens(at)
            page = Browser(chromium, at).sign_in("operator")
            page.open(f"/f/{CLINICS}")
            assert "Waiting for the first round" in page.text()
            page.run("window.opened = true")
            page.until(lambda: page.all(".pulse.on"))
            runner.start()
            for t in (1, 2, 3):
                go.release()
                page.until(lambda t=t: f"Round {t}" in page["h1"].text)
                page.until(lambda: page.all("#norms path.line"))
                assert page.run("return window.opened")  # the page was never loaded again
            runner.join(60)
            assert "client-2" in page.text()
            assert "3 of 3 updates counted" in page.text()
            assert page.errors() == []
    assert verify(path).ok


def test_what_is_booked_before_the_stream_opens_appears(chromium, own):
    """The page says which records it shows, so that the stream's first line tells what it lacks."""
    page, reserve = Browser(chromium, own).sign_in("operator"), own.console.streams.reserve

    def reserve_late(token):
        own.console.streams.reserve = reserve
        with Book.open(own.path) as book:
            book.post("clinics", "spring", 4, [Report(m, statistic=1.0) for m in "abc"])
        own.console.library.refresh()
        return reserve(token)

    own.console.streams.reserve = reserve_late
    page.open(f"/f/{CLINICS}")
    page.until(lambda: "Round 4" in page["h1"].text)
    assert page.errors() == []


def test_a_new_round_is_announced_and_keeps_the_focus(chromium, own):
    page = Browser(chromium, own).sign_in("operator").open(f"/f/{CLINICS}")
    page.until(lambda: page.all(".pulse.on"))
    page.run("document.getElementById('all-rounds').focus()")

    def post(t):
        with Book.open(own.path) as book:
            book.post("clinics", "spring", t, [Report(m, statistic=1.0) for m in "abc"])
        page.until(lambda: f"Round {t}" in page["h1"].text)
        page.until(lambda: page.all(".pulse.new"))

    post(4)
    assert page.run("return document.activeElement.id") == "all-rounds"
    news = "return document.querySelector('#live-news[role=status]').textContent"
    assert page.run(news) == "Round 4 of spring is booked."
    first = page.run("""
      const round = document.querySelectorAll(".round .scroll")[2];
      round.focus();
      return round.id;
    """)
    post(5)  # the round that has the focus leaves the page
    assert not page.all(f"#{first}")
    assert page.run("return document.activeElement.tagName") == "H1"
    assert page.errors() == []


def test_a_book_that_cannot_be_read_is_said_on_an_open_page(chromium, own):
    page = Browser(chromium, own).sign_in("a").open(f"/f/{CLINICS}")
    page.until(lambda: page.all(".pulse.on"))
    refresh, library = own.console.library.refresh, own.console.library
    library.refresh = lambda: library.fail("no more")
    page.until(lambda: "cannot be read any further" in page["#live"].text)
    library.refresh = refresh
    page.until(lambda: "cannot be read any further" not in page["#live"].text)


def test_a_phone_shows_the_tab_of_its_page(chromium, at):
    page = Browser(chromium, at).sign_in("operator")
    page.resize(390)
    for tab in ("", "/settlement", "/book"):
        page.open(f"/f/{CLINICS}{tab}")
        page.until(
            lambda: page.run("""
              const tab = document.querySelector(".tabs [aria-current]").getBoundingClientRect();
              return tab.left >= 0 && tab.right <= innerWidth;
            """)
        )
    page.resize(1280)


def contrast(page, selector):
    """The ratio of luminances of a text and the page behind it (WCAG 2)."""
    return page.run(
        """
        const light = (css) => {
          const [r, g, b] = css.match(/[\\d.]+/g).map((v) => v / 255)
            .map((v) => (v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4));
          return .2126 * r + .7152 * g + .0722 * b + .05;
        };
        const text = light(getComputedStyle(document.querySelector(arguments[0])).color);
        const back = light(getComputedStyle(document.body).backgroundColor);
        return Math.max(text, back) / Math.min(text, back);
        """,
        selector,
    )


def test_pages_are_readable_in_the_dark(chromium, at):
    page = Browser(chromium, at).sign_in("operator").open(f"/f/{CLINICS}")
    behind = "return getComputedStyle(document.body).backgroundColor"
    seen = set()
    for scheme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        for tab in ("", "/balances", "/settlement", "/book", "/members/2"):
            page.open(f"/f/{CLINICS}{tab}")
            for selector in ("h1", "main p, small", "main a, nav a"):
                assert contrast(page, selector) >= 4.5, (scheme, tab, selector)
        seen.add(page.run(behind))
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {})
    assert len(seen) == 2


def test_a_printed_statement_holds_the_arithmetic_of_every_charge(chromium, at):
    page = Browser(chromium, at).sign_in("b").open(f"/f/{CLINICS}/members/2")
    payments = page.all("table.statement details dl")
    assert len(payments) == 3
    assert not any(each.is_displayed() for each in payments)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    page.until(lambda: all(each.is_displayed() for each in payments))
    assert not any(each.is_displayed() for each in page.all(".tabs, .who, .pages"))
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    page.until(lambda: not any(each.is_displayed() for each in payments))


@pytest.mark.slow
def test_the_example_app_appears_round_by_round(chromium, tmp_path):
    """Its own process writes the book; the page is opened before the first round is in it."""
    path, app = tmp_path / "book.db", Path(__file__).parents[2] / "examples" / "flower-digits"
    Book.create(path).close()
    command = [sys.executable, app / "in_process.py", path, "num-server-rounds=3"]
    with served(path, tmp_path / "console") as at:
        make_tokens(at)
        page = Browser(chromium, at).sign_in("operator")
        with subprocess.Popen(command, cwd=tmp_path) as process:
            page.until(lambda: at.console.library.federations, 600)
            page.open(f"/f/{at.console.library.federations[0].key}")
            page.run("window.opened = true")
            seen = set()

            def finished():
                assert process.poll() in (None, 0)
                seen.add(page["h1"].text.partition(" of ")[0])
                return "Round 3" in page["h1"].text

            page.until(finished, 600)
            assert process.wait(600) == 0
        assert page.run("return window.opened")
        assert len(seen) >= 2
        assert page.errors() == []


def test_a_member_sees_its_own_account_and_no_other(chromium, at):
    page = Browser(chromium, at).sign_in("b")
    assert "South" in page["h1"].text
    page.until(lambda: page.all("#balance path.line"))
    assert [a.text for a in page.all(".tabs a")] == [
        "My account", "My statement", "Balances", "Terms", "Check the book",
    ]  # fmt: skip
    page.open(f"/f/{CLINICS}/balances")
    assert page.text().count("hidden") >= 2
    page.open(f"/f/{CLINICS}/members/2")
    page["details summary"].click()
    assert "= payment" in page["details[open]"].text
    page.open(f"/f/{CLINICS}/members/1")
    assert "another member's account" in page.text()
    page.open(f"/f/{BANKS}")
    assert "not yours" in page.text()
    page.open(f"/f/{CLINICS}/book")
    assert not page.all("#check-export")  # the terms keep amounts and norms to each member


def test_members_are_found_while_one_types(chromium, at):
    page = Browser(chromium, at).sign_in("operator").open(f"/f/{CLINICS}/balances")
    page["#search"].send_keys("wes")
    page.until(lambda: len(page.all("#members tbody tr")) == 1)
    assert "West" in page["#members"].text
    assert page.errors() == []


CHECK = """
const [text, done] = arguments;
const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
import("/static/verify/verify.js").then(({ verify }) => verify(bytes))
  .then(done, (error) => done({ error: String(error) }));
"""


def test_the_browser_finds_whatever_the_command_finds(chromium, at, tmp_path):
    """Every kind of forgery of the ledger's tests, on the same exports, with the same findings."""
    page = Browser(chromium, at).open("/sign-in")
    page.driver.set_script_timeout(60)
    kinds = 0
    for kind, data in exports(tmp_path):
        path = tmp_path / "export.jsonl"
        path.write_bytes(data)
        right = verify(path)
        found = page.driver.execute_async_script(CHECK, base64.b64encode(data).decode())
        assert "error" not in found, (kind, found)
        assert found["ok"] == right.ok == kind.startswith("clean"), kind
        same = ("records", right.sequence), ("rounds", right.rounds), ("entries", right.entries)
        for name, value in (*same, ("hash", right.hash), ("wrong", right.wrong)):
            assert found[name] == value, (kind, name)
        assert found["root"] == base64.b64encode(right.root).decode()
        assert found["balances"] == {m: str(units) for m, units in right.balances.items()}, kind
        for name in ("findings", "decisions"):
            wanted = sorted((each.kind, each.sequence) for each in getattr(right, name))
            assert sorted((e["kind"], e["sequence"]) for e in found[name]) == wanted, (kind, name)
        kinds += not right.ok
    assert kinds >= 280


MINE = """
const [text, own, member, done] = arguments;
const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
import("/static/verify/verify.js")
  .then(({ verify }) => verify(bytes, { mine: { text: own, member } }))
  .then(done, (error) => done({ error: String(error) }));
"""


def test_evidence_of_restarts_other_federations_and_old_keys_is_read_as_by_the_command(
    chromium, at, tmp_path
):
    page = Browser(chromium, at).open("/sign-in")
    path, export, own = (tmp_path / name for name in ("book.db", "book.jsonl", "north.jsonl"))
    signed_book.signed_book(path)

    def check():
        with Book.open(path) as book:
            export_book(book, "clinics", export)
        data = base64.b64encode(export.read_bytes()).decode()
        found = page.driver.execute_async_script(MINE, data, own.read_text(), "North")
        right = verify(export, mine=own, member="North")
        words = [each.message.replace("north.jsonl", "your record") for each in right.findings]
        same = [each["message"] for each in found["findings"]]
        assert [each.replace("'", "") for each in words] == same
        assert [each.replace("'", "") for each in right.proven] == found["proven"]
        return found

    evidence.round_trained_twice(path, own)
    assert check()["ok"]
    evidence.evidence_of_two_federations(path, own)
    assert check()["ok"]
    text = own.read_text()
    own.write_text(text.replace("federation clinics", "federation sites"))
    assert not check()["ok"], "unsigned or of another federation"
    own.write_text(text)
    with Book.open(path) as book:
        book.join("clinics", "a", "North", key=evidence.evidence_key(evidence.STRANGER))
    assert "squared norm 4.0 from" in check()["proven"][0]


NAMES = """
const [groups, done] = arguments;
import("/static/verify/forms.js").then(({ asSeen, isName }) => {
  const places = groups.map((names) => new Set(names.map(asSeen)).size);
  done({ places, valid: groups.map((names) => names.map(isName)) });
}, (error) => done({ error: String(error) }));
"""


def test_the_browser_sees_the_same_names_alike_and_refuses_the_same(chromium, at):
    """Every letter that Unicode calls a look-alike, beside the one that it looks like."""
    groups = []
    for row in look_alikes.TABLE.split("\n")[1:-1]:
        shown, *codes = row.split()
        groups += [[f"a{shown}b", f"A{chr(int(code, 16))}B"] for code in codes]
    groups += [[f"a{chr(n)}b"] for n in range(0x20, 0x3200)]
    groups += [[f"a{chr(n)}b"] for n in (*range(0xFE00, 0x10000), *range(0xE00F0, 0xE01F5))]
    groups += [
        ["North", "north", "N0RTH"],
        ["Farm", "farrn"],
        ["a b", "a \u3000 b"],
        ["é", "e\u0301"],
    ]
    page = Browser(chromium, at).open("/sign-in")
    found = page.driver.execute_async_script(NAMES, groups)
    assert "error" not in found, found
    assert found["places"] == [len(set(map(forms.as_seen, names))) for names in groups]
    assert found["places"] == [1] * len(groups)
    python = [[forms.is_name(name) for name in names] for names in groups]
    known = [i for i, names in enumerate(groups) if unicodedata.category(names[-1][1:2]) != "Cn"]
    assert [found["valid"][i] for i in known] == [python[i] for i in known]


VERIFIER_IS_THERE = """return document.getElementById("checker").dataset.ready === "yes";"""


def open_book(path):
    with Book.create(path) as book:
        agreed = Terms(Price.constant(0.5), scale=2, openness=Openness("all", "all"))
        book.create_federation("clinics", agreed)
        for t in range(1, 31):
            book.post("clinics", "r", t, [Report(m, statistic=t + i) for i, m in enumerate("abc")])
    return path


def test_a_member_checks_the_book_by_one_click(chromium, tmp_path):
    path = open_book(tmp_path / "book.db")
    with served(path, tmp_path / "console") as at:
        make_tokens(at)
        page = Browser(chromium, at).sign_in("a").open(f"/f/{CLINICS}/book")
        page.until(lambda: page.all("#check-export"))
        page.until(lambda: page.run(VERIFIER_IS_THERE))
        page["#check-export"].click()
        page.until(lambda: page.all("#check-verdict"))
        assert page["#check-verdict"].text == "Nothing wrong found."
        with Book.open(path) as book:
            owed = book.balances("clinics")["a"] / 100
            export_book(book, "clinics", tmp_path / "export.jsonl")
        assert f"{owed:.2f}".replace("-", "−") in page["#check-result"].text
        forged = (
            (tmp_path / "export.jsonl").read_bytes().replace(b'"amounts":[', b'"amounts":[1', 1)
        )
        (tmp_path / "forged.jsonl").write_bytes(forged)
        page["#check-file"].send_keys(str(tmp_path / "forged.jsonl"))
        page.until(lambda: "not right" in page["#check-result"].text)
        assert "Wrong (" in page["#check-result"].text
        assert page.errors() == []


def test_a_kept_checkpoint_and_own_norms_are_compared(chromium, tmp_path):
    path = open_book(tmp_path / "book.db")
    own = tmp_path / "mine.jsonl"
    lines = [f'{{"run": "r", "round": {t}, "norm": {float(t)}}}\n' for t in range(1, 31)]
    lines[6] = '{"run": "r", "round": 7, "norm": 9.0}\n'
    own.write_text("".join(lines))
    from tests.console.forged import forgeries
    from verax.ledger.witness import make_checkpoint, read_log

    note = make_checkpoint(read_log(path), "operator", forgeries.OPERATOR_KEY)
    (tmp_path / "kept.note").write_text(str(note).replace("\n34\n", "\n33\n"))
    right = verify(path, checkpoints=[tmp_path / "kept.note"], mine=own, member="a")
    assert [each.kind for each in right.findings] == ["mine", "fork"]
    with served(path, tmp_path / "console") as at:
        make_tokens(at)
        page = Browser(chromium, at).sign_in("a").open(f"/f/{CLINICS}/book")
        page["#check-note"].send_keys(str(tmp_path / "kept.note"))
        page["#check-mine"].send_keys(str(own))
        page.until(lambda: page.run(VERIFIER_IS_THERE))
        page["#check-export"].click()
        page.until(lambda: page.all("#check-verdict"))
        said = page["#check-result"].text
        assert page["#check-verdict"].text.startswith("2 findings")
        assert "round 7 of run r: the book says 7, your record says 9" in said
        assert "history was rewritten" in said


def test_signed_statements_and_receipts_prove_what_the_command_proves(chromium, tmp_path):
    """A member's evidence against the book that it is of, and against one that was forged."""
    path, books = tmp_path / "book.db", {}
    signed_book.signed_book(path)
    own = evidence.evidence(path, tmp_path / "north.jsonl")
    forged = evidence.forged_book(tmp_path / "forged.db", "optional")
    for name, source in (("true", path), ("forged", forged)):
        books[name] = tmp_path / f"{name}.jsonl"
        with Book.open(source) as book:
            export_book(book, "clinics", books[name])
    assert verify(books["forged"]).ok  # it is consistent in itself
    with served(path, tmp_path / "console") as at:
        make_tokens(at)
        page = Browser(chromium, at).sign_in("a").open(f"/f/{CLINICS}/book")
        page.until(lambda: page.run(VERIFIER_IS_THERE))
        page["#check-mine"].send_keys(str(own))
        page["#check-file"].send_keys(str(books["true"]))
        page.until(lambda: page.all("#check-verdict"))
        right = verify(books["true"], mine=own, member="a")
        assert right.ok
        assert len(right.proven) == 3
        assert page["#check-verdict"].text == "Nothing wrong found."
        assert page["#check-result h3"].text == "Proven by signatures"
        said = [line.text for line in page.all("#check-result li")]
        assert said == [words.replace("'", "") for words in right.proven]
        page["#check-file"].send_keys(str(books["forged"]))
        page.until(lambda: "not right" in page["#check-result"].text)
        wrong = verify(books["forged"], mine=own, member="a")
        assert not wrong.proven
        assert page["#check-verdict"].text.startswith(f"{wrong.wrong} findings")
        said = page["#check-result"].text
        assert "Proven" not in said
        assert said.count("Wrong (fork)") == 3
        assert said.count("Wrong (") == len(wrong.findings)
        assert page.errors() == []


def test_every_page_fits_a_phone_and_a_desk_whatever_the_names(chromium, tmp_path):
    path = tmp_path / "book.db"
    long = "w" * 200
    with Book.create(path) as book:
        book.create_federation("clinics", Terms(Price.constant(1.0), scale=9))
        for member, label in (("a", HOSTILE), ("b", long), ("c", "漢" * 60)):
            book.join("clinics", member, label)
        book.deposit("clinics", "a", 10**17, long, reference="d")
        for t in range(1, 4):
            reports = [Report("a", statistic=1e6), Report("b", statistic=1e-12)]
            book.post("clinics", long, t, [*reports, Report("c", "rejected", reason=HOSTILE)])
    with served(path, tmp_path / "console") as at:
        make_tokens(at)
        for who in ("operator", "a"):
            page = Browser(chromium, at).sign_in(who)
            for width in (360, 1280):
                page.resize(width)
                own = ("", "/rounds", "/balances", "/terms", "/book", "/members/1")
                for tab in (*own, *(("/audit", "/settlement") if who == "operator" else ())):
                    page.open(f"/f/{CLINICS}{tab}")
                    assert not page.overflows(), (who, width, tab)
                    assert "NaN" not in page.run("return document.body.innerHTML"), tab
            assert page.errors() == []


def test_a_keyboard_reaches_everything_and_readers_hear_its_names(chromium, at):
    from selenium.webdriver.common.keys import Keys

    page = Browser(chromium, at).sign_in("operator").open(f"/f/{CLINICS}/balances")
    body = page["body"]
    body.send_keys(Keys.TAB)
    assert page.run("return document.activeElement.className") == "skip"
    seen = set()
    for _ in range(40):
        page.run("return document.activeElement").send_keys(Keys.TAB)
        seen.add(page.run("return document.activeElement.outerHTML.slice(0, 60)"))
    assert any("Settlement" in each or "/settlement" in each for each in seen)
    assert any('type="search"' in each for each in seen)
    unnamed = """
      const names = (e) => e.labels?.length || e.getAttribute("aria-label") || e.textContent.trim();
      return [...document.querySelectorAll("input:not([type=hidden]), select, button, a")]
        .filter((e) => !names(e)).map((e) => e.outerHTML);
    """
    for tab in ("", "/balances", "/settlement", "/book", "/terms"):
        page.open(f"/f/{CLINICS}{tab}")
        assert page.run(unnamed) == []
        assert page.run("return document.documentElement.lang") == "en"
        assert page.run("return document.querySelectorAll('h1').length") == 1


def test_a_history_of_many_rounds_is_paged_and_drawn(chromium, tmp_path):
    path = tmp_path / "book.db"
    with Book.create(path) as book:
        book.create_federation("clinics", Terms(Price.constant(0.5), scale=2))
        for t in range(1, 501):
            value = 500.0 if t == 300 else 1.0
            reports = [Report("a", statistic=value), Report("b", statistic=1.0)]
            book.post("clinics", "r", t, reports)
    with served(path, tmp_path / "console") as at:
        make_tokens(at)
        page = Browser(chromium, at).sign_in("a")
        page.until(lambda: page.all("#norm path.line"))
        top = page.run("return document.querySelector('#norm path.line').getBBox().height")
        assert top > 100  # the one extreme is drawn, although most points are not
        page.open(f"/f/{CLINICS}/members/1?page=10")
        assert "Page 10 of 10" in page.text()
        assert page.errors() == []
