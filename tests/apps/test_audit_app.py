"""Whole audits of apps: the verdict, resuming, the rehearsal, and what is refused."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from tests.apps.conftest import CLINICS, FEW
from verax.apps.api import app_plan, audit_app
from verax.apps.budget import fitted, predicted_seconds
from verax.apps.engine import AppRunner
from verax.apps.look import look_at
from verax.apps.rehearsal import rehearsal
from verax.audit import Plan
from verax.audit.judge import judge
from verax.audit.run.record import load_runs
from verax.audit.search import SearchResults
from verax.audit.show.summary import summarise
from verax.flower.local import LocalGrid
from verax.flower.pairing import paired

SMALL = {**FEW, "phases": ((0.5, 2.0, 0.5),), "run_config": "num-server-rounds=4"}


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit") / "clinics"
    said = []
    audit = audit_app(CLINICS, 3, out=folder, announce=said.append, **SMALL)
    return audit, said


def same_record(one: Path, other: Path):
    for a, b in zip(load_runs(one), load_runs(other), strict=True):
        assert a.run == b.run
        assert_array_equal(a.loss, b.loss)
        assert_array_equal(a.statistics.gram, b.statistics.gram)
        assert_array_equal(a.statistics.misreport, b.statistics.misreport)


def test_an_app_is_audited_like_any_task(audited):
    audit, said = audited
    assert said[0].startswith("clinics: FedAvg, 4 rounds, reward eval_loss, 24 client calls in")
    assert audit.window is not None
    settings = dict(audit.summary["settings"])
    assert settings["a message is"] == "a model difference, after the app's own training"
    assert settings["weights"] == "what clients report"
    assert [row["name"] for row in audit.summary["rules"]][:3] == [
        "squared-norm, constant",
        "squared-norm, discounted",
        "squared-norm, profile",
    ]
    assert any(row["name"].startswith("spot-audit") for row in audit.summary["rules"])
    assert audit.terms.weights.kind == "reported"
    assert audit.terms.members == ("client 0", "client 1", "client 2")
    assert (audit.folder / "report.html").exists()
    assert not (audit.folder / "work").exists()


def test_the_verdict_says_how_many_seeds_the_tolerance_takes(audited):
    """The interval, computed here from the values of every seed with SciPy's distribution."""
    audit, _ = audited
    judgement = audit.judgement
    strict = judge(judgement.plan.changed(tolerance=1e-5), judgement.subject, audit.folder)
    summary = summarise(strict, SearchResults(), audit.folder)
    kind, price = summary["proposed"]["schedule"], summary["proposed"]["price"]
    (client,) = summary["clients"]
    gains = np.array(
        [
            np.array(d["reward_gain_by_seed"]) - price * np.array(d["payment_rise_by_seed"][kind])
            for d in client["deviations"]
        ]
    )
    best = gains[gains.mean(axis=1).argmax()]

    def half_width(n):
        return stats.t.ppf(0.975, n - 1) * best.std(ddof=1) / np.sqrt(n)

    (sentence,) = [words for words in summary["verdict"] if words.startswith("Precision")]
    assert half_width(2) > client["tolerance"]
    needed = int(re.search(r"--judging-seeds (\d+)", sentence).group(1))
    assert half_width(needed) <= client["tolerance"] < half_width(needed - 1)
    assert sentence.startswith("Precision: on 2 seeds the gain of the best misreport is known to ±")


def test_a_runner_runs_the_app_as_the_record_does(audited):
    """The search runs apps without a record; the same behaviour gives the same numbers."""
    audit, _ = audited
    plan = audit.judgement.plan
    runner = AppRunner(plan)
    for recorded in load_runs(audit.folder)[-2:]:
        again = runner.run(recorded.run.seed, [recorded.run.behaviour(3)])
        assert_array_equal(again.evaluations[-1].loss[0], recorded.loss)
        assert_allclose(again.statistics.norms[0], recorded.statistics.norms, rtol=1e-6)


@pytest.mark.slow
def test_an_apps_best_policy_is_searched(tmp_path):
    audit = audit_app(CLINICS, 3, out=tmp_path / "audit", **{**SMALL, "search": "quick"})
    found = {one["price"]: one for one in audit.summary["search"]}
    assert set(found) == {"proposed", "constant", "none"}
    best = max(d["reward_gain"]["mean"] for d in audit.summary["clients"][0]["deviations"])
    assert found["none"]["gain"]["mean"] > 0.9 * best
    assert "A search of 80 runs" in audit.summary["verdict"][1]


def test_the_app_left_nothing_where_the_audit_was_started(audited):
    assert list(Path.cwd().iterdir()) == []


def test_the_same_command_again_computes_nothing(audited):
    audit, _ = audited
    ticks, before = [], (audit.folder / "runs.parquet").stat().st_mtime_ns
    again = audit_app(CLINICS, 3, out=audit.folder, progress=ticks.append, **SMALL)
    assert ticks == []
    assert again.summary["verdict"] == audit.summary["verdict"]
    assert (audit.folder / "runs.parquet").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="holds an audit of another plan; --again replaces it"):
        audit_app(CLINICS, 3, out=audit.folder, **{**SMALL, "probe": 0.2})


COMMAND = [
    *(
        sys.executable,
        "-c",
        "from verax.cli.main import main; main()",
        "audit",
        "--app",
        str(CLINICS),
        "--clients",
        "3",
    ),
    *("--setting-seeds", "1", "--choosing-seeds", "1", "--judging-seeds", "2"),
    *("--scales", "0.5,1,3"),
    *("--phases", "0.5,2,0.5", "--surges", "5", "--surge-rounds", "1", "--noises", ""),
    *("--deviating", "0", "--block-scales", "", "--absences", "", "--momenta", ""),
    *("--pushes", "", "--tilts", ""),
    *("--run-config", "num-server-rounds=4"),
]


@pytest.mark.slow
def test_killed_and_resumed_gives_the_same_record(audited, tmp_path):
    audit, _ = audited
    out = tmp_path / "killed"
    command = [*COMMAND, "--out", str(out), "--workers", "1"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    while len(list(out.glob("work/*.runs.arrow"))) < 5:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (out / "runs.parquet").exists()
    done = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=True, env=os.environ
    )
    assert json.loads(done.stdout)["verdict"] == audit.summary["verdict"]
    same_record(out, audit.folder)


@pytest.mark.slow
def test_on_ray_the_record_is_the_same(audited, tmp_path):
    audit, _ = audited
    out = tmp_path / "ray"
    command = [*COMMAND, "--out", str(out), "--on", "ray", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    same_record(out, audit.folder)
    assert list(Path.cwd().iterdir()) == [out]


def paired_clients():
    from clinics.client_app import evaluate, train

    app = ClientApp(mods=[paired])
    app.train()(train)
    app.evaluate()(evaluate)
    return app


def test_a_rehearsal_with_the_mod_is_the_audit(audited, clinics, tmp_path):
    """On a grid of Flower's own form, the rehearsal records the same numbers."""
    audit, _ = audited
    plan = Plan.of(**{**SMALL, "run_config": "", "clients": 3})
    app = rehearsal(clinics.server, plan, out=tmp_path / "rehearsal", name="clinics")
    config = {**clinics.run_config, "num-server-rounds": 4}
    grid = LocalGrid(paired_clients(), 3, config)
    app(grid, Context(1, 1, {}, RecordDict(), config))
    same_record(tmp_path / "rehearsal", audit.folder)
    found = json.loads((tmp_path / "rehearsal" / "audit.json").read_text())
    assert found["verdict"][:2] == [
        re.sub(r"client (\d)", r"client-\1", sentence) for sentence in audit.summary["verdict"][:2]
    ]


def test_a_member_that_drops_out_is_asked_again_then_reported(clinics, tmp_path):
    failures = []

    def unreliable(message, context, call_next):
        if context.node_config["partition-id"] == 1 and len(failures) < limit:
            failures.append(message)
            return error_reply(message)
        return call_next(message, context)

    from flwr.app import Error, Message

    def error_reply(message):
        return Message(Error(code=0, reason="the disk is full"), reply_to=message)

    from clinics.client_app import evaluate, train

    app = ClientApp(mods=[unreliable])
    app.train()(train)
    app.evaluate()(evaluate)
    plan = Plan.of(**{**SMALL, "run_config": "", "clients": 3})
    config = {**clinics.run_config, "num-server-rounds": 2}
    tried = rehearsal(clinics.server, plan, out=tmp_path / "r")
    limit = 10**9
    context = Context(1, 1, {}, RecordDict(), config)
    with pytest.raises(ValueError, match=r"member 1 failed in round 1 .*the disk is full, asked 3"):
        tried(LocalGrid(app, 3, config), context)
    limit = len(failures) + 2
    tried(LocalGrid(app, 3, config), context)
    assert (tmp_path / "r" / "report.html").exists()


def test_what_does_not_fit_an_app_is_refused():
    with pytest.raises(ValueError, match="--step is for simulated tasks"):
        app_plan(CLINICS, 3, step=0.1)
    with pytest.raises(ValueError, match="give --clients N"):
        app_plan(CLINICS)
    with pytest.raises(ValueError, match="changes a member's data"):
        app_plan(CLINICS, 3, reportings=("tests.own_parts:FlipLabels",))
    with pytest.raises(ValueError, match="members are 2 names, must be 3"):
        app_plan(CLINICS, 3, members="north,south")
    with pytest.raises(ValueError, match="holds no Flower app"):
        app_plan(CLINICS.parent, 3)
    with pytest.raises(ValueError, match="Key 'rounds' is not present"):
        look_at(app_plan(CLINICS, 3, run_config="rounds=3"))
    with pytest.raises(ValueError, match="known: eval_loss, accuracy, num-examples"):
        look_at(app_plan(CLINICS, 3, metric="f1"))


@pytest.mark.parametrize(
    ("line", "reproducible", "differ"),
    [
        ("rng = np.random.default_rng()", False, True),
        ("rng = np.random.default_rng(3)", True, False),
    ],
    ids=["own entropy", "own seed"],
)
def test_apps_that_draw_otherwise_are_named(tmp_path, line, reproducible, differ):
    """An app with its own entropy cannot be paired; one with its own seed has no replicas."""
    folder = tmp_path / "app"
    (folder / "clinics").mkdir(parents=True)
    for path in CLINICS.rglob("*"):
        if path.suffix in (".py", ".toml"):
            text = path.read_text()
            text = text.replace(
                "order = np.random.permutation", f"{line}\n    order = rng.permutation"
            )
            text = text.replace("np.random.randn(5)", "np.ones(5)")
            (folder / path.relative_to(CLINICS)).write_text(text)
    facts = look_at(app_plan(folder, 3, run_config="num-server-rounds=2"))
    assert (facts.reproducible, facts.replicas_differ) == (reproducible, differ)
    assert (facts.relative_error == 0.0) == reproducible


def test_a_budget_leaves_out_and_says_what(audited):
    facts = look_at(app_plan(CLINICS, 3))
    plan = app_plan(CLINICS, 3).changed(rounds=facts.rounds, metric=facts.metric)
    whole = predicted_seconds(plan, facts, 2)
    less, words = fitted(plan, facts, 2, whole / 2)
    assert predicted_seconds(less, facts, 2) <= whole / 2
    assert words[0] == "To fit the budget: 2 seeds set the price and 3 judge."
    assert fitted(plan, facts, 2, whole) == (plan, [])
    few = plan.changed(setting_seeds=1, choosing_seeds=1, judging_seeds=2)
    seconds = predicted_seconds(few, facts, 2)
    less, words = fitted(few, facts, 2, 0.9 * seconds)
    assert less.seeds == few.seeds  # what the user asked for is never raised
    assert words[0] == "To fit the budget: surges have the scales 0 and 5 alone."
    with pytest.raises(ValueError, match="the smallest audit of this app takes about"):
        fitted(plan, facts, 2, facts.run_seconds)


STRATEGIES = [
    *("FedProx", "FedMedian", "Krum", "FedAdam", "FedAvgM", "FedTrimmedAvg"),
    "DifferentialPrivacyServerSideFixedClipping",
]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_flowers_strategies_run_unchanged(clinics, strategy):
    from dataclasses import replace

    from tests.apps.test_run import NOTHING, norms_of, run_app
    from verax.game import Scale
    from verax.learning import Behaviour

    app = replace(clinics, run_config={**clinics.run_config, "strategy": strategy})
    runs = [run_app(app, 5, 0, NOTHING, Behaviour(Scale(3.0), who), 8) for who in ((), (2,))]
    first, tripled = (norms_of(run)[0] for run in runs)
    assert np.all(first > 0)
    np.testing.assert_allclose(tripled[2] / first[2], 9.0, rtol=1e-5)
    np.testing.assert_allclose(np.delete(tripled, 2), np.delete(first, 2), rtol=1e-9)
