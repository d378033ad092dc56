"""One path from the audit of an app to its charges: what was predicted is what is paid."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.apps.conftest import FEW
from verax.apps.api import app_plan, audit_app
from verax.apps.app import load_app
from verax.apps.look import look_at
from verax.flower import run_in_process
from verax.ledger import Book

HOSPITALS = Path(__file__).parents[2] / "examples" / "flower-hospitals"
SEED = 2  # one of the seeds that judged


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """A small audit of the tutorial's app, and its terms with more decimal places."""
    folder = tmp_path_factory.mktemp("audit")
    audit = audit_app(HOSPITALS, 4, out=folder / "audit", run_config="num-server-rounds=4", **FEW)
    path = folder / "terms.toml"
    path.write_text(replace(audit.terms, scale=15).to_toml())
    return audit, path


def charged(path, book, **config):
    """What every member owes after a real run in this process."""
    app = load_app(HOSPITALS)
    run_config = {**app.run_config, "num-server-rounds": 4, "terms": str(path), **config}
    run_config["book"] = str(book)
    run_in_process(app.server, app.client, 4, run_config, seed=SEED)
    with Book(str(book)) as opened:
        owed = opened.balances("hospitals")
        labels = {account.member: account.label for account in opened.members("hospitals")}
    return {labels[member]: amount / 10**15 for member, amount in owed.items()}


def test_the_charge_is_the_one_that_the_audit_predicted(hospitals, tmp_path):
    audit, path = hospitals
    judgement = audit.judgement
    honest = charged(path, tmp_path / "honest.db")
    tripled = charged(
        path,
        tmp_path / "tripled.db",
        **{"misreport": "", "misreport-scale": 3.0, "misreport-partition": 0},
    )
    d = judgement.evidence.labels.index("scale 3")
    s = list(judgement.plan.seeds.judging).index(SEED)
    predicted = judgement.multiplier * judgement.best.rises[0, d, s]
    paid = tripled["client 0"] - honest["client 0"]
    np.testing.assert_allclose(paid, predicted, rtol=1e-6)
    gained = judgement.evidence.gains[0, d, s]
    assert gained > 0
    assert gained - paid < 0  # tripling pays without the price, and not with it
    assert abs(sum(honest.values())) < 1e-12


def test_the_audit_itself_opens_no_book(hospitals, tmp_path):
    """The app is audited with its payments on, and its book does not come into being."""
    _, path = hospitals
    book = tmp_path / "audited.db"
    facts = look_at(app_plan(HOSPITALS, 4, run_config=f'terms="{path}" book="{book}"'))
    assert facts.strategy == "FedAvg"
    assert not book.exists()
