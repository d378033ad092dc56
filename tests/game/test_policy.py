"""Policies that use a client's past, the last aggregate or more data, against formulas by hand."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.game import LargerBatch, Policy, Quadratics, Sender, reporting_of
from verax.learning import Behaviour, Protocol, Seeds, Simulator
from verax.tasks import digits, quadratics

POLICY = Policy(
    scale=(2.0, -1.0, 0.5),
    starts=(1, 4, 9),
    memory=0.7,
    own=(0.5, 1.5),
    aggregate=(-0.3, 0.0, 0.4),
    layers=(1.0, 0.25),
)


def by_hand(updates, moves, rounds):
    """The policy above, written out; updates and moves are lists of two arrays each."""
    average, weight, sent = [0.0, 0.0], 0.0, []
    for t, (update, move) in enumerate(zip(updates, moves, strict=True)):
        scale = 2.0 if t < 3 else -1.0 if t < 8 else 0.5
        own = 0.5 if t < rounds / 2 else 1.5
        push = (-0.3, 0.0, 0.4)[3 * t // rounds]
        average = [0.7 * v + 0.3 * g for v, g in zip(average, update, strict=True)]
        weight = 0.7 * weight + 0.3
        length = np.sqrt(sum(np.sum(g**2) for g in update))
        last = np.sqrt(sum(np.sum(m**2) for m in move))
        toward = push * length / last if last else 0.0
        message = [
            scale * (g + own * (v / weight - g) + toward * m)
            for g, v, m in zip(update, average, move, strict=True)
        ]
        sent.append([message[0], 0.25 * message[1]])
    return sent


def test_messages_are_as_the_formula_says():
    rng, T = np.random.default_rng(0), 12
    updates = [[rng.standard_normal(3), rng.standard_normal((2, 2))] for _ in range(T)]
    moves = [[rng.standard_normal(3), rng.standard_normal((2, 2))] for _ in range(T)]
    moves[0] = [np.zeros(3), np.zeros((2, 2))]
    sender, memory = Sender(POLICY, T, 0), None
    for t, expected in enumerate(by_hand(updates, moves, T)):
        message, memory = sender.send(t + 1, updates[t], memory, moves[t])
        for one, other in zip(message, expected, strict=True):
            assert_allclose(one, other)


def test_the_compiled_policy_is_the_same():
    """On quadratics, whose model is one array."""
    exact = Quadratics.of([1.0, 2.0, 0.5], np.random.default_rng(1).standard_normal((3, 4)))
    T, step, theta = 12, 0.3, exact.optimum() + 2.0
    policy = Policy((2.0, 0.5), memory=0.7, own=(0.5,), aggregate=(-0.3,))
    found = Simulator(quadratics(exact, theta), Protocol(step=step), T).run(
        Seeds.of(0), [Behaviour(policy, (1,))]
    )
    sender, memory, moved = Sender(policy, T, 0), None, np.zeros_like(theta)
    for t in range(T):
        m = exact.gradients(theta)
        (m[1],), memory = sender.send(t + 1, [m[1]], memory, [moved])
        assert_allclose(found.norms[0, t], np.sum(m**2, axis=1), rtol=1e-3)
        moved = step * m.mean(axis=0)
        theta = theta - moved


def test_policies_share_a_program_and_scaled_batches_do():
    assert Policy((2.0,)).program == POLICY.program
    assert LargerBatch(4, 2.0).program == LargerBatch(4).program != LargerBatch(0).program
    for reporting in (POLICY, LargerBatch(0, 1.5)):
        assert reporting_of(reporting.text) == reporting


def test_a_full_batch_sends_the_whole_gradient():
    """The norm of its message is that of the gradient on all its samples, computed apart."""
    task = digits(3, "softmax")
    simulator = Simulator(task, Protocol(step=0.3), 1)
    runs = [Behaviour(LargerBatch(0, a), (1,)) for a in (1.0, 2.0)]
    found = simulator.run(Seeds.of(5), runs).norms[:, 0, 1]
    start = jax.tree.map(lambda leaf: leaf[0], simulator.start(Seeds.of(5)).params)
    gradient = jax.tree.leaves(jax.grad(task.loss)(start, task.train[1]))
    whole = sum(float(np.sum(np.asarray(part, float) ** 2)) for part in gradient)
    assert_allclose(found, [whole, 4 * whole], rtol=1e-4)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Policy(), "honest"),
        (Policy((1.5,), memory=0.9, own=(1.0,)), "own momentum 0.9, scale 1.5"),
        (Policy(aggregate=(-0.5,)), "pushed away from the last aggregate by -0.5"),
        (Policy(layers=(1.0, 2.0)), "the second half of the model times 2"),
        (Policy(layers=(0.5, 1.0)), "the first half of the model times 0.5"),
        (Policy(layers=(1.0, 2.0, 1.0, 0.5)), "parts of the model times 1, 2, 1, 0.5"),
        (Policy((1.0, 3.0)), "scale 1 → 3"),
        (LargerBatch(0), "full batch"),
        (LargerBatch(4, 1.5), "4 batches at once, scale 1.5"),
    ],
)
def test_words(policy, words):
    assert policy.describe(30) == words


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Policy(()), "scale is empty"),
        (lambda: Policy(layers=(1.0, 1.0, 1.0)), "layers has 3 factors, must have 1, 2 or 4"),
        (lambda: Policy((1.0, 2.0), starts=(1,)), "starts are \\[1\\], must be 1 and then"),
        (lambda: Policy((1.0, 2.0), starts=(1, 1)), "must be 1 and then increasing"),
        (lambda: Policy(memory=1.0), "memory is 1"),
        (lambda: Policy((float("nan"),)), "must be a finite number"),
        (lambda: LargerBatch(1), "batches are 1"),
        (lambda: LargerBatch(-2), "batches are -2"),
    ],
)
def test_wrong_values(make, message):
    with pytest.raises(ValueError, match=message):
        make()
