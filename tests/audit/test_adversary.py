"""The page and the figure of `verax reproduce adversary`, from summaries of audits."""

import json

from tests.audit.report_fixture import make_audit
from verax.audit.plan.adversary import SETTINGS
from verax.audit.plan.plan import Plan
from verax.audit.show.adversary import draw, page


def test_every_setting_is_a_plan():
    plans = [setting.plan() for setting in SETTINGS]
    assert len({setting.name for setting in SETTINGS}) == len(plans) >= 5
    for plan in plans:
        assert Plan.from_toml(plan.to_toml()) == plan


def test_the_page_has_a_table_of_everything_that_was_tried():
    audit = make_audit()
    text = page([("digits, three clients", audit)])
    assert text.startswith("### Digits, three clients")
    for row in audit["tried"]:
        assert f"| {row['kind']} | {row['label']} | {row['name']} |" in text
    assert "| two members together | searched |" in text
    for row in audit["rules"]:
        assert f"| {row['name']} | {100 * row['worst_share']:.2f} % |" in text
    assert text.count("| price: ") == len(audit["everybody"])


def test_a_harmless_gain_comes_before_a_harmful_loss():
    audit = make_audit()
    (found,) = audit["search"]
    gains = [("loses", -0.01, True), ("gains", 0.05, False)]
    audit["search"] = [
        json.loads(json.dumps(found))
        | {
            "words": words,
            "gain_share": share,
            "gain": {"mean": share, "low": share, "high": share},
            "harmful": harmful,
        }
        for words, share, harmful in gains
    ]
    (row,) = [line for line in page([("x", audit)]).splitlines() if "searched policy" in line]
    assert "| gains |" in row
    assert row.endswith("| no |")


def test_the_figure_is_the_same_each_time(tmp_path):
    audits = [("three", make_audit()), ("four", make_audit(4))]
    for name in ("one.svg", "two.svg"):
        draw(audits, tmp_path / name)
    one, two = ((tmp_path / name).read_text() for name in ("one.svg", "two.svg"))
    assert "three" in one
    assert len(one) == len(two)
