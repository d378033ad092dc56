"""An audit of a thousand clients: readable, searchable, small."""

import numpy as np
import pytest

from tests.audit.conftest import RESCALINGS
from verax.amounts import money, number
from verax.audit import audit
from verax.learning import Task
from verax.tasks.models import perceptron

N = 1000


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A thousand clients with a few samples each, of whom two may deviate."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 4))
    clients = []
    for _ in range(N):
        labels = rng.choice(3, size=4, p=rng.dirichlet(np.ones(3))).astype(np.int32)
        clients.append(((centres[labels] + rng.normal(size=(4, 4))).astype(np.float32), labels))
    model = perceptron((4, 3), start="zero", l2=0.01)
    names = tuple(f"clinic {k:04d}" for k in range(N))
    task = Task("clinics", clients, clients, model.init, model.loss, model.accuracy, names)
    folder = tmp_path_factory.mktemp("many") / "audit"
    found = audit(
        task,
        out=folder,
        **RESCALINGS,
        rounds=10,
        batch=4,
        deviating=(0, 500),
        scales=(1.0, 50.0),
        surges=(),
        phases=(),
        noises=(),
        setting_seeds=1,
        choosing_seeds=1,
        judging_seeds=2,
    )
    return found, folder


def test_the_page_is_small_and_lists_the_worst(report):
    found, folder = report
    assert (folder / "report.html").stat().st_size < 5e6
    assert len(found.summary["members"]) == N
    assert len(found.summary["clients"]) == 2
    for client in found.summary["clients"]:
        for deviation in client["deviations"]:
            assert len(deviation["harm"]) == 20
    paid = [own for _, own, _ in found.summary["members"]]
    assert sum(paid) == pytest.approx(0, abs=1e-5 * max(map(abs, paid)) * N)
    ends = f"{number(min(paid), sign=True)} to {money(max(paid), 'credits', sign=True)}"
    assert ends in found.summary["members_words"]
    assert "in the median" in found.summary["members_words"]
    assert "none of them gains anything at the others' expense" in str(found)
    sizes = dict(map(tuple, found.summary["settings"]))["training samples per client"]
    assert sizes == "4 to 4, 4 in the median"


def test_rules_on_distances_are_judged_too(report):
    found, _ = report
    names = {row["name"] for row in found.summary["rules"]}
    assert {"squared-distance, discounted", "groves-ledyard, discounted"} <= names
    worst = [row["worst_gain"] for row in found.summary["rules"]]
    assert all(gain == 0 or gain > 1e-9 for gain in worst), "rounding is no gain"


def test_the_terms_name_everybody(report):
    found, _ = report
    assert found.terms.members[500] == "clinic 0500"
    assert len(found.terms.allowances[0]) == N
    assert sum(found.terms.allowances[0]) == pytest.approx(0, abs=1e-9)


def test_it_opens_and_finds_a_member(report, chromium):
    found, folder = report
    chromium.get((folder / "report.html").as_uri())
    rows = chromium.find_elements("css selector", "#members tbody tr")
    assert len(rows) == 20
    most = max(found.summary["members"], key=lambda row: row[1])
    assert rows[0].text.startswith(most[0])
    harmed = chromium.find_elements("css selector", "#harm text[text-anchor=end]")
    names = [text.text for text in harmed if text.text.startswith("cli")]
    assert len(names) == 10
    assert all(name.startswith("clinic ") for name in names)
    chromium.find_element("css selector", "#find").send_keys("0777")
    rows = chromium.find_elements("css selector", "#members tbody tr")
    assert [row.text.split()[1] for row in rows] == ["0777"]
    assert chromium.find_element("css selector", "#found").text == "1 of 1000, 1 shown"
    assert not [e for e in chromium.get_log("browser") if e["level"] == "SEVERE"]
