"""Reportings: text round-trip, readable words, and what the message is."""

import math
from dataclasses import dataclass

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
    Reporting,
    Scale,
    ScaleAndNoise,
    Sender,
    Stretch,
    Timed,
    reporting_of,
)

number = st.floats(-10, 10)
size = st.floats(0, 10)
whole = st.integers(1, 9)
ALL = (
    st.builds(ScaleAndNoise, number, size)
    | st.builds(Timed, number, number, st.floats(0, 1))
    | st.builds(
        lambda a, first, more: Stretch(a, first, first + more), number, *[st.integers(1, 9)] * 2
    )
    | st.builds(Adaptive, number, size, number, number, st.floats(-5, 1), st.floats(1, 9))
    | st.builds(Directional, number, st.floats(0, math.pi), size)
    | st.builds(lambda a, b: Mixed((1.0, a), (0.0, b), (0.25, 0.75)), number, size)
)


@given(ALL)
def test_text_round_trip(reporting):
    assert reporting_of(reporting.text) == reporting


@given(ALL, st.integers(1, 30))
def test_honest_rounds_are_honest(reporting, rounds):
    honest = reporting.honest_rounds(rounds)
    assert 0 <= honest <= rounds
    assert_allclose(reporting.scales(rounds)[:honest], 1)


@dataclass(frozen=True)
class OwnMomentum(Reporting):
    """A moving average of the client's own updates, started at the first one."""

    memory: float = 0.5

    def start(self, update):
        return [0 * layer for layer in update]

    def message(self, update, seen):
        keep = 0.0 if seen.round == 1 else self.memory
        average = [keep * v + (1 - keep) * g for v, g in zip(seen.memory, update, strict=True)]
        return average, average


def test_a_reporting_of_ones_own_is_named_by_its_module():
    assert OwnMomentum().text == f"{__name__}:OwnMomentum"
    assert reporting_of(OwnMomentum().text) == OwnMomentum()
    assert OwnMomentum().describe(10) == "OwnMomentum (memory 0.5)"
    with pytest.raises(ValueError, match="cannot be found again by name"):
        str(OwnMomentum(0.7).text)


def test_a_reporting_may_remember_what_it_sent():
    found = sent(OwnMomentum(), [np.array([1.0]), np.array([2.0]), np.array([4.0])])
    assert_allclose(found[:, 0], [1, 1.5, 2.75])


@pytest.mark.parametrize(
    ("reporting", "words", "covered"),
    [
        (Honest(), "honest", True),
        (Scale(3), "scale 3", True),
        (Scale(0), "free-riding (a = 0)", False),
        (Scale(-1), "scale -1", False),
        (Scale(0.5), "scale 0.5", False),
        (Noise(2), "noise 2", True),
        (ScaleAndNoise(2, 0.5), "scale 2 and noise 0.5", True),
        (
            Mixed((1.0, 3.0), (0.0, 1.0), (0.25, 0.75)),
            "mixed: 25% honest, 75% scale 3 and noise 1",
            True,
        ),
        (Timed(1, 5, 0.95), "scale 1, then 5 in the last 5 rounds", True),
        (Stretch(5, 100, 100), "scale 5 in the last round", True),
        (Stretch(5, 91, 100), "scale 5 in the last 10 rounds", True),
        (Stretch(-3, 1, 50), "scale -3 in rounds 1 to 50", False),
        (
            Adaptive(2, b=1, drift=1, feedback=0.5),
            "adaptive scale from 2, drift 1, feedback 0.5, within 1 … 10, noise 1",
            True,
        ),
        (Directional(2, math.pi / 4, b=1), "scale 2 turned by 45° and noise 1", True),
        (Directional(1.1, math.pi / 4), "scale 1.1 turned by 45°", False),
    ],
)
def test_words_and_whether_a_theorem_covers_it(reporting, words, covered):
    assert reporting.describe(100) == words
    assert reporting.covered == covered


def sent(reporting, updates, seed=0):
    """The messages of a client whose model is one array."""
    sender, memory, messages = Sender(reporting, len(updates), seed), None, []
    for t, update in enumerate(updates):
        (message,), memory = sender.send(t + 1, [update], memory)
        messages.append(message)
    return np.array(messages)


def test_scaled_and_honest_messages():
    updates = [np.array([1.0, -2.0, 3.0])] * 4
    assert_allclose(sent(Honest(), updates), updates)
    assert_allclose(sent(Scale(-3), updates), -3 * np.array(updates))
    assert_allclose(sent(Stretch(5, 2, 3), updates)[:, 0], [1, 5, 5, 1])


def test_noise_has_unit_energy_over_the_whole_update():
    """E‖m − g‖² = b²; 4,000 draws of 50 numbers leave a relative error of 0.3 %."""
    noise = sent(Noise(3.0), [np.zeros((5, 10))] * 4000)
    assert np.mean(np.sum(noise**2, axis=(1, 2))) == pytest.approx(9.0, rel=0.02)


@pytest.mark.parametrize(("switch", "late"), [(0.0, 10), (0.5, 5), (0.9, 1), (1.0, 0), (0.46, 5)])
def test_timed_switches_at_its_share_of_the_rounds(switch, late):
    messages = sent(Timed(0.5, 4.0, switch), [np.array([1.0])] * 10)[:, 0]
    assert_allclose(messages, [0.5] * (10 - late) + [4.0] * late)


def test_mixed_draws_by_its_odds():
    """10,000 draws: a share of ¾ has a standard error of 0.4 %."""
    messages = sent(Mixed((1.0, 3.0), (0.0, 0.0), (0.25, 0.75)), [np.array([1.0])] * 10_000)
    assert np.mean(messages == 3.0) == pytest.approx(0.75, abs=0.02)


def test_adaptive_follows_round_and_history():
    drifting = sent(Adaptive(1, drift=4, high=4), [np.array([2.0])] * 5)[:, 0] / 2
    assert_allclose(drifting, [1, 2, 3, 4, 4])
    updates = [np.array([1.0]), np.array([math.e]), np.array([1e-9])]
    messages = sent(Adaptive(2, feedback=1.0, low=0.5), updates)[:, 0]
    assert_allclose(messages, [2, 3 * math.e, 0.5e-9])  # no history, ratio e, the lower limit


def test_directional_keeps_length_and_angle():
    update = np.random.default_rng(1).standard_normal((4, 5))
    for m in sent(Directional(2.0, math.pi / 6), [update] * 10):
        assert np.linalg.norm(m) == pytest.approx(2 * np.linalg.norm(update))
        cosine = np.vdot(m, update) / np.linalg.norm(m) / np.linalg.norm(update)
        assert cosine == pytest.approx(math.cos(math.pi / 6))
    assert_allclose(sent(Directional(2.0, 1.0), [np.array([3.0])]), 6.0)  # d = 1: a g
    assert_allclose(sent(Directional(2.0, 1.0), [np.zeros(3)]), 0.0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Noise(-1), "b is -1, must be ≥ 0"),
        (lambda: Scale(math.nan), "a is nan"),
        (lambda: Timed(1, 2, 1.5), "switch is 1.5, must be a share"),
        (lambda: Stretch(2, 5, 4), "rounds 5 … 4 are not a stretch"),
        (lambda: Adaptive(1, low=3, high=2), "low 3 exceeds high 2"),
        (lambda: Directional(1, 4), "angle is 4"),
        (lambda: Mixed((), (), ()), "as many a as b"),
        (lambda: Mixed((1.0,), (0.0,), (0.5,)), "sum to 1, these sum to 0.5"),
        (lambda: Sender(Honest(), 3, 0).send(4, [np.ones(1)]), "round 4 is outside 1 … 3"),
        (lambda: reporting_of("{"), "a JSON object or module:name"),
        (lambda: reporting_of("[]"), 'object with a "kind"'),
        (lambda: reporting_of('{"kind": "sneaky"}'), "kind is 'sneaky', must be one of"),
        (lambda: reporting_of('{"kind": "timed", "speed": 1}'), "timed: .*speed"),
        (lambda: reporting_of("no.such:thing"), "cannot be imported"),
        (lambda: reporting_of("math:nothing"), "math has no nothing"),
        (lambda: reporting_of("math:pi"), "has no .message."),
    ],
)
def test_wrong_values(call, text):
    with pytest.raises(ValueError, match=text):
        call()
