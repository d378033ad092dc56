"""An audit in a notebook."""

import copy
import re
from html.parser import HTMLParser

import pytest

from verax.audit.show.notebook import notebook_html


class Reader(HTMLParser):
    """The elements of a fragment, and its texts as a reader sees them."""

    def __init__(self, source):
        super().__init__()
        self.elements, self.attributes, self.texts = [], set(), []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        if data.strip():
            self.texts.append(data.strip())


def test_a_notebook_shows_the_verdict_and_the_strongest_of_each_kind(small):
    page = Reader(small._repr_html_())
    for sentence in small.summary["verdict"]:
        assert sentence in page.texts
    assert page.elements.count("tr") == 1 + len(small.summary["tried"])
    for row in small.summary["tried"]:
        place = page.texts.index(f"{row['kind']} ({row['tried']})")
        strongest, gain, others = page.texts[place + 1 : place + 4]
        assert strongest == f"{row['label']}, by {row['name']}"
        shown = [
            float(re.match(r"([+−][\d.]+) %", text)[1].replace("−", "-")) / 100
            for text in (gain, others)
        ]
        assert shown == pytest.approx(
            [row["gain_share"]["mean"], row["others_share"]["mean"]], abs=5e-5
        )
        assert others.endswith("costs them") == row["harmful"]


def test_texts_of_the_audit_bring_no_elements_of_their_own(small):
    summary = copy.deepcopy(small.summary)
    plain = Reader(notebook_html(summary))
    attack = '<img src=x onerror="alert(1)"></td><script>alert(2)</script>'
    summary["verdict"][0] = attack
    for row in summary["tried"]:
        row["name"] = row["label"] = row["kind"] = attack
    page = Reader(notebook_html(summary))
    assert page.elements == plain.elements
    assert page.texts[0] == attack


def test_the_fragment_loads_and_runs_nothing(small):
    page = Reader(small._repr_html_())
    assert set(page.elements) <= {
        "div",
        "p",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    assert page.attributes <= {"class", "scope"}


def test_an_audit_that_tried_nothing_has_no_table(small):
    page = Reader(notebook_html({**small.summary, "tried": []}))
    assert "table" not in page.elements
