"""A rule, an aggregator, two reportings, a reward and a task from outside the package.

They are audited, charged and verified: as objects in Python, and by name as processes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.audit.conftest import RESCALINGS
from tests.command import verax
from tests.own_parts import FlipBias, FlipLabels, MidRange, NormRule, RootReward, wards
from verax.audit import audit
from verax.audit.run.record import load_runs
from verax.ledger import Book, Report
from verax.mechanism import SquaredNorm, Statistics, Terms, charge

VERAX = Path(sys.executable).with_name("verax")
ROOT = Path(__file__).parents[1]
PATHS = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
ENV = os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)}
OPTIONS = {
    "rounds": 6,
    "step": 0.5,
    "batch": 16,
    "scales": (0.5, 1.0, 3.0),
    "phases": (),
    "surges": (5.0,),
    "surge_rounds": (1,),
    "noises": (),
    "setting_seeds": 1,
    "choosing_seeds": 1,
    "judging_seeds": 2,
    **{name: value for name, value in RESCALINGS.items() if name != "rules"},
}


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    return audit(
        wards,
        out=tmp_path_factory.mktemp("own") / "audit",
        workers=1,
        rules=[NormRule(), SquaredNorm()],
        aggregator=MidRange(),
        reportings=[FlipBias(), FlipLabels()],
        reward=RootReward(),
        **OPTIONS,
    )


def test_every_part_takes_part_in_the_audit(audited):
    summary = audited.summary
    assert summary["rule"] == "norm"
    assert {"norm, constant", "norm, profile", "squared-norm, profile"} <= {
        row["name"] for row in summary["rules"]
    }
    labels = [d["label"] for d in summary["clients"][0]["deviations"]]
    assert {"FlipBias", "FlipLabels"} <= set(labels)
    settings = dict(map(tuple, summary["settings"]))
    assert "tests.own_parts:MidRange" in settings["protocol"]
    losses = audited.judgement.evidence.honest_losses
    assert_allclose(audited.judgement.evidence.honest_rewards, -np.sqrt(losses))


def test_what_they_do_is_in_the_record(audited):
    """In round 1 the model is zero: the flipped updates follow from the honest one by hand."""
    runs = load_runs(audited.folder)
    seed = audited.judgement.plan.seeds.judging[0]

    def first_norms(role, reporting=None):
        run = next(
            r
            for r in runs
            if (r.run.seed, r.run.role) == (seed, role)
            and (reporting is None or (r.run.reporting == reporting and r.run.client == 1))
        )
        return run.statistics.norms[0], run.statistics.misreport[0]

    honest, _ = first_norms("honest")
    flipped, distance = first_norms("deviation", FlipBias())
    assert_allclose(flipped, honest, rtol=1e-5)  # a sign has no length
    assert distance[1] > 0
    assert_allclose(distance[[0, 2]], 0)
    # At θ = 0 the gradient is x·(½ − y): with flipped labels it is the opposite one.
    labels, distance = first_norms("deviation", FlipLabels())
    assert_allclose(labels, honest, rtol=1e-5)
    assert_allclose(distance[1], 4 * honest[1], rtol=1e-4)


def test_the_terms_charge_by_the_rule_and_the_book_is_verified(audited, tmp_path):
    terms = Terms.load(audited.folder / "terms.toml")
    assert terms.rule == "tests.own_parts:NormRule"
    norms = [4.0, 1.0, 9.0]
    amounts = charge(terms, 6, Statistics(norms), ["ok"] * 3).amounts
    price = terms.price.at(6) * np.sqrt(norms)
    by_hand = [price[i] - (price.sum() - price[i]) / 2 for i in range(3)] - terms.allowances_at(6)
    assert_allclose(amounts, by_hand)
    book = tmp_path / "book.db"
    with Book.create(book) as opened:
        opened.create_federation("wards", terms)
        for name in wards.names:
            opened.join("wards", name)
        for t in range(1, 7):
            reports = [Report(n, "ok", value) for n, value in zip(wards.names, norms, strict=True)]
            opened.post("wards", "first", t, reports)

    def verify(*options):
        command = [VERAX, "ledger", "verify", book, "--json", *options]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=ENV, cwd=tmp_path
        )
        return done.returncode, json.loads(done.stdout)

    code, unknown = verify()
    assert code == 0
    assert "payments by rule tests.own_parts:NormRule were not recomputed" in json.dumps(unknown)
    code, known = verify("--rule", terms.rule)
    assert code == 0
    assert "not recomputed" not in json.dumps(known)


def test_all_of_them_by_name_on_the_command_line(audited, tmp_path):
    """The same audit by worker processes, which import the parts: the same numbers."""
    words = ["--task", "tests.own_parts:wards", "--rules", "tests.own_parts:NormRule"]
    words += ["--rules", "squared-norm", "--aggregator", "tests.own_parts:MidRange"]
    words += ["--reportings", "tests.own_parts:FlipBias"]
    words += ["--reportings", "tests.own_parts:FlipLabels"]
    words += ["--reward", "tests.own_parts:RootReward"]
    for name, value in OPTIONS.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}={text}"]
    done = verax(["audit", "--out", tmp_path / "audit", "--json", "--workers", "1", *words])
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["rule"] == "norm"
    for one, other in zip(summary["clients"], audited.summary["clients"], strict=True):
        for mine, yours in zip(one["deviations"], other["deviations"], strict=True):
            assert mine["label"] == yours["label"]
            assert mine["reward_gain"]["mean"] == pytest.approx(
                yours["reward_gain"]["mean"], rel=1e-2, abs=1e-5
            )
    assert Terms.load(tmp_path / "audit" / "terms.toml").rule == "tests.own_parts:NormRule"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--rules tests.own_parts:wards", "has no 'reads'"),
        ("--aggregator tests.own_parts:NormRule", "has no 'aggregate'"),
        ("--task tests.own_parts:FlipBias", "has no 'train'"),
        ("--reward tests.nothing:Here", "cannot be imported"),
    ],
)
def test_a_part_of_the_wrong_kind_is_named(option, words, tmp_path):
    done = verax(f"audit --rounds 5 --out {tmp_path / 'a'} {option}")
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "a").exists()
