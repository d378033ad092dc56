"""`verax bounds` and `verax example` as a user runs them: real processes, exit codes, one line."""

import json
import math

import pytest

from tests.command import verax

BOUNDS = (
    "bounds --clients 3 --step 0.06 --strong-convexity 0.1 --smoothness 1 --lipschitz 1 "
    "--epsilon 0.1 --rounds"
)


@pytest.mark.parametrize(("rounds", "log10"), [(10650, 1582.26), (100, 13.65)])
def test_printed_prices(rounds, log10):
    result = json.loads(verax(f"{BOUNDS} {rounds} --json").stdout)
    paper = result["schedules"]["paper"]
    assert paper["log10_first"] == pytest.approx(log10 - math.log10(0.3), abs=0.005)
    assert paper["overflow"] == (rounds == 10650)
    assert (paper["first"] is None) == paper["overflow"]
    assert result["schedules"]["sharp"]["available"] is False
    assert "L_q" in result["schedules"]["repaired"]["reason"]
    assert result["guarantees"]["truthfulness_printed"]["vacuous"]


def test_table_says_in_words_what_is_vacuous_wrong_or_missing():
    full = verax(
        f"{BOUNDS} 3000 --payment-lipschitz 0.01 --gradient-bound 1 --initial-gap 2 --zeta 0.5"
    )
    words = " ".join(full.stdout.replace("│", " ").split())
    assert full.returncode == 0
    assert "vacuous" in words
    assert "lacks a factor 1/ε" in words
    assert "do not fit a float64" in words
    assert "ε = 0.1 is above" in words
    short = " ".join(verax(f"{BOUNDS} 10").stdout.replace("│", " ").split())
    assert "needs --gradient-bound" in short
    assert "needs --initial-gap" in short


def test_json_with_everything_given():
    result = json.loads(
        verax(f"{BOUNDS} 50 --payment-lipschitz 0 --gradient-bound 1 --initial-gap 2 --json").stdout
    )
    assert all(row["available"] for row in result["schedules"].values())
    assert all(row["available"] for row in result["guarantees"].values())
    sharp, repaired = result["schedules"]["sharp"], result["schedules"]["repaired"]
    assert sharp["first"] == pytest.approx(repaired["first"])
    assert result["stable_epsilon"] == 0.0
    assert result["guarantees"]["truthfulness_repaired"]["valid"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"{BOUNDS} 5 --clients 1", "clients is 1, must be ≥ 2"),
        (f"{BOUNDS} 5 --epsilon 0", "epsilon is 0"),
        (f"{BOUNDS} 5 --epsilon -1", "epsilon is -1"),
        (f"{BOUNDS} 5 --strong-convexity 2", "strong convexity 2 exceeds smoothness 1"),
        (f"{BOUNDS} 5 --step 0", "step is 0"),
        (f"{BOUNDS} 0", "rounds is 0"),
        (f"{BOUNDS} 5 --colour red", "No such option"),
        ("bounds", "Missing option"),
        ("bound", "No such command 'bound'"),
        ("example five-clients", "No such command 'five-clients'"),
        ("example four-clients --scale nan", "scale is nan"),
        ("example mean-estimation --clients 1", "clients is 1"),
        ("example four-clients --out /proc/none/here", "/proc/none"),
    ],
)
def test_wrong_values_are_one_line_and_exit_2(command, message):
    result = verax(command)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_four_clients(tmp_path):
    result = verax("example four-clients --json", cwd=tmp_path)
    found = json.loads(result.stdout)
    assert found["optimum"] == {"truthful": pytest.approx(1.25), "scaled": pytest.approx(15 / 16)}
    assert found["payments_per_round"]["truthful"][2] == pytest.approx(52 / 3)
    for name in ("four-clients.png", "four-clients.svg"):
        assert (tmp_path / "verax-example" / name).stat().st_size > 10_000
    words = verax("example four-clients", cwd=tmp_path).stdout
    assert "from 1.2500 to" in words
    assert "client 3 is hurt" in words


def test_mean_estimation(tmp_path):
    found = json.loads(verax("example mean-estimation --json", cwd=tmp_path).stdout)
    assert found["one_round"]["best_scale"] == pytest.approx(4.4)
    assert found["all_scale"]["printed_truthful_error"] > found["all_scale"]["truthful_error"]
    assert "c* = 4.4" in verax("example mean-estimation --out pictures", cwd=tmp_path).stdout
    assert (tmp_path / "pictures" / "mean-estimation.svg").exists()


def test_help_and_version():
    assert "bounds" in verax("--help").stdout
    assert verax("--version").stdout.startswith("verax 0.")
    bare = verax("")
    assert "Commands" in bare.stdout
    assert bare.stderr == ""
