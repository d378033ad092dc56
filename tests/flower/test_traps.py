"""Every trap that was found by running Flower, as a test of its name."""

import logging
import random

import numpy as np
import pytest
from flwr.app import Array, Error, Message
from flwr.serverapp.strategy import FedAvg, FedMedian

from verax.flower import PaidStrategy
from verax.mechanism import FailurePolicy

from .grid import But, Honest, LocalGrid, model, nodes, numpy_of, reply_to, terms


def examples(count):
    return lambda request, after: reply_to(request, after, **{"num-examples": count})


def moved_toward(result, client):
    """By how much of client 1's update the model moved."""
    before, after = client.seen[1, 1]
    update = after["layer.weight"] - before["layer.weight"]
    moved = result.arrays["layer.weight"].numpy() - before["layer.weight"]
    return float(np.vdot(moved, update) / np.vdot(update, update))


def test_trap_1_a_million_examples_move_the_model_but_not_for_free(run):
    honest = run(Honest(examples=(10, 10, 10)), run="honest")
    liar = run(But(1, examples(10**6), examples=(10, 10, 10)), run="liar")
    assert moved_toward(liar.result, liar.client) == pytest.approx(1, abs=1e-3)
    # It counts three times, so it pays for an update nine times as large, as its norm is.
    paid = {
        name: dict(
            zip(
                [ran.labels()[n] for n in ran.content(1, name)["accounts"]],
                ran.content(1, name)["payments"],
                strict=True,
            )
        )["client-1"]
        for name, ran in (("honest", honest), ("liar", liar))
    }
    norm = liar.client.norm(1, 1)
    assert paid["liar"] == pytest.approx(0.5 * 9 * norm, rel=1e-3)
    assert paid["liar"] > 20 * abs(paid["honest"])


@pytest.mark.parametrize("count", [-31, 0, float("nan")])
def test_trap_1_counts_that_are_no_counts_are_rejected(count, run):
    ran = run(But(1, examples(count)))
    assert ran.marked("statuses") == {"client-1": "rejected"}


@pytest.mark.parametrize("strategy", [FedAvg, FedMedian])
def test_trap_2_one_nan_client_does_not_spoil_the_model(strategy, run):
    def broken(request, after):
        after["layer.weight"][0, 0] = np.nan
        return reply_to(request, after)

    ran = run(But(1, broken), strategy=strategy(), rounds=2)
    for array in numpy_of(ran.result.arrays).values():
        assert np.isfinite(array).all()


def test_trap_3_odd_metric_keys_do_not_stop_the_run(run):
    ran = run(But(1, lambda request, after: reply_to(request, after, odd=1.0)), rounds=2)
    assert not ran.marked("statuses", 2)
    assert ran.result.train_metrics_clientapp[2]["odd"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("other", "status"),
    [
        (lambda request, after: None, "missing"),
        (lambda request, after: Message(Error(2, "x"), reply_to=request), "error"),
        (
            lambda request, after: reply_to(request, after | {"scale": np.float32(np.nan)}),
            "rejected",
        ),
    ],
)
def test_trap_4_silence_errors_and_nan_cost_what_the_policy_says(other, status, run):
    agreed = terms(policy=FailurePolicy("flat-fee", "flat-fee", "flat-fee", 3.0))
    ran = run(But(1, other), agreed=agreed)
    assert ran.marked("statuses") == {"client-1": status}
    assert ran.column("payments")["client-1"] == pytest.approx(3.0)


def test_trap_4_a_lone_reply_has_nobody_to_be_compared_with(run):
    class Lone(Honest):
        def train(self, i, request):
            return super().train(i, request) if i == 0 else None

    assert not any(run(Lone()).content()["amounts"])


def test_trap_5_more_identities_are_not_asked_where_the_terms_list_their_members(run, caplog):
    caplog.set_level(logging.WARNING, "flwr")
    agreed = terms(members=("client-0", "client-1", "client-2"))
    infos = nodes(5)  # two more keys were registered
    ran = run(agreed=agreed, infos=infos, rounds=2)
    assert len(ran.content(2)["accounts"]) == 3
    assert {i for i, _ in ran.client.seen} == {0, 1, 2}
    assert "is not among the members that the terms list" in caplog.text


def test_trap_6_payments_do_not_depend_on_the_order_of_replies(book):
    seen = []
    for name, seed in (("a", 1), ("b", 2)):
        shuffle = random.Random(seed).shuffle
        random.seed(seed)  # node sampling uses the global generator
        grid = LocalGrid(nodes(5), Honest(), order=shuffle)
        paid = PaidStrategy(FedAvg(), terms=terms(), ledger=book, federation=name, run="same")
        paid.start(grid, model(), 4)
        contents = [record.content for record in book.records(name)]
        seen.append(
            [
                {k: c[k] for k in ("payments", "statistics", "amounts", "weights")}
                for c in contents
                if c["kind"] == "round"
            ]
        )
    assert seen[0] == seen[1]


def test_trap_7_nodes_that_register_late_are_waited_for(run):
    class Growing(LocalGrid):
        calls = 0

        def get_nodes(self):
            self.calls += 1
            return self.infos[: min(self.calls // 2, len(self.infos))]

        def get_node_ids(self):
            return [info.node_id for info in self.get_nodes()]

    client = Honest()
    strategy = FedAvg(min_train_nodes=3, min_available_nodes=3)
    ran = run(client, grid=Growing(nodes(3), client), strategy=strategy, patience=10)
    assert len(ran.content()["accounts"]) == 3


def test_trap_7_too_few_nodes_end_in_an_error_instead_of_waiting_forever(run):
    strategy = FedAvg(min_train_nodes=4, min_available_nodes=4)
    with pytest.raises(TimeoutError, match="3 nodes are connected, 4 are needed"):
        run(strategy=strategy, patience=0.2)


def test_trap_7_if_every_reply_fails_the_result_still_has_the_model(run):
    class Failing(Honest):
        def train(self, i, request):
            return Message(Error(2, "x"), reply_to=request)

    ran = run(Failing())
    np.testing.assert_array_equal(ran.result.arrays["scale"].numpy(), numpy_of(model())["scale"])


def test_jax_arrays_go_through_numpy():
    """`Array(jax_array)` raises; the example app and the how-to use `np.asarray`."""
    import jax.numpy as jnp

    with pytest.raises(TypeError):
        Array(jnp.ones(3))
    assert Array(np.asarray(jnp.ones(3))).shape == (3,)
