"""Trackers get the numbers that are in the book, and cannot end a run."""

import logging
import math

import numpy as np
import pytest

from verax.flower import MLflowTracker, TensorBoardTracker, WandbTracker
from verax.flower.trackers import Trackers

from .conftest import jumping
from .grid import But, numpy_of, reply_to
from .test_import import python


class Memory:
    """Keeps what it is given."""

    def __init__(self):
        self.rounds = {}

    def log(self, round_, values):
        self.rounds[round_] = values


class Broken:
    """Fails in every round."""

    def __init__(self):
        self.calls = 0

    def log(self, round_, values):
        self.calls += 1
        raise OSError("no space left")


def broken_reply(request, after):
    """An update with one entry that is not a number."""
    after = numpy_of(request.content["arrays"])
    after["layer.bias"] = after["layer.bias"] * math.nan
    return reply_to(request, after)


def balance(ran, label):
    (account,) = [a for a in ran.book.members("federation") if a.label == label]
    return ran.book.balances("federation")[account.member] / 10**ran.paid.terms.scale


def test_a_tracker_gets_what_is_in_the_book(run):
    memory = Memory()
    ran = run(rounds=2, trackers=[memory])
    assert list(memory.rounds) == [1, 2]
    unit = 10**ran.paid.terms.scale
    for round_, values in memory.rounds.items():
        amounts = ran.column("amounts", round_)
        assert {label: values[f"verax/{label}/payment"] for label in amounts} == {
            label: amount / unit for label, amount in amounts.items()
        }
        norms = {label: values[f"verax/{label}/squared_norm"] for label in amounts}
        metrics = ran.result.train_metrics_clientapp[round_]
        assert norms == {label: metrics[f"verax.norm.{label}"] for label in amounts}
        assert values["verax/ok"] == 3
    for label in ran.labels().values():
        assert memory.rounds[2][f"verax/{label}/balance"] == balance(ran, label)


def test_members_that_did_not_count_are_counted_by_status(run):
    memory = Memory()
    run(But(1, broken_reply), trackers=[memory])
    values = memory.rounds[1]
    totals = {name: values[f"verax/{name}"] for name in ("ok", "missing", "rejected", "error")}
    assert totals == {"ok": 2, "missing": 0, "rejected": 1, "error": 0}
    assert "verax/client-1/squared_norm" not in values
    assert "verax/client-1/payment" in values


def test_a_silent_member_is_missing(run):
    memory = Memory()
    run(But(2, lambda request, after: None), trackers=[memory])
    assert memory.rounds[1]["verax/missing"] == 1
    assert memory.rounds[1]["verax/ok"] == 2


def test_an_alarm_is_counted(run):
    memory = Memory()
    run(But(1, jumping), rounds=8, trackers=[memory])
    assert [values["verax/alarms"] for values in memory.rounds.values()] == [0] * 7 + [1]


def test_a_tracker_that_fails_is_named_once_and_ends_nothing(run, caplog):
    broken, memory = Broken(), Memory()
    with caplog.at_level(logging.WARNING, logger="flwr.verax"):
        run(rounds=3, trackers=[broken, memory])
    warnings = [r.getMessage() for r in caplog.records if "could not log" in r.getMessage()]
    (warning,) = warnings
    assert "Broken could not log round 1: OSError: no space left" in warning
    assert broken.calls == 3  # it may work again
    assert list(memory.rounds) == [1, 2, 3]


def test_a_tracker_cannot_change_what_the_next_one_gets():
    class Greedy:
        def log(self, round_, values):
            values.clear()

    memory = Memory()
    Trackers([Greedy(), memory]).log(1, {"verax/ok": 3.0})
    assert memory.rounds == {1: {"verax/ok": 3.0}}


@pytest.mark.parametrize(
    ("made", "package"),
    [
        ("MLflowTracker()", "mlflow"),
        ("TensorBoardTracker('events')", "tensorboard"),
        ("WandbTracker()", "wandb"),
    ],
)
def test_a_missing_library_is_named_with_the_command_that_brings_it(made, package):
    done = python(f"from verax.flower.trackers import *; {made}", [package])
    assert done.returncode == 1
    name = made.partition("(")[0]
    expected = f"{name} needs {package}, which is not installed: pip install {package}"
    assert f"ImportError: {expected}" in done.stderr


def test_no_library_is_imported_before_a_tracker_is_made():
    done = python(
        "from verax.flower import *; import sys; "
        "print({'mlflow', 'tensorboard', 'wandb'} & sys.modules.keys())"
    )
    assert done.stdout == "set()\n", done.stderr


def test_tensorboard_reads_back_every_round(run, tmp_path):
    pytest.importorskip("tensorboard", reason="no tensorboard: pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    memory = Memory()
    run(rounds=2, trackers=[TensorBoardTracker(tmp_path / "events"), memory])
    reader = EventAccumulator(str(tmp_path / "events"))
    reader.Reload()
    assert set(reader.Tags()["tensors"]) == set(memory.rounds[1])
    for name in memory.rounds[1]:
        assert reader.SummaryMetadata(name).plugin_data.plugin_name == "scalars"
        events = {event.step: make_ndarray(event.tensor_proto) for event in reader.Tensors(name)}
        assert events == {t: np.float32(memory.rounds[t][name]) for t in (1, 2)}


def mlflow_store(folder, monkeypatch):
    """MLflow with its file store in a folder."""
    mlflow = pytest.importorskip("mlflow", reason="no MLflow: pip install mlflow-skinny")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for it
    monkeypatch.setenv("MLFLOW_TRACKING_URI", folder.as_uri())
    return mlflow


@pytest.mark.filterwarnings("default")  # MLflow's own deprecations are not ours
def test_mlflow_reads_back_every_round(run, tmp_path, monkeypatch):
    mlflow = mlflow_store(tmp_path / "mlruns", monkeypatch)
    memory = Memory()
    with mlflow.start_run() as active:
        run(rounds=2, trackers=[MLflowTracker(), memory])
    client = mlflow.MlflowClient()
    assert set(client.get_run(active.info.run_id).data.metrics) == set(memory.rounds[1])
    for name in memory.rounds[1]:
        history = client.get_metric_history(active.info.run_id, name)
        assert {m.step: m.value for m in history} == {t: memory.rounds[t][name] for t in (1, 2)}


@pytest.mark.filterwarnings("default")
def test_mlflow_gets_names_that_it_accepts(tmp_path, monkeypatch):
    mlflow = mlflow_store(tmp_path / "mlruns", monkeypatch)
    with mlflow.start_run() as active:
        run_id = active.info.run_id
    MLflowTracker(run_id).log(1, {"verax/SHA256:a+b=/payment": 1.0, "verax/Süd 1/payment": 2.0})
    metrics = mlflow.MlflowClient().get_run(run_id).data.metrics
    assert metrics == {"verax/SHA256_a_b_/payment": 1.0, "verax/Süd 1/payment": 2.0}


@pytest.mark.filterwarnings("default")
def test_wandb_keeps_every_round_offline(run, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="no Weights & Biases: pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    memory = Memory()
    tracker = WandbTracker()
    run(rounds=2, trackers=[tracker, memory])
    summary = dict(wandb.run.summary)
    wandb.finish()
    assert {name: summary[name] for name in memory.rounds[2]} == memory.rounds[2]
    assert summary["verax/round"] == 2
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
