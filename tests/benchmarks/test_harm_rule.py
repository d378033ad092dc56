"""The harm rule: what runs record, the payments and the weights, each against NumPy by hand."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from harm.pricing import (
    Evidence,
    harm_payments,
    harm_weights,
    larger_payments,
    norm_payments,
    profiles,
)
from harm.runs import HarmRuns, Records, Tried

from verax.game import LargerBatch, Policy, Reporting, Scale, Stretch
from verax.learning import Mean, Median, Protocol, Task
from verax.mechanism import Blocks

T, N, SAMPLES = 6, 3, 8


def _data() -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(1)
    truths = rng.standard_normal((N, 2))

    def client(i: int, size: int) -> tuple[Any, Any]:
        x = rng.standard_normal((size, 2))
        return x, x @ truths[i] + 0.1 * rng.standard_normal(size)

    return [client(i, SAMPLES) for i in range(N)], [client(i, 16 + i) for i in range(N)]


def _linear() -> Task:
    train, test = _data()
    return Task(
        name="linear",
        train=train,
        test=test,
        init=lambda key: jnp.zeros(2),
        loss=lambda theta, batch: jnp.mean((batch[0] @ theta - batch[1]) ** 2),
    )


def _by_hand(
    step: float, centre: Any, clients: tuple[int, ...], scales: Any, momentum: float = 0.0
) -> tuple[Any, Any, Any]:
    """Harm (T, N, N), norms (T, N) and final losses (N,) of full-batch FedSGD, by plain loops."""
    train, test = _data()

    def losses(theta: Any) -> Any:
        return np.array([np.mean((x @ theta - y) ** 2) for x, y in test])

    theta, harm, norms = np.zeros(2), np.zeros((T, N, N)), np.zeros((T, N))
    total, weight = np.zeros((N, 2)), 0.0
    for t in range(T):
        messages = np.array([2 * x.T @ (x @ theta - y) / len(x) for x, y in train])
        total = momentum * total + (1 - momentum) * messages
        weight = momentum * weight + 1 - momentum
        for c in clients:
            messages[c] = scales[t] * (total[c] / weight if momentum else messages[c])
        norms[t] = np.sum(messages**2, axis=1)
        after = theta - step * centre(messages, axis=0)
        for i in range(N):
            without = theta - step * centre(np.delete(messages, i, axis=0), axis=0)
            harm[t, i] = losses(after) - losses(without)
            harm[t, i, i] = 0
        theta = after
    return harm, norms, losses(theta)


_CASES: list[tuple[tuple[int, ...], Reporting, Any, float]] = [
    ((1,), Scale(-2.0), np.full(T, -2.0), 0.0),
    ((2,), Stretch(3.0, 5, 6), np.array([1, 1, 1, 1, 3.0, 3.0]), 0.0),
    ((0, 2), Scale(2.0), np.full(T, 2.0), 0.0),
    ((0,), Policy((1.5,), memory=0.6, own=(1.0,)), np.full(T, 1.5), 0.6),
    ((0, 1), Policy((1.5,), memory=0.6, own=(1.0,)), np.full(T, 1.5), 0.6),
    ((1,), LargerBatch(0, 2.0), np.full(T, 2.0), 0.0),
]


@pytest.mark.parametrize("median", [False, True])
def test_recorded_harm_is_that_of_plain_loops(median: bool) -> None:
    aggregator, centre = (Median(), np.median) if median else (Mean(), np.mean)
    runs = HarmRuns(_linear(), Protocol("fedsgd", 0.1, SAMPLES, aggregator=aggregator), T, 2)
    starts = np.array(runs.blocks.starts) - 1
    all_found = runs.run(3, [Tried(clients, reporting) for clients, reporting, *_ in _CASES])
    for k, (clients, _, scales, momentum) in enumerate(_CASES):
        found = Records(*(values[k] for values in all_found))
        harm, norms, final = _by_hand(0.1, centre, clients, scales, momentum)
        by_block = np.add.reduceat(harm, starts, axis=0)
        np.testing.assert_allclose(found.harm[..., 0], by_block, rtol=1e-3, atol=3e-6)
        np.testing.assert_allclose(found.norms, np.add.reduceat(norms, starts), rtol=1e-4)
        np.testing.assert_allclose(found.final[:, 0], final, rtol=1e-4)
        # Halves of 8 + 8, 8 + 9 and 9 + 9 samples make up all of them.
        share = np.array([8 / 16, 8 / 17, 9 / 18])
        halves = share * found.final[:, 3] + (1 - share) * found.final[:, 4]
        np.testing.assert_allclose(halves, final, rtol=1e-4)
        assert np.all(np.abs(found.final[:, 1] - final) > 1e-6)  # a quarter is another sample


def test_in_the_last_round_harm_is_harm_to_the_final_model() -> None:
    runs = HarmRuns(_linear(), Protocol("fedsgd", 0.1, 4), T, 2)
    found = runs.run(0, [Tried((0,), Stretch(a, T, T)) for a in (1.3, 0.7)])
    harm, final = found.harm[0] - found.harm[1], found.final[0] - found.final[1]
    assert np.min(np.abs(final[1:, 0])) > 1e-4
    np.testing.assert_allclose(harm[-1, 0, 1:, 0], final[1:, 0], rtol=1e-3, atol=1e-6)


def test_payments_balance_and_do_not_depend_on_own_reports() -> None:
    rng = np.random.default_rng(0)
    K, clients = 3, 5
    harm = rng.standard_normal((K, clients, clients)) * ~np.eye(clients, dtype=bool)
    weights = np.array([0.1, 0.5, 1.0])
    paid = harm_payments(harm, weights)
    by_hand = np.zeros(clients)
    for k in range(K):
        for i in range(clients):
            for j in set(range(clients)) - {i}:
                levy = weights[k] * harm[k, i, j]
                by_hand[i] += levy
                for receiver in set(range(clients)) - {i, j}:
                    by_hand[receiver] -= levy / (clients - 2)
    np.testing.assert_allclose(paid, by_hand)
    assert abs(paid.sum()) < 1e-12
    lie = harm.copy()
    lie[:, :, 2] *= -7
    shift = harm_payments(lie, weights) - paid
    assert abs(shift[2]) < 1e-12
    assert np.min(np.abs(np.delete(shift, 2))) > 1e-3


def test_two_clients_are_refused() -> None:
    with pytest.raises(ValueError, match="needs 3"):
        harm_payments(np.zeros((1, 2, 2)), np.ones(1))


@pytest.mark.parametrize("fit", ["monotone", "free", "anchored", "by member"])
def test_weights_are_found_again(fit: str) -> None:
    rng = np.random.default_rng(2)
    seeds, K, h = 3, 4, 0.3
    weights = np.array([0.0, 0.2, 0.7, 1.0])
    slopes = rng.standard_normal((seeds, N, K, K, N, N)) * np.triu(np.ones((K, K)))[..., None, None]
    slopes *= ~np.eye(N, dtype=bool)
    harm = np.zeros((seeds, N, K, 2, K, N, N, 1))
    final = np.zeros((seeds, N, K, 2, N, 1))
    for i in range(N):
        for k in range(K):
            for row, sign in enumerate((1, -1)):
                harm[:, i, k, row, :, :, :, 0] = sign * h * slopes[:, i, k]
                # The others' final losses move by the weighted harm of the client that is probed.
                effect = np.einsum("s,xsj->xj", weights, slopes[:, i, k, :, i])
                final[:, i, k, row, :, 0] = sign * h * effect
    probes = Records(
        harm.reshape(seeds, -1, K, N, N, 1),
        np.zeros((seeds, N * K * 2, K, N)),
        final.reshape(seeds, -1, N, 1),
    )
    found = harm_weights(probes, 0, 2 * h, fit)
    wanted = np.repeat(weights[:, None], N, axis=1) if fit == "by member" else weights
    np.testing.assert_allclose(found.weights, wanted, atol=1e-6)
    assert found.explained == pytest.approx(1.0)


def test_the_profile_is_stationary_for_what_was_probed() -> None:
    """With losses and norms that are linear in a_ik, dU_i/da_ik is what the profile leaves."""
    rng = np.random.default_rng(3)
    K, h = 3, 0.3
    later = np.triu(np.ones((K, K)))
    norms = 0.1 * rng.uniform(-1, 1, (N, K, K, N)) * later[None, ..., None]
    for i in range(N):
        norms[i, :, :, i] += np.diag(rng.uniform(1, 2, K))  # own messages grow with their scale
    losses = -rng.uniform(0.5, 1, (N, K, N))
    signs = np.array([h, -h])
    probes = Records(
        np.zeros((1, N * K * 2, K, N, N, 1)),
        np.einsum("ikrj,x->ikxrj", norms, signs).reshape(1, N * K * 2, K, N),
        np.einsum("ikj,x->ikxj", losses, signs).reshape(1, N * K * 2, N, 1),
    )
    individual, common = profiles(probes, Blocks((1, 5, 7), 8), 2 * h)
    for profile in (individual, common):
        paid = norm_payments(norms, profile.prices)  # (N, K, N)
        for i in range(N):
            np.testing.assert_allclose(
                -losses[i, :, i] - paid[i, :, i], profile.residual[:, i], atol=1e-9
            )
    np.testing.assert_allclose(individual.residual, 0.0, atol=1e-9)


def test_the_larger_levy_is_shared_by_the_others() -> None:
    one, other = np.array([[2.0, 0.0, -1.0]]), np.array([[1.0, 3.0, -2.0]])
    np.testing.assert_allclose(larger_payments(one, other), [1.0, 2.5, -3.5])


def test_a_gain_is_harmful_if_the_others_lose_more_than_their_tolerance() -> None:
    """Client 0 raises its reward by 0.2 and costs the others 0.1; losses are 1 each."""
    seeds = 2
    none = np.zeros((seeds, 1, N, N, 1)), np.zeros((seeds, 1, N))
    honest = Records(*none, np.ones((seeds, N, 1)))
    final = np.tile(np.array([0.8, 1.06, 1.04])[:, None], (seeds, 1, 1, 1))
    tried = Records(none[0][:, None], none[1][:, None], final)
    evidence = Evidence(honest, tried, [(0,)])

    def charging(levy: float) -> dict[str, Any]:
        return evidence.judge(np.full((1, 1, seeds), levy), ["it"])

    free = charging(0.0)
    assert free["harmful"]["gain"] == pytest.approx(20)
    assert free["harmful"]["others"] == pytest.approx(-5)
    assert charging(0.079)["harmful"]["gain"] == pytest.approx(12.1)
    paid = charging(0.081)  # the others have lost 0.019 of 2, less than 1 %
    assert paid["harmful"] is None
    assert paid["raising"]["gain"] == paid["any"]["gain"] == pytest.approx(11.9)
    # Contested: the gain less what is at nobody's expense, max(0, W + ε_o − ε) = 0.11.
    contested = evidence.contested(np.zeros((1, 1, seeds)))
    np.testing.assert_allclose(contested, [[(0.2 - 0.11) / 0.01]])
