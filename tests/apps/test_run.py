"""One run of an unchanged app: against NumPy by hand, against itself, and from the cache."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.apps.clinics.clinics.client_app import loss_of, patients
from verax.apps.cache import ReplyCache
from verax.apps.run import chosen_metric, losses_of
from verax.apps.run import run_app as run_with
from verax.flower.randomness import seeded
from verax.game import Absent, Noise, Reporting, Scale, Stretch
from verax.learning import Behaviour

T, N = 8, 3
NOTHING = ReplyCache(Path(), 0)


def run_app(app, clients, replica, *rest):
    return run_with(app, app.clients(clients, replica), replica, *rest)


def norms_of(run):
    return np.stack([one.norms for one in run.rounds])


class Node:
    def __init__(self, number):
        self.node_config = {"partition-id": number}


def by_hand(replica, scales, absent=()):
    """FedAvg of the clinics in plain NumPy, from seeds that are set as the audit sets them.

    `absent` holds (round, client) of those that do not answer.
    """
    import zlib

    with seeded(replica):
        w = (0.1 * np.random.randn(5)).astype(np.float32)
    sizes = np.array([len(patients(Node(i), "train")[0]) for i in range(N)])
    norms = np.zeros((T, N))
    kind = zlib.crc32(b"train")
    for t in range(1, T + 1):
        present = [i for i in range(N) if (t, i) not in absent]
        weights = sizes[present] / sizes[present].sum()
        replies = []
        for i, weight in zip(present, weights, strict=True):
            x, y = patients(Node(i), "train")
            with seeded(replica, i, t, kind):
                order = np.random.permutation(len(x))
            own = w.astype(float)
            for k in range(0, len(x), 10):
                rows = order[k : k + 10]
                error = 1 / (1 + np.exp(-x[rows] @ own)) - y[rows]
                own -= 0.5 * x[rows].T @ error / len(rows)
            update = scales[t - 1][i] * (own.astype(np.float32).astype(float) - w)
            replies.append((w + update).astype(np.float32))
            rest = sizes[[j for j in present if j != i]]
            counted = (1 + rest.sum() ** 2 / (rest**2).sum()) * weight
            norms[t - 1, i] = counted**2 * np.sum((replies[-1].astype(float) - w) ** 2)
        w = sum(share * reply for share, reply in zip(weights, replies, strict=True))
        w = w.astype(np.float32)
    return norms, [loss_of(w, *patients(Node(i), "test")) for i in range(N)]


def test_an_absent_member_leaves_the_others_to_train(clinics):
    run = run_app(clinics, N, 5, NOTHING, Behaviour(Absent(((2, 3), (6, 6))), (1,)), T)
    norms, losses = by_hand(5, np.ones((T, N)), absent={(2, 1), (3, 1), (6, 1)})
    assert_allclose(norms_of(run), norms, rtol=1e-5)
    assert_allclose(losses_of(run, "eval_loss", N), losses, rtol=1e-5)
    assert not np.any(norms[[1, 2, 5], 1])


@pytest.mark.parametrize("scale", [1.0, 3.0, -1.0])
def test_equals_federated_averaging_by_hand(clinics, scale):
    behaviour = Behaviour(Stretch(scale, 3, T), (1,)) if scale != 1 else Behaviour()
    run = run_app(clinics, N, 5, NOTHING, behaviour, T)
    scales = np.ones((T, N))
    scales[2:, 1] = scale
    norms, losses = by_hand(5, scales)
    assert_allclose(norms_of(run), norms, rtol=1e-5)
    assert_allclose(losses_of(run, "eval_loss", N), losses, rtol=1e-5)


def test_runs_repeat_and_replicas_differ(clinics):
    one, again, other = (run_app(clinics, N, replica, NOTHING) for replica in (1, 1, 2))
    assert_array_equal(norms_of(one), norms_of(again))
    assert one.metrics == again.metrics
    assert not np.allclose(norms_of(one), norms_of(other))


def test_the_servers_random_numbers_do_not_depend_on_the_clients(clinics, tmp_path):
    """With half of the clinics in a round, the same ones are drawn whether replies are cached."""
    app = replace(clinics, run_config={**clinics.run_config, "fraction-train": 0.67})
    cache = ReplyCache(tmp_path / "replies", 10**9)
    plain, filling, cached = (run_app(app, N, 4, c) for c in (NOTHING, cache, cache))
    for other in (filling, cached):
        assert_array_equal(norms_of(plain), norms_of(other))
        assert [tuple(r.present) for r in plain.rounds] == [tuple(r.present) for r in other.rounds]
    assert {int(r.present.sum()) for r in plain.rounds} == {2}
    assert cached.calls == 0


def test_honest_rounds_come_from_the_cache(clinics, tmp_path):
    cache = ReplyCache(tmp_path / "replies", 10**9)
    honest = run_app(clinics, N, 3, cache)
    late = Behaviour(Stretch(5.0, 7, T), (0,))
    run, fresh = (run_app(clinics, N, 3, c, late, T) for c in (cache, NOTHING))
    assert_array_equal(norms_of(run), norms_of(fresh))
    assert run.metrics == fresh.metrics
    assert_array_equal(norms_of(run)[:6], norms_of(honest)[:6])
    # Round 7 trains on what was sent honestly; its evaluation and round 8 are new.
    assert honest.calls == fresh.calls == 2 * N * T
    assert run.calls == 3 * N


def test_a_full_cache_stores_nothing_and_changes_nothing(clinics, tmp_path):
    folder = tmp_path / "replies"
    run_app(clinics, N, 3, ReplyCache(folder, 5000))
    assert 0 < sum(path.stat().st_size for path in folder.iterdir()) <= 5000
    run = run_app(clinics, N, 3, ReplyCache(folder, 0))
    assert_array_equal(norms_of(run), norms_of(run_app(clinics, N, 3, NOTHING)))
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:40])  # as a crash of the machine leaves it
    run_app(clinics, N, 3, ReplyCache(folder, 0))


def test_the_users_generators_go_on_as_if_nothing_had_run(clinics):
    random.seed(7)
    np.random.seed(7)
    wanted = random.random(), np.random.rand()
    random.seed(7)
    np.random.seed(7)
    run_app(clinics, N, 0, NOTHING)
    assert (random.random(), np.random.rand()) == wanted


class Momentum(Reporting):
    """The mean of the update and the one before."""

    def start(self, update):
        return [np.zeros_like(x) for x in update]

    def message(self, update, seen):
        return [(u + m) / 2 for u, m in zip(update, seen.memory, strict=True)], list(update)


def test_reportings_with_noise_and_memory_run_on_messages(clinics):
    honest = run_app(clinics, N, 3, NOTHING)
    for reporting in (Noise(2.0), Momentum()):
        run = run_app(clinics, N, 3, NOTHING, Behaviour(reporting, (2,)), T)
        assert run.rounds[0].misreport[2] > 0
        assert run.rounds[0].misreport[0] == 0
        assert_array_equal(norms_of(run)[0, :2], norms_of(honest)[0, :2])
        assert run.metrics != honest.metrics
    halved = run.rounds[0].norms[2] / honest.rounds[0].norms[2]
    assert_allclose(halved, 0.25, rtol=1e-5)  # nothing came before the first update


def test_a_run_that_explodes_has_diverged(clinics):
    run = run_app(clinics, N, 0, NOTHING, Behaviour(Scale(1e30), (0,)), T)
    assert run.diverged
    assert np.isnan(losses_of(run, "eval_loss", N)).all()


def test_the_metric_is_chosen_or_asked_for():
    metrics = [{"eval_loss": 1.0, "accuracy": 0.5}, {"accuracy": 0.4, "eval_loss": 2.0}]
    assert chosen_metric("", metrics) == ("eval_loss", False)
    assert chosen_metric("accuracy:up", metrics) == ("accuracy", True)
    with pytest.raises(ValueError, match="'f1' is not evaluated by every member; known: eval_loss"):
        chosen_metric("f1", metrics)
    with pytest.raises(ValueError, match=r"2 metrics .* choose one by --metric"):
        chosen_metric("", [{"loss_a": 1.0, "loss_b": 1.0}])
    with pytest.raises(ValueError, match=r"0 metrics .* known: none"):
        chosen_metric("", [{"loss": 1.0}, {}])
    with pytest.raises(ValueError, match="'loss:left', must be NAME"):
        chosen_metric("loss:left", metrics)


def test_too_few_nodes_are_an_error_not_a_wait(clinics):
    with pytest.raises(ValueError, match="waits for more than 1 nodes; give --clients"):
        run_app(clinics, 1, 0, NOTHING)
