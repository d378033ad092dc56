"""The paper's figures: their plans, and one of them run on LEAF-shaped data of a few users."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.command import verax
from tests.tasks import leaf_files
from tests.tasks.test_encoder import make_tokenizer, make_weights
from verax.audit import Plan
from verax.audit.plan.paper import FIGURES, PRESETS, plan_of

SHARED = Path(__file__).parents[3] / "shared" / "data"


def test_a_panel_for_each_of_the_papers():
    assert sum(figure.panels for figure in FIGURES.values()) == 18
    assert len(FIGURES) == 12


@pytest.mark.parametrize("name", FIGURES)
def test_the_papers_settings_are_as_printed(name):
    plan = plan_of(FIGURES[name], PRESETS["paper"], "leaf")
    task, protocol = plan.task, plan.protocol.make()
    assert plan.rounds == {"femnist": 10650, "shakespeare": 3550, "sent140": 3550}[task.name]
    assert protocol.batch == (16 if task.name == "shakespeare" else 32)
    assert (protocol.step, task.clients, plan.deviators, plan.seeds.judge) == (0.06, 3, (2,), 10)
    assert (protocol.kind, protocol.local_steps) == (
        ("fedavg", 3) if name.startswith("fedavg") else ("fedsgd", 1)
    )
    assert protocol.aggregator.name == ("median" if name.startswith("median") else "mean")
    noises = {(r["a"], r["b"]) for r in map(json.loads, plan.deviations.reportings)}
    assert {a for a, _ in noises} == ({1, 2, 3} if name.startswith("noise") else set())
    assert min(plan.deviations.scales) < 1 < max(plan.deviations.scales)


@pytest.fixture(scope="module")
def leaf(tmp_path_factory):
    """Twelve users with tweets, and an encoder."""
    folder = tmp_path_factory.mktemp("leaf")
    rng = np.random.default_rng(0)
    users = {}
    for k in range(12):
        moods = rng.integers(0, 2, 12)
        tweets = [["0", "", "", "", ("good day" if m else "bad night") + " so" * k] for m in moods]
        users[f"u{k}"] = (tweets, moods.tolist())
    for part in ("train", "test"):
        leaf_files.write(folder / "sent140", part, users)
    encoder = folder / "encoder"
    encoder.mkdir()
    from safetensors.numpy import save_file

    make_tokenizer(encoder)
    save_file(make_weights(rng), encoder / "model.safetensors")
    (encoder / "config.json").write_text('{"num_attention_heads": 2, "num_hidden_layers": 2}')
    return folder


def reproduce(leaf, out, *arguments):
    command = ["reproduce", *arguments, "--data", leaf, "--encoder", leaf / "encoder"]
    return verax([*command, "--out", out], out.parent)


@pytest.fixture(scope="module")
def drawn(leaf, tmp_path_factory):
    out = tmp_path_factory.mktemp("paper") / "out"
    done = reproduce(leaf, out, "noise-sent140", "--json", "--split", "by-similarity")
    assert done.returncode == 0, done.stderr
    return out, done


def test_numbers_are_those_of_the_record(drawn):
    out, done = drawn
    found = json.loads(done.stdout)["noise-sent140"]
    assert json.loads((out / "results.json").read_text())["noise-sent140"] == found
    rows = pq.read_table(out / "noise-sent140" / "runs.parquet").to_pylist()
    plan = Plan.from_toml((out / "noise-sent140" / "plan.toml").read_text())
    judging = set(plan.seeds.judging)
    honest = {
        r["seed"]: r["test_loss"][2] for r in rows if r["role"] == "honest" and r["seed"] in judging
    }

    def gain(role, a):
        losses = {
            r["seed"]: r["test_loss"][2]
            for r in rows
            if r["role"] == role
            and json.loads(r["reporting"]).get("a") == a
            and json.loads(r["reporting"]).get("b") == 0
        }
        return np.mean([honest[s] - losses[s] for s in honest])

    for scale in (*found["over"], *found["under"]):
        assert scale["gain"]["mean"] == pytest.approx(gain("deviation", scale["a"]))
        assert scale["faster_learning"]["mean"] == pytest.approx(gain("control", scale["a"]))
        assert scale["steering"]["mean"] == pytest.approx(
            gain("deviation", scale["a"]) - gain("control", scale["a"])
        )
    assert found["split"] == "by-similarity"
    assert {scale["a"] for scale in found["over"]} == {2, 3}


def test_every_panel_is_drawn_and_the_audit_is_whole(drawn):
    out, done = drawn
    folder = out / "noise-sent140"
    for name in ("panel-a1.png", "panel-a2.png", "panel-a3.svg", "report.html", "terms.toml"):
        assert (folder / name).stat().st_size > 500
    assert "run-rounds" not in done.stdout
    assert "min and" in done.stderr  # how long it takes was said before
    words = dict(json.loads((out / "results.json").read_text())["noise-sent140"]["similarity"])
    assert "total variation" in words["label shares differ by"]
    assert "ζ" in words["clients compared after 0 rounds"]


@pytest.mark.slow
def test_a_second_time_nothing_is_computed(leaf, drawn):
    out, first = drawn
    record = out / "noise-sent140" / "runs.parquet"
    before = record.stat().st_mtime_ns
    again = reproduce(leaf, out, "noise-sent140", "--json", "--split", "by-similarity")
    assert again.stdout == first.stdout
    assert record.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fig-1"], "'fig-1' is no figure"),
        (["all", "--preset", "huge"], "preset is 'huge'"),
        (["fedsgd-femnist"], "holds no .json file"),
    ],
)
def test_wrong_values_are_one_line(leaf, tmp_path, arguments, words):
    done = reproduce(leaf, tmp_path / "out", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "users", "samples"),
    [("femnist", 120, 9600), ("shakespeare", 240, 23039), ("sent140", 5865, 6528)],
)
def test_inspect_real_data(name, users, samples, tmp_path):
    if not (SHARED / name).exists():
        pytest.skip(f"no real data: bring LEAF's {name} to {SHARED.name}/{name} beside the project")
    done = verax(["data", "inspect", SHARED / name, "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["users"], facts["training_samples"]) == (users, samples)
    assert (tmp_path / facts["figure"]).stat().st_size > 5000
