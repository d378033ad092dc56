"""Reportings: JSON round-trip, readable words, and what the message is."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from verax.game import (
    Adaptive,
    Directional,
    Honest,
    Mixed,
    Noise,
    Scale,
    ScaleAndNoise,
    Timed,
    from_json,
    message,
)
from verax.game.reporting import History

number = st.floats(-10, 10)
size = st.floats(0, 10)
ALL = (
    st.builds(ScaleAndNoise, number, size)
    | st.builds(Timed, number, number, st.floats(0, 1))
    | st.builds(Adaptive, number, size, number, number, st.floats(-5, 1), st.floats(1, 9))
    | st.builds(Directional, number, st.floats(0, math.pi), size)
    | st.builds(lambda a, b: Mixed((1.0, a), (0.0, b), (0.25, 0.75)), number, size)
)


@given(ALL)
def test_json_round_trip(reporting):
    assert from_json(reporting.to_json()) == reporting


@given(ALL)
def test_words_say_whether_a_theorem_covers_it(reporting):
    assert ("no theorem" in str(reporting)) == (not reporting.covered)


@pytest.mark.parametrize(
    ("reporting", "words"),
    [
        (Honest(), "honest"),
        (Scale(3), "scale 3"),
        (Scale(0), "free-riding (a = 0) (no theorem covers this)"),
        (Scale(-1), "scale -1 (no theorem covers this)"),
        (Scale(0.5), "scale 0.5 (no theorem covers this)"),
        (Noise(2), "noise 2"),
        (ScaleAndNoise(2, 0.5), "scale 2 and noise 0.5"),
        (Mixed((1.0, 3.0), (0.0, 1.0), (0.25, 0.75)), "mixed: 25% honest, 75% scale 3 and noise 1"),
        (Timed(1, 5, 0.95), "scale 1, then 5 after 0.95 of the rounds"),
        (
            Adaptive(2, b=1, drift=1, feedback=0.5),
            "adaptive scale from 2, drift 1, feedback 0.5, within 1 … 10, noise 1",
        ),
        (Directional(2, math.pi / 4, b=1), "scale 2 turned by 45° and noise 1"),
        (Directional(1.1, math.pi / 4), "scale 1.1 turned by 45° (no theorem covers this)"),
    ],
)
def test_words(reporting, words):
    assert str(reporting) == words


def sent(reporting, update, rounds=10, seed=0):
    rng = np.random.default_rng(seed)
    levels = reporting.levels(rounds, rng)
    history = History()
    return np.array([message(levels, t, update, rng, history) for t in range(1, rounds + 1)])


def test_scaled_and_honest_messages():
    update = np.array([1.0, -2.0, 3.0])
    assert_allclose(sent(Honest(), update), [update] * 10)
    assert_allclose(sent(Scale(-3), update), [-3 * update] * 10)


def test_noise_has_unit_energy_over_the_whole_update():
    """E‖m − g‖² = b²; 4,000 draws of 50 numbers leave a relative error of 0.3 %."""
    update = np.zeros((5, 10))
    found = np.mean(np.sum(sent(Noise(3.0), update, rounds=4000) ** 2, axis=(1, 2)))
    assert found == pytest.approx(9.0, rel=0.02)


@pytest.mark.parametrize(("switch", "late"), [(0.0, 10), (0.5, 5), (0.9, 1), (1.0, 0), (0.46, 5)])
def test_timed_switches_at_its_share_of_the_rounds(switch, late):
    update = np.array([1.0])
    found = sent(Timed(0.5, 4.0, switch), update)[:, 0]
    assert_allclose(found, [0.5] * (10 - late) + [4.0] * late)


def test_mixed_draws_by_its_odds():
    """10,000 draws: a share of ¾ has a standard error of 0.4 %."""
    found = sent(Mixed((1.0, 3.0), (0.0, 0.0), (0.25, 0.75)), np.array([1.0]), rounds=10_000)
    assert np.mean(found == 3.0) == pytest.approx(0.75, abs=0.02)


def test_adaptive_follows_round_and_history():
    update = np.array([2.0])
    drifting = sent(Adaptive(1, drift=4, high=4), update, rounds=5)[:, 0] / 2
    assert_allclose(drifting, [1, 2, 3, 4, 4])
    rng = np.random.default_rng(0)
    levels = Adaptive(2, feedback=1.0, low=0.5).levels(3, rng)
    history = History()
    first = message(levels, 1, np.array([1.0]), rng, history)
    assert_allclose(first, 2)  # no history yet
    assert_allclose(message(levels, 2, np.array([math.e]), rng, history), 3 * math.e)
    assert_allclose(message(levels, 3, np.array([1e-9]), rng, history), 0.5e-9)  # the lower limit


def test_directional_keeps_length_and_angle():
    update = np.random.default_rng(1).standard_normal((4, 5))
    for m in sent(Directional(2.0, math.pi / 6), update):
        assert np.linalg.norm(m) == pytest.approx(2 * np.linalg.norm(update))
        cosine = np.vdot(m, update) / np.linalg.norm(m) / np.linalg.norm(update)
        assert cosine == pytest.approx(math.cos(math.pi / 6))
    assert_allclose(sent(Directional(2.0, 1.0), np.array([3.0])), 6.0)  # d = 1: a g
    assert_allclose(sent(Directional(2.0, 1.0), np.zeros(3)), 0.0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Noise(-1), "b is -1, must be ≥ 0"),
        (lambda: Scale(math.nan), "a is nan"),
        (lambda: Timed(1, 2, 1.5), "switch is 1.5, must be a share"),
        (lambda: Adaptive(1, low=3, high=2), "low 3 exceeds high 2"),
        (lambda: Directional(1, 4), "angle is 4"),
        (lambda: Mixed((), (), ()), "as many a as b"),
        (lambda: Mixed((1.0,), (0.0,), (0.5,)), "sum to 1, these sum to 0.5"),
        (lambda: from_json("{"), "not JSON"),
        (lambda: from_json("[]"), 'object with a "kind"'),
        (lambda: from_json('{"kind": "sneaky"}'), "kind is 'sneaky', must be one of"),
        (lambda: from_json('{"kind": "timed", "speed": 1}'), "timed: .*speed"),
    ],
)
def test_wrong_values(call, text):
    with pytest.raises(ValueError, match=text):
        call()
