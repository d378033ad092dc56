"""The report as a file, and as a reader meets it: opened in a real browser."""

import copy
import json
import os
import re
from html.parser import HTMLParser

import pytest

from tests.audit.report_fixture import SCHEDULES, make_audit
from verax.amounts import money, number
from verax.audit.show import report
from verax.audit.show.report import write_report

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)> & \"'" + "x" * 60


class Elements(HTMLParser):
    """Every element with its attributes and the text directly within."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append([tag, dict(attrs), ""])

    def handle_data(self, data):
        if self.found:
            self.found[-1][2] += data

    def named(self, tag):
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def written(audit, folder):
    path = folder / "report.html"
    write_report(audit, path)
    return path.read_text(encoding="utf-8")


def sparse_audit():
    """What is left of an audit when everything that may be unknown is unknown."""
    audit = make_audit()
    for name in ("profile", "payments", "window", "proposed", "tolerance"):
        audit[name] = None
    audit["reason"] = "empty: a late surge gains at every price"
    audit["rules"] = audit["not_tried"] = audit["settings"] = audit["members"] = []
    first, second, third = audit["clients"]
    first["honest_accuracy"] = first["tolerance"] = None
    first["honest_loss"] = {"mean": None, "low": None, "high": None}
    for window in first["windows"]:
        window |= {"low": 0.5, "high": None, "worst_gain": None}
    for deviation in first["deviations"]:
        deviation["steering"] = None
        deviation["reward_gain"] |= {"low": None, "high": None}
        deviation["harm"] = {}
        deviation["payment_rise"]["profile"] = None
    second["deviations"] = []
    second["windows_constant_misreports"] = []
    third["deviations"][0]["reward_gain"] = {"mean": None, "low": None, "high": None}
    third["deviations"][1]["a_early"] = third["deviations"][1]["switch_round"] = None
    return audit


def hostile_audit(clients=3):
    audit = make_audit(clients)
    audit["title"] = audit["task"] = audit["reason"] = audit["currency"] = HOSTILE
    audit["verdict"] = audit["not_tried"] = [HOSTILE]
    audit["members_words"] = HOSTILE
    audit["members"] = [[HOSTILE, None, None]] * 30
    audit["settings"] = [[HOSTILE, HOSTILE]]
    audit["versions"] = {HOSTILE: HOSTILE}
    audit["rules"][0]["name"] = HOSTILE
    for client in audit["clients"]:
        client["name"] = HOSTILE
        client["windows"][0]["reason"] = HOSTILE
        for deviation in client["deviations"]:
            deviation["label"] = HOSTILE
    return audit


def test_tables_show_the_audit(tmp_path):
    audit = make_audit()
    page = written(audit, tmp_path / "new" / "folder")
    elements = Elements(page)
    low, high = audit["window"]["low"], audit["window"]["high"]
    badge = next(text for attributes, text in elements.named("div") if "badge" in str(attributes))
    assert badge.strip() == f"Window for C: {low:.3g} … {high:.3g} (profile)"
    for text in (*audit["verdict"], *SCHEDULES.values(), "4 set the price, 8 judged", "collusion"):
        assert text in re.sub("&#39;", "'", page)
    assert page.count("a late surge gains more than the price takes</small>") == 3
    assert "0.84 %" in page
    assert "own momentum 0.9</td>" in page


@pytest.mark.parametrize("make", [make_audit, sparse_audit, hostile_audit])
def test_page_carries_the_audit_and_only_its_own_scripts(make, tmp_path):
    audit = make()
    scripts = Elements(written(audit, tmp_path)).named("script")
    assert [attributes for attributes, _ in scripts] == [
        {"type": "application/json", "id": "audit"},
        {},
    ]
    assert json.loads(scripts[0][1]) == audit
    assert "alert" not in scripts[1][1]


def test_hostile_names_stay_text(tmp_path):
    page = written(hostile_audit(), tmp_path)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert not Elements(page).named("img")


@pytest.mark.parametrize("make", [make_audit, hostile_audit])
def test_page_loads_nothing(make, tmp_path):
    page = written(make(), tmp_path)
    attributes = [a for _, found, _ in Elements(page).found for a in found.items()]
    loads = [(name, value) for name, value in attributes if name in {"src", "href", "srcset"}]
    assert loads == [("href", "data:,")]
    assert not [name for name, _ in attributes if name.startswith("on") or name == "style"]
    assert "https://" not in page
    assert "http://" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "default-src 'none'" in page


def test_page_appears_wholly_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("the old page")

    def fails(audit, error):
        with pytest.raises(error):
            write_report(audit, path)
        assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
        assert path.read_text() == "the old page"

    audit = make_audit()
    fails(audit | {"tolerance": float("nan")}, ValueError)
    fails({name: audit[name] for name in audit if name != "versions"}, Exception)

    def full_disk(descriptor):  # a disk may say so only when the written pages reach it
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        fails(audit, OSError)
    write_report(audit, path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text(encoding="utf-8").endswith("</html>")


def test_audit_is_left_as_it_was(tmp_path):
    audit = make_audit()
    before = copy.deepcopy(audit)
    write_report(audit, tmp_path / "report.html")
    assert audit == before


NUMBERS = {
    None: ("–", "–"),
    0.0: ("0", "0"),
    1.0: ("+1.00", "1"),
    0.8: ("+0.800", "0.8"),
    -0.01234: ("−0.0123", "−0.0123"),
    100.0: ("+100", "100"),
    99.97: ("+100", "100"),
    12345.6: ("+12,346", "12,346"),
    -1234567.0: ("−1,234,567", "−1,234,567"),
    4.4e-5: ("+4.40·10⁻⁵", "4.4·10⁻⁵"),
    1e-5: ("+1.00·10⁻⁵", "10⁻⁵"),
    -2.5e12: ("−2.50·10¹²", "−2.5·10¹²"),
}


@pytest.mark.parametrize("value", NUMBERS)
def test_numbers(value):
    assert (number(value, sign=True), report.price_words(value)) == NUMBERS[value]


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0.8, 1.3, "0.8 … 1.3"), (0.8, None, "from 0.8 on"), (0, 2, "0 … 2"), (None, None, "empty")],
)
def test_window_in_words(low, high, words):
    assert report.window_words({"low": low, "high": high}) == words
    assert report.window_words(None) == "empty"


# ---- in a browser


class Page:
    """A report in the browser, with what a reader does to it and reads off it."""

    def __init__(self, driver, audit, folder):
        self.driver = driver
        self.audit = audit
        write_report(audit, folder / "report.html")
        self.resize(1200)
        driver.get((folder / "report.html").as_uri())

    def __getitem__(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def texts(self, selector):
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return self.driver.execute_script(script, selector)

    def resize(self, width):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def choose(self, selector, value):
        self[f"{selector} option[value='{value}']"].click()

    def type_price(self, price):
        self["#price-number"].clear()
        self["#price-number"].send_keys(str(price))

    def price(self):
        return float(self["#price-number"].get_attribute("value"))

    def gains(self, client, schedule):
        """Every misreport's label and gain at the price that the page shows, from the audit."""
        price = self.price()
        return [
            (d["label"], d["reward_gain"]["mean"] - price * d["payment_rise"][schedule])
            for d in self.audit["clients"][client]["deviations"]
        ]

    def harmful(self, client, schedule):
        """Every misreport's gain, and whether the others lose more than their tolerance by it."""
        price, own = self.price(), self.audit["clients"][client]
        for d in own["deviations"]:
            paid = price * d["payment_rise"][schedule]
            harms = d["others_gain"]["mean"] + paid < -own["others_tolerance"]
            yield d["reward_gain"]["mean"] - paid, harms

    def agrees(self, client, schedule):
        """Whether words, table and marked rows say what the audit says."""
        gains = sorted(self.gains(client, schedule), key=lambda row: -row[1])
        label, gain = gains[0]
        said = self["#chosen-gain"].text
        assert f"“{label}”: gain {money(gain, 'EUR', sign=True)}" in said
        tolerance = self.audit["clients"][client]["tolerance"]
        assert ("above" in said) == (gain > tolerance)
        marked = sum(g > tolerance and h for g, h in self.harmful(client, schedule))
        assert len(self.all("#deviations tr.gains")) == marked
        shown = self.texts("#deviations tbody td:last-child")
        assert shown == [number(g, sign=True) for _, g in gains]
        return True

    def errors(self):
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]

    def overflows(self):
        root = "document.documentElement"
        return self.driver.execute_script(f"return {root}.scrollWidth > {root}.clientWidth")

    def cut_off(self):
        """Numbers at the axes that reach over the edge of their chart."""
        script = """
          const right = (e) => e.getBoundingClientRect().right;
          const marks = [...document.querySelectorAll("svg text[text-anchor=middle]")];
          return marks.filter((e) => right(e) > right(e.ownerSVGElement) + 0.5)
            .map((e) => e.textContent);
        """
        return self.driver.execute_script(script)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture
def page(chromium, folder):
    return Page(chromium, make_audit(), folder)


CHARTS = ("curve", "valley", "payments", "harm", "temptation", "profile")


def drawn(page):
    script = "return Object.fromEntries(arguments[0].map((id) => [id, $(id).innerHTML]))"
    return page.driver.execute_script(script, CHARTS)


def test_opens_at_the_proposed_price(page):
    assert page["#schedule"].get_attribute("value") == "profile"
    assert page.price() == 1.0
    assert page.agrees(0, "profile")
    assert not page["#tip"].is_displayed()
    for chart in CHARTS:
        assert page[f"#{chart}"].get_attribute("aria-label")
        assert page.all(f"#{chart} [data-tip]")
    assert page.errors() == []


def test_everything_follows_the_slider(page):
    from selenium.webdriver.common.keys import Keys

    before, price = drawn(page), page.price()
    curve = page["#curve path.main"].get_attribute("d")
    page["#price"].send_keys(*[Keys.ARROW_RIGHT] * 40)
    assert page.price() > price
    assert page["#curve path.main"].get_attribute("d") != curve
    assert page.agrees(0, "profile")
    page["#price"].send_keys(Keys.HOME)
    assert page.price() == 0.0
    after = drawn(page)
    assert {c for c in CHARTS if after[c] != before[c]} == set(CHARTS) - {"temptation"}
    assert page.agrees(0, "profile")
    page["#reset"].click()
    assert page.price() == 1.0
    assert drawn(page) == before
    assert page.errors() == []


def test_price_as_a_number(page):
    for price in ("0.25", "3e-2", "1000"):
        page.type_price(price)
        assert page.price() == float(price)
        assert page.agrees(0, "profile")
    page["#price-number"].clear()
    assert "C = 1,000" in page["#chosen-gain"].text
    assert page.errors() == []


def test_other_client_and_other_schedule(page):
    page.choose("#client", 2)
    assert page.agrees(2, "profile")
    assert "client 2" in page["#deviations-caption"].text
    assert "client 0" in page["#harm"].text
    assert page["#band-all"].is_displayed()
    page.choose("#schedule", "constant")
    assert page.agrees(2, "constant")
    assert not page["#band-client"].is_displayed()
    page.type_price("5e-5")
    assert page.agrees(2, "constant")
    page.choose("#schedule", "discounted")
    low, high = (page.audit["clients"][2]["windows"][1][end] for end in ("low", "high"))
    assert low < page.price() < high
    assert page.errors() == []


def test_table_sorts_by_any_column(page):
    for key, column in (("a_late", 3), ("reward_gain", 6), ("steering", 7)):
        head = page[f"#deviations th[data-key={key}]"]
        for direction in ("descending", "ascending"):
            head.find_element("css selector", "button").click()
            assert head.get_attribute("aria-sort") == direction
            cells = page.texts(f"#deviations tbody tr > :nth-child({column})")
            values = [float(c.replace("−", "-").replace("·10⁻⁵", "e-5")) for c in cells if c != "–"]
            assert values == sorted(values, reverse=direction == "descending")
            assert cells[len(values) :] == ["–"] * (len(cells) - len(values))
    page["#deviations th[data-key=label] button"].click()
    assert page["#deviations tbody th"].text == "0, then 0"
    assert len(page.all("#deviations th[aria-sort=none]")) == 10
    assert page.errors() == []


def test_table_can_be_copied(page):
    rows = page.driver.execute_script("return tableText()").split("\n")
    cells = [row.split("\t") for row in rows]
    assert len(rows) == 1 + len(page.audit["clients"][0]["deviations"])
    assert {len(row) for row in cells} == {11}
    assert float(cells[1][10]) == pytest.approx(max(g for _, g in page.gains(0, "profile")))
    page["#copy"].click()
    page.driver.implicitly_wait(5)
    page.driver.find_element("xpath", "//button[@id='copy'][text()='Copied']")
    page.driver.implicitly_wait(0)


def test_marks_tell_on_hover(page):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    mark = page.all("#curve [data-tip]")[3]
    page.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(page.driver).move_to_element(mark).perform()
    tip = mark.get_attribute("data-tip")
    WebDriverWait(page.driver, 30).until(lambda _: page["#tip"].text == tip)
    assert "gain" in page["#tip"].text


def test_marks_tell_by_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    page["#valley"].send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page["#tip"].text == page.all("#valley [data-tip]")[1].get_attribute("data-tip")
    assert page["#tip"].is_displayed()


def test_paper_shows_the_proposed_price(page):
    page.choose("#schedule", "constant")
    page.type_price("7e-5")
    tell = "dispatchEvent(new Event(arguments[0])); return $('shown').textContent"
    assert page.driver.execute_script(tell, "beforeprint") == (
        "Shown: client 0, profile, C = 1, as proposed."
    )
    assert "C = 7·10⁻⁵" in page.driver.execute_script(tell, "afterprint")
    assert page.price() == 7e-5
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not page["#price"].is_displayed()
    assert page["#shown"].is_displayed()
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_numbers_are_written_alike_everywhere(page):
    script = "return arguments[0].map((x) => [number(x, true), brief(x)])"
    assert [tuple(x) for x in page.driver.execute_script(script, list(NUMBERS))] == list(
        NUMBERS.values()
    )


@pytest.mark.parametrize(
    "make",
    [
        make_audit,
        sparse_audit,
        hostile_audit,
        lambda: make_audit(2),
        lambda: hostile_audit(20),
    ],
    ids=["three", "sparse", "hostile", "two", "twenty"],
)
def test_any_audit_fits_a_phone_and_a_desk(chromium, make, folder):
    page = Page(chromium, make(), folder)
    last = len(page.audit["clients"]) - 1
    for width in (360, 1200):
        page.resize(width)
        for schedule in SCHEDULES:
            page.choose("#schedule", schedule)
            for client in {0, 1, last}:
                page.choose("#client", client)
                assert not page.driver.execute_script("return /NaN/.test(document.body.innerHTML)")
                assert "gain" in page["#chosen-gain"].text
        assert not page.overflows()
        assert page.cut_off() == []
    assert page.errors() == []
