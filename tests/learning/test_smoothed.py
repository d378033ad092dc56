"""The smoothed norm: recorded averages, balance, restarts, and the influence of averages."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from verax.game import Absent, Quadratics, Scale, Stretch
from verax.learning import Behaviour, Protocol, Seeds, Simulator
from verax.mechanism import pay
from verax.mechanism.smoothed_norm import SmoothedNorm, influence_of_averages, shrinking_memory
from verax.tasks import digits, quadratics

ROUNDS = 12


@pytest.fixture(scope="module")
def simulated():
    simulator = Simulator(digits(model="softmax"), Protocol(step=0.3), ROUNDS, 5, smoothed=True)
    runs = [Behaviour(), Behaviour(Scale(3.0), (1,)), Behaviour(Stretch(0.0, 4, 6), (2,))]
    return simulator, runs, simulator.run(Seeds.of(3), runs)


def test_the_memory_shrinks_toward_the_end():
    memory = shrinking_memory(100)
    assert_allclose(memory[[0, 59, 60, 93, 99]], 1 - 1 / np.array([20, 20, 20, 3.5, 3]))
    assert np.all(np.diff(memory) <= 0)


def test_averages_are_those_of_the_messages_on_a_quadratic():
    """One dimension, by hand: θ moves by the mean gradient, v averages what each client sends."""
    optima = np.array([0.0, 1.0, 4.0])
    task = quadratics(Quadratics.of([1.0, 1.0, 1.0], optima), [2.0])
    behaviour = Behaviour(Absent(((3, 4),)), (2,))
    found = Simulator(task, Protocol(step=0.1), ROUNDS, smoothed=True).run(Seeds.of(0), [behaviour])
    model, averages = 2.0, np.zeros(3)
    for t, beta in enumerate(shrinking_memory(ROUNDS)):
        present = np.array([True, True, t not in (2, 3)])
        gradients = model - optima
        averages = np.where(present, beta * averages + (1 - beta) * gradients, averages)
        expected = np.where(present, averages**2, 0.0)
        assert_allclose(found.statistics.smoothed[0, t], expected, rtol=1e-4)
        model -= 0.1 * gradients[present].mean()


def test_a_run_that_goes_on_from_a_state_gives_the_same_averages(simulated):
    simulator, runs, whole = simulated
    half = simulator.run(Seeds.of(3), runs, until=5)
    rest = simulator.run(Seeds.of(3), runs, half.state)
    joined = np.concatenate([half.statistics.smoothed, rest.statistics.smoothed], axis=1)
    assert_array_equal(joined, whole.statistics.smoothed)


def test_payments_balance_and_follow_the_clients(simulated):
    _, _, outcome = simulated
    measured = outcome.statistics._replace(gram=None)
    paid = pay(SmoothedNorm(), measured, 2.0).amounts
    assert_allclose(paid.sum(axis=-1), 0.0, atol=1e-9 * np.abs(paid).max())
    order = [2, 0, 1]
    turned = measured._replace(smoothed=measured.smoothed[..., order])
    assert_allclose(pay(SmoothedNorm(), turned, 2.0).amounts, paid[..., order], rtol=1e-12)


def test_the_influence_of_averages_is_that_of_the_messages_they_stand_for():
    """On quadratics the reward's gradient with respect to v_t, by finite differences through v."""
    rng = np.random.default_rng(0)
    game = Quadratics.of([1.0, 0.5, 2.0], [0.0, 1.0, 4.0])
    T, step, start = 8, np.full(8, 0.3), np.array([2.0])
    memory = shrinking_memory(T)
    messages = game.run(start, step).messages[:, 1, 0]

    def averages_of(sent):
        averages, last = [], 0.0
        for m, beta in zip(sent, memory, strict=True):
            averages.append(last := beta * last + (1 - beta) * m)
        return np.array(averages)

    def messages_of(averages):
        before = np.append(0.0, averages[:-1])
        return (averages - memory * before) / (1 - memory)

    def reward(sent):
        """−F_1 of the final model if client 1 sends these numbers and the others are honest."""
        model, optima, curvature = start[0], np.array([0.0, 1.0, 4.0]), np.array([1.0, 0.5, 2.0])
        for t in range(T):
            gradients = curvature * (model - optima)
            gradients[1] = sent[t]
            model -= step[t] * gradients.mean()
        return -0.5 * curvature[1] * (model - optima[1]) ** 2

    def gradient(function, at, h=1e-5):
        return np.array(
            [(function(at + h * e) - function(at - h * e)) / (2 * h) for e in np.eye(T)]
        )

    by_message = gradient(reward, messages)
    by_average = gradient(lambda v: reward(messages_of(v)), averages_of(messages))
    assert_allclose(messages_of(averages_of(messages)), messages, rtol=1e-10)
    assert_allclose(influence_of_averages(by_message, memory), by_average, rtol=1e-5, atol=1e-9)
    other = rng.standard_normal(T)
    assert np.abs(influence_of_averages(other, memory) - other).max() > 0.1
