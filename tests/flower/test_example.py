"""The example app in one process, and beside the simulator: the same batches, the same payments."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flwr.app import Context, RecordDict

from verax.game import Scale
from verax.learning import Behaviour, Protocol, Seeds, Simulator
from verax.mechanism import Statistics, Terms, charge
from verax.verifier import verify

from .grid import LocalGrid, nodes

APP = Path(__file__).parents[2] / "examples" / "flower-digits"
ROUNDS = 8


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(APP))
    import flower_digits.client_app
    import flower_digits.server_app

    yield flower_digits
    for name in [name for name in sys.modules if name.startswith("flower_digits")]:
        del sys.modules[name]


def config(tmp_path, **changes):
    import tomllib

    whole = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    given = {name.replace("_", "-"): value for name, value in changes.items()}
    assert given.keys() <= whole.keys()
    return whole | {"book": str(tmp_path / "book.db"), "patience": 1.0} | given


def run_app(example, settings, infos=None):
    contexts = [
        Context(7, 11 + i, {"partition-id": i, "num-partitions": 3}, RecordDict(), settings)
        for i in range(3)
    ]
    app = example.client_app.app
    grid = LocalGrid(infos or nodes(3), lambda i, request: app(request, contexts[i]))
    example.server_app.app(grid, Context(7, 1, {}, RecordDict(), settings))


@pytest.fixture
def double():
    """Payments are differences of norms: in float32 they would lose the digits compared here."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.slow), 3.0])
def test_simulator_and_flower_give_the_same_payments(double, example, scale, book, tmp_path):
    settings = config(
        tmp_path, num_server_rounds=ROUNDS, evaluate=False, misreport_scale=scale, local_steps=2
    )
    run_app(example, settings)
    task = example.task.load("mlp", 3)
    simulator = Simulator(task, Protocol("fedavg", 0.06, 32, 2), ROUNDS)
    norms = simulator.run(Seeds.of(0), [Behaviour(Scale(scale), (0,))]).norms[0]
    agreed = Terms.load(APP / "terms.toml")
    labels = {account.number: account.label for account in book.members("digits")}
    paid, booked = np.zeros(3), np.zeros(3)
    for content in (record.content for record in book.records("digits")):
        if content["kind"] == "round":
            t = content["round"]
            wanted = charge(agreed, t, Statistics(norms[t - 1]), ["ok"] * 3).amounts
            found = dict(
                zip((labels[n] for n in content["accounts"]), content["payments"], strict=True)
            )
            here = np.array([found[f"client-{i}"] for i in range(3)])
            np.testing.assert_allclose(here, wanted, rtol=1e-6)
            paid, booked = paid + wanted, booked + here
    assert len(book.rounds("digits")) == ROUNDS
    np.testing.assert_allclose(booked, paid, rtol=1e-6)


@pytest.mark.slow
def test_the_members_learn(example, book, tmp_path, caplog):
    run_app(example, config(tmp_path, num_server_rounds=20, step=0.3))
    found = re.findall(r"Aggregated MetricRecord: {'loss': .*'accuracy': ([0-9.]+)", caplog.text)
    assert len(found) == 20
    assert float(found[0]) < 0.6 < 0.7 < float(found[-1])


def test_in_one_process_by_the_command_of_the_readme(tmp_path):
    command = [sys.executable, APP / "in_process.py", tmp_path / "book.db"]
    done = subprocess.run(
        [*command, "num-server-rounds=1", "misreport-scale=3.0", "evaluate=false"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "client-0: squared norm 0.0576844; pays 0.052242 EUR" in done.stdout + done.stderr
    assert verify(tmp_path / "book.db").ok
    wrong = subprocess.run([*command, "rounds=1"], capture_output=True, text=True, check=False)
    assert "'rounds' is not in [tool.flwr.app.config]" in wrong.stderr


def test_settings_in_the_readme_exist(tmp_path):
    blocks = re.findall(r"```console\n(.*?)```", (APP / "README.md").read_text(), re.S)
    used = set(re.findall(r" ([a-z-]+)=", " ".join(blocks)))
    assert {"num-server-rounds", "misreport-scale", "record-updates"} <= used
    assert used <= config(tmp_path).keys()
