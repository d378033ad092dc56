"""The simulator against exact recursion, NumPy reportings, and itself in other batches."""

from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from verax.game import (
    Absent,
    Adaptive,
    Directional,
    Honest,
    Mixed,
    Noise,
    Quadratics,
    Reporting,
    Scale,
    Sender,
    Timed,
)
from verax.learning import (
    Behaviour,
    Clipped,
    GeometricMedian,
    JointBehaviour,
    Krum,
    Median,
    Protocol,
    Seeds,
    Simulator,
    Task,
    TrimmedMean,
    WeightedMean,
)
from verax.learning.batches import batch_indices, participants
from verax.tasks import digits, quadratics

#: float32 rounding grows over rounds; how far runs in other batches may differ, stated in the docs.
TOLERANCE = 2e-3


def game(clients=3, d=4, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((clients, d, d))
    hessians = np.einsum("nij,nkj->nik", roots, roots) / d + 0.2 * np.eye(d)
    return Quadratics.of(hessians, rng.standard_normal((clients, d)))


HONEST = [Behaviour()]


def alone(client, reporting):
    """One client deviates."""
    return Behaviour(reporting, (client,))


@pytest.mark.parametrize(("x64", "tolerance"), [(False, 1e-5), (True, 1e-10)])
def test_equals_the_exact_recursion(x64, tolerance):
    exact, T = game(), 50
    start = np.array([1.0, -1.0, 0.5, 2.0])
    with jax.enable_x64(x64):
        simulator = Simulator(quadratics(exact, start), Protocol(step=0.2), T, segment=25)
        scales = np.ones((T, 3))
        scales[:, 1] = np.where(np.arange(T) < 30, 0.5, 3.0)
        found = simulator.run(Seeds.of(0), [alone(1, Timed(0.5, 3.0, 0.6)), Behaviour()])
        truth = exact.run(start, np.full(T, 0.2), scales)
        assert_allclose(found.state.params[0], truth.points[-1], rtol=tolerance, atol=tolerance)
        assert_allclose(
            found.statistics.gram[0], truth.gram, rtol=10 * tolerance, atol=10 * tolerance
        )
        assert_allclose(found.evaluations[-1].loss[0], exact.losses(truth.points[-1]), rtol=1e-4)
        misreport = np.sum((truth.messages - truth.gradients) ** 2, axis=-1)
        assert_allclose(
            found.statistics.misreport[0], misreport, rtol=10 * tolerance, atol=10 * tolerance
        )
        plain = exact.run(start, np.full(T, 0.2))
        assert_allclose(found.state.params[1], plain.points[-1], rtol=tolerance, atol=tolerance)
    assert_array_equal(found.diverged, 0)


def test_fedavg_with_one_step_is_fedsgd_with_the_rate_folded_in():
    task, T = digits(model="softmax"), 30
    runs = [alone(0, Scale(3))]
    sgd = Simulator(task, Protocol(step=0.1), T).run(Seeds.of(1), runs)
    avg = Simulator(task, Protocol("fedavg", step=0.1), T).run(Seeds.of(1), runs)
    assert_allclose(avg.evaluations[-1].loss, sgd.evaluations[-1].loss, rtol=1e-4)
    assert_allclose(avg.norms, 0.01 * sgd.norms, rtol=1e-3)


def test_fedavg_takes_local_steps_on_fresh_batches():
    """Two clients, F_i = ½(θ − x_i)²: L local steps shrink the way to x_i by (1 − γ)^L."""
    exact = Quadratics.of([1.0, 1.0], [0.0, 4.0])
    simulator = Simulator(
        quadratics(exact, [1.0]), Protocol("fedavg", step=0.1, local_steps=3), rounds=1
    )
    found = simulator.run(Seeds.of(0), HONEST)
    moved = (1 - 0.9**3) * np.array([1.0, -3.0])
    assert_allclose(found.norms[0, 0], moved**2, rtol=1e-5)
    assert_allclose(found.state.params[0], 1.0 - moved.mean(), rtol=1e-6)


def test_an_absent_client_sends_nothing_and_the_others_go_on():
    """F_i = ½(θ − x_i)²: the model moves by the mean of those who take part."""
    optima, absent = np.array([0.0, 1.0, 5.0]), Absent(((1, 1), (3, 3)))
    simulator = Simulator(
        quadratics(Quadratics.of([1.0, 1.0, 1.0], optima), [2.0]), Protocol(step=0.5), rounds=4
    )
    found = simulator.run(Seeds.of(0), [alone(2, absent), alone(0, Absent(((2, 4),)))])
    masks = [[[1, 1, 0], [1, 1, 1], [1, 1, 0], [1, 1, 1]], [[1, 1, 1], *3 * [[0, 1, 1]]]]
    for run, mask in enumerate(masks):
        model = 2.0
        for t, row in enumerate(np.array(mask, dtype=bool)):
            gradients = model - optima
            assert_allclose(found.norms[run, t], np.where(row, gradients**2, 0.0), rtol=1e-5)
            assert_array_equal(found.present[run, t], row)
            model -= 0.5 * gradients[row].mean()
        assert_allclose(found.state.params[run], model, rtol=1e-5)
    assert absent.honest_rounds(4) == 0
    assert Absent(((3, 4),)).honest_rounds(4) == 2


def test_members_that_deviate_together_scale_each_by_its_own():
    exact, T = game(), 20
    start = np.array([1.0, -1.0, 0.5, 2.0])
    joint = JointBehaviour(deviators=(0, 2), each=(Scale(2.0), Timed(0.5, 3.0, 0.5)))
    found = Simulator(quadratics(exact, start), Protocol(step=0.2), T).run(Seeds.of(0), [joint])
    scales = np.ones((T, 3))
    scales[:, 0], scales[:, 2] = 2.0, np.where(np.arange(T) < 10, 0.5, 3.0)
    truth = exact.run(start, np.full(T, 0.2), scales)
    assert_allclose(found.state.params[0], truth.points[-1], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="only scale"):
        JointBehaviour(deviators=(0,), each=(Noise(1.0),))


@pytest.mark.parametrize(
    "aggregator", [Median(), TrimmedMean(0.2), Krum(1), GeometricMedian(), Clipped(0.1)]
)
def test_every_aggregator_trains(aggregator):
    T = 20
    simulator = Simulator(
        digits(clients=5, model="softmax"), Protocol(step=0.3, aggregator=aggregator), T
    )
    first = simulator.evaluate(simulator.start(Seeds.of(0))).loss.mean()
    found = simulator.run(Seeds.of(0), HONEST)
    assert found.evaluations[-1].loss.mean() < first


def test_weights_of_the_aggregator_reach_the_model():
    exact = Quadratics.of([1.0, 1.0], [0.0, 4.0])
    protocol = Protocol(step=1.0, aggregator=WeightedMean((3.0, 1.0)))
    found = Simulator(quadratics(exact, [1.0]), protocol, 1).run(Seeds.of(0), HONEST)
    assert_allclose(found.state.params[0], 1.0 - (0.75 * 1 + 0.25 * -3), rtol=1e-6)


@dataclass(frozen=True)
class Follower(Reporting):
    """Adds to its update half of its last message and a part of the last aggregate, reversed."""

    def start(self, update):
        return [0 * layer for layer in update]

    def message(self, update, seen):
        parts = zip(update, seen.memory, seen.last_aggregate, strict=True)
        message = [g + 0.5 * own - 0.2 * moved for g, own, moved in parts]
        return message, message


@dataclass(frozen=True)
class Doubled(Reporting):
    """Trains on centres twice as far away, from two batches at once."""

    batches_drawn = 2

    def batch(self, samples, seen):
        hessians, centres, offsets = samples
        return hessians, 2 * centres, offsets


@dataclass(frozen=True)
class Everything(Reporting):
    """Trains on all of its samples in every round."""

    batches_drawn = 0


def test_a_reporting_on_data_changes_what_the_update_is_computed_from():
    """F = ½(θ − x)²: on doubled centres the gradient is θ − 2x̄ over 2 × 4 samples."""
    exact = Quadratics.of([1.0, 1.0], [1.0, 3.0])
    task = quadratics(exact, [0.5], noise=1.0, samples=16)
    simulator = Simulator(task, Protocol(step=0.1, batch=4), 2)
    found = simulator.run(Seeds.of(0), [alone(1, Doubled())])
    seed = Seeds.of(0).batches
    rows = batch_indices(simulator.sizes[1:], seed, 0, 1, 1, 8, first_client=1)[0, 0, 0]
    lie = 0.5 - 2 * task.train[1][1][rows, 0].mean()
    true = batch_indices(simulator.sizes[1:], seed, 0, 1, 1, 4, first_client=1)[0, 0, 0]
    honest = 0.5 - task.train[1][1][true, 0].mean()
    assert_allclose(found.norms[0, 0, 1], lie**2, rtol=1e-4)
    assert_allclose(
        found.statistics.misreport[0, 0], [0, (lie - honest) ** 2], rtol=1e-3, atol=1e-6
    )


def test_a_full_batch_has_the_exact_gradient_whatever_the_clients_size():
    exact = Quadratics.of([1.0, 1.0], [1.0, 3.0])
    task = quadratics(exact, [0.5], noise=1.0, samples=16)
    shorter = tuple(array[:10] for array in task.train[1])
    task = replace(task, train=[task.train[0], shorter])
    simulator = Simulator(task, Protocol(step=0.1, batch=4), 3)
    runs = [alone(1, Everything())]
    found = simulator.run(Seeds.of(0), runs)
    assert_allclose(found.norms[0, 0, 1], (0.5 - shorter[1].mean()) ** 2, rtol=1e-4)
    assert runs[0].program != alone(0, Everything()).program


def test_runs_with_different_programs_are_not_mixed():
    simulator = Simulator(quadratics(game(), np.zeros(4)), Protocol(), 2)
    with pytest.raises(ValueError, match="must have the same program"):
        simulator.run(Seeds.of(0), [alone(0, Noise(1.0)), Behaviour()])
    with pytest.raises(ValueError, match="exactly one deviator"):
        simulator.run(Seeds.of(0), [Behaviour(Noise(1.0), (0, 1))])


class TestReporting:
    """Compiled reportings do what their description says."""

    T = 400
    exact = game(d=6)

    @classmethod
    @cache
    def run(cls, reporting, rounds=None):
        T = rounds or cls.T
        task = quadratics(cls.exact, cls.exact.optimum())
        simulator = Simulator(task, Protocol(step=1e-6), T, segment=T)
        return simulator.run(Seeds.of(3), [alone(0, reporting)])

    def test_noise_has_unit_energy_over_the_whole_update(self):
        """Mean of ‖bξ‖² over 400 rounds of 6 numbers: standard error 3 %."""
        found = self.run(Noise(2.0)).statistics.misreport[0]
        assert found[:, 0].mean() == pytest.approx(4.0, rel=0.1)
        assert_array_equal(found[:, 1:], 0)

    def test_noise_is_fresh_and_common(self):
        one, two = self.run(Noise(2.0)), self.run(Noise(4.0))
        assert len(np.unique(one.statistics.misreport[0, :, 0])) > 390
        assert_allclose(
            two.statistics.misreport[0, :50, 0], 4 * one.statistics.misreport[0, :50, 0], rtol=1e-3
        )

    def test_directional_keeps_length_and_angle(self):
        found = self.run(Directional(2.0, 0.5), rounds=5)
        g = self.exact.gradients(self.exact.optimum())
        own = g[0] @ g[0]
        assert_allclose(found.norms[0, 0, 0], 4 * own, rtol=1e-3)
        expected = own * (4 + 1 - 4 * np.cos(0.5))
        assert_allclose(found.statistics.misreport[0, 0, 0], expected, rtol=1e-3)

    def test_adaptive_follows_its_history(self):
        """Against the NumPy version, on a run whose gradients shrink."""
        reporting, T = Adaptive(2.0, drift=1.0, feedback=0.7, low=0.5), 30
        task = quadratics(self.exact, self.exact.optimum() + 3.0)
        simulator = Simulator(task, Protocol(step=0.3), T)
        found = simulator.run(Seeds.of(0), [alone(0, reporting)])
        sender, memory, theta = Sender(reporting, T, 0), None, self.exact.optimum() + 3.0
        for t in range(T):
            m = self.exact.gradients(theta)
            (m[0],), memory = sender.send(t + 1, [m[0]], memory)
            assert_allclose(found.norms[0, t], np.sum(m**2, axis=1), rtol=1e-3)
            theta = theta - 0.3 * m.mean(axis=0)

    def test_a_message_may_follow_the_last_aggregate_and_the_clients_own_past(self):
        """Against the exact recursion, written out by hand."""
        T, step, theta = 12, 0.3, self.exact.optimum() + 2.0
        task = quadratics(self.exact, theta)
        found = Simulator(task, Protocol(step=step), T).run(Seeds.of(0), [alone(2, Follower())])
        moved, past = np.zeros_like(theta), np.zeros_like(theta)
        for t in range(T):
            m = self.exact.gradients(theta)
            m[2] = past = m[2] + 0.5 * past - 0.2 * moved
            assert_allclose(found.norms[0, t], np.sum(m**2, axis=1), rtol=1e-3)
            moved = step * m.mean(axis=0)
            theta = theta - moved
        assert_allclose(found.state.params[0], theta, rtol=1e-4, atol=1e-5)

    def test_mixed_and_honest(self):
        mixed = self.run(Mixed((1.0, 3.0), (0.0, 0.0), (0.5, 0.5)), rounds=50)
        g = self.exact.gradients(self.exact.optimum())[0]
        ratio = np.round(np.sqrt(mixed.norms[0, :, 0] / (g @ g)), 2)
        assert set(ratio) == {1.0, 3.0}
        assert_array_equal(self.run(Honest(), rounds=5).statistics.misreport, 0)


class TestBatching:
    task = digits()
    T = 100
    scales = tuple(np.linspace(0, 5, 8))

    def outcomes(self, width):
        simulator = Simulator(self.task, Protocol(), self.T)
        runs = [alone(0, Scale(a)) for a in self.scales]
        parts = [
            simulator.run(Seeds.of(2), runs[k : k + width]) for k in range(0, len(runs), width)
        ]
        return (
            np.concatenate([part.evaluations[-1].loss for part in parts]),
            np.concatenate([part.norms for part in parts]),
        )

    def test_results_do_not_depend_on_the_batch(self):
        loss, norms = self.outcomes(8)
        for width in (1, 3):
            other_loss, other_norms = self.outcomes(width)
            assert_allclose(other_loss, loss, rtol=TOLERANCE)
            assert_allclose(other_norms.sum(axis=1), norms.sum(axis=1), rtol=TOLERANCE)

    def test_segments_and_a_resumed_state_change_no_bit(self):
        simulator = Simulator(self.task, Protocol(), self.T, segment=25)
        runs = [alone(0, Noise(0.5))]
        whole = simulator.run(Seeds.of(4), runs)
        first = simulator.run(Seeds.of(4), runs, until=50)
        rest = simulator.run(Seeds.of(4), runs, first.state)
        assert_array_equal(rest.statistics.gram, whole.statistics.gram[:, 50:])
        assert_array_equal(rest.evaluations[-1].loss, whole.evaluations[-1].loss)
        assert rest.first == 50

    def test_evaluations_on_the_way(self):
        simulator = Simulator(self.task, Protocol(), self.T)
        found = simulator.run(Seeds.of(4), HONEST, evaluate_every=25)
        assert [e.round for e in found.evaluations] == [25, 50, 75, 100]
        assert found.evaluations[-1].loss.mean() < found.evaluations[0].loss.mean()


def test_divergence_is_marked_with_its_round_and_the_others_go_on():
    exact = Quadratics.of([1.0, 1.0], [0.0, 4.0])
    T = 400
    simulator = Simulator(quadratics(exact, [1.0]), Protocol(step=0.5), T)
    found = simulator.run(Seeds.of(0), [alone(0, Timed(1.0, -1e6, 0.25)), Behaviour()])
    assert 100 < found.diverged[0] < 110
    assert found.diverged[1] == 0
    assert np.isfinite(found.evaluations[-1].loss[1]).all()


def test_partial_participation():
    T = 40
    simulator = Simulator(digits(clients=5), Protocol(participation=0.4), T)
    found = simulator.run(Seeds.of(0), HONEST)
    assert_array_equal(found.present.sum(axis=2), 2)
    assert np.all((found.norms > 0) == found.present)
    assert len({tuple(row) for row in found.present[0]}) > 3
    assert_array_equal(participants(5, 0.4, 1, 10, 5), participants(5, 0.4, 1, 0, 15)[10:])


def test_many_clients_record_norms_and_distances():
    rng = np.random.default_rng(0)
    exact = Quadratics.of(np.ones(70), rng.standard_normal((70, 3)))
    simulator = Simulator(quadratics(exact, np.zeros(3)), Protocol(step=0.1), 2)
    found = simulator.run(Seeds.of(0), HONEST)
    g = exact.gradients(np.zeros(3))
    assert found.statistics.gram is None
    assert_allclose(found.norms[0, 0], np.sum(g**2, axis=1), rtol=1e-4)
    distances = np.sum((g - g.mean(axis=0)) ** 2, axis=1)
    assert_allclose(found.statistics.distances[0, 0], distances, rtol=1e-3)


def test_batches_walk_through_all_samples_whatever_the_start():
    sizes = np.array([10, 7])
    whole = batch_indices(sizes, 3, 0, 20, 2, 4)
    assert whole.shape == (20, 2, 2, 4)
    assert_array_equal(batch_indices(sizes, 3, 13, 7, 2, 4), whole[13:])
    for client, size in enumerate(sizes):
        walked = whole[:, client].ravel()
        for epoch in range(len(walked) // size):
            assert_array_equal(np.sort(walked[epoch * size : (epoch + 1) * size]), np.arange(size))
    assert not np.array_equal(whole, batch_indices(sizes, 4, 0, 20, 2, 4))


def test_padding_does_not_count():
    """A client with one test sample beside one with many: losses are their own means."""
    x = [np.ones((5, 1)), np.full((2, 1), 3.0)]

    def loss(theta, batch):
        return jnp.mean((theta - batch[0]) ** 2)

    task = Task("t", [(a,) for a in x], [(a,) for a in x], lambda key: jnp.zeros(1), loss)
    simulator = Simulator(task, Protocol(batch=2), 1)
    assert_allclose(simulator.evaluate(simulator.start(Seeds.of(0))).loss, [[1.0, 9.0]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Protocol("sgd"), "must be one of fedsgd, fedavg"),
        (lambda: Protocol(step=0.0), "step is 0"),
        (lambda: Protocol(batch=0), "batch is 0"),
        (lambda: Protocol(local_steps=2), "local steps are 2"),
        (lambda: Protocol(participation=0.0), "participation is 0"),
        (lambda: Simulator(digits(), Protocol(), 0), "rounds is 0"),
        (lambda: _task([np.ones((2, 1))], [np.ones((2, 1))]), "needs ≥ 2"),
        (lambda: _task([np.ones((2, 1))] * 2, [np.ones((2, 1))]), "test data of 1"),
        (
            lambda: _task([np.ones((2, 1)), np.ones((0, 1))], [np.ones((1, 1))] * 2),
            "client 1 is empty",
        ),
        (lambda: _task([np.full((2, 1), np.nan)] * 2, [np.ones((1, 1))] * 2), "NaN or infinite"),
        (lambda: _task([np.array(["a"])] * 2, [np.ones((1, 1))] * 2), "must be numbers"),
        (lambda: Task("t", [()] * 2, [()] * 2, _zero, _zero), "tuple of arrays"),
        (lambda: Task("t", [(np.ones(2), np.ones(3))] * 2, [], _zero, _zero), "test data of 0"),
        (
            lambda: Task("t", [(np.ones(2), np.ones(3))] * 2, [(np.ones(1),)] * 2, _zero, _zero),
            "different lengths",
        ),
    ],
)
def test_wrong_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _zero(*_):
    return jnp.zeros(())


def _task(train, test):
    return Task("t", [(a,) for a in train], [(a,) for a in test], _zero, _zero)
