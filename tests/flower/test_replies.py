"""Bad replies: the round goes on with the rest, status and policy are booked, the reason logged."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian

from verax.mechanism import FailurePolicy, Weights

from .grid import But, Honest, LocalGrid, model, nodes, numpy_of, record_of, reply_to, terms


def changed(**arrays):
    """The update with some arrays replaced (or, with None, left out)."""

    def other(request, after):
        both = after | {name.replace("_", "."): array for name, array in arrays.items()}
        return reply_to(request, {k: v for k, v in both.items() if v is not None})

    return other


def spoiled(value):
    def other(request, after):
        after["layer.bias"][5] = value
        return reply_to(request, after)

    return other


def metrics(**kwargs):
    names = {name.replace("_", "-"): value for name, value in kwargs.items()}
    return lambda request, after: reply_to(request, after, **names)


def two_array_records(request, after):
    reply = reply_to(request, after)
    reply.content["more"] = record_of(after)
    return reply


def renamed_record(request, after):
    reply = reply_to(request, None)
    reply.content["weights"] = record_of(after)
    return reply


def two_metric_records(request, after):
    reply = reply_to(request, after)
    reply.content["more"] = MetricRecord({"num-examples": 10})
    return reply


def no_metric_record(request, after):
    return Message(RecordDict({"arrays": record_of(after)}), reply_to=request)


def lying_shape(request, after):
    reply = reply_to(request, after)
    array = Array(after["layer.bias"])
    array.shape = (36,)
    reply.content["arrays"]["layer.bias"] = array
    return reply


def cut_bytes(request, after):
    reply = reply_to(request, after)
    whole = Array(after["layer.bias"])
    reply.content["arrays"]["layer.bias"] = Array(
        whole.dtype, whole.shape, whole.stype, whole.data[:-4]
    )
    return reply


def not_numpy(request, after):
    reply = reply_to(request, after)
    reply.content["arrays"]["scale"] = Array("float32", (), "numpy.ndarray", b"junk")
    return reply


def objects(request, after):
    import io

    buffer = io.BytesIO()
    np.save(buffer, np.array([object()]), allow_pickle=True)
    reply = reply_to(request, after)
    reply.content["arrays"]["scale"] = Array("float32", (), "numpy.ndarray", buffer.getvalue())
    return reply


def other_stype(request, after):
    reply = reply_to(request, after)
    whole = Array(after["layer.bias"])
    reply.content["arrays"]["layer.bias"] = Array(whole.dtype, whole.shape, "pickle", whole.data)
    return reply


def different_twice(request, after):
    again = {name: array * 2 for name, array in after.items()}
    return [reply_to(request, after), reply_to(request, again)]


BAD = {
    "NaN": (spoiled(np.nan), "NaN or infinity"),
    "infinity": (spoiled(-np.inf), "NaN or infinity"),
    "array missing": (changed(scale=None), "'scale' is missing"),
    "array extra": (changed(extra=np.zeros(3, np.float32)), "'extra' was not asked for"),
    "misshapen": (changed(layer_bias=np.zeros(36, np.float32)), "shape (36,), must be (37,)"),
    "transposed": (changed(layer_weight=np.zeros((100, 200), np.float32)), "shape (100, 200)"),
    "complex": (changed(layer_bias=np.zeros(37, np.complex64)), "holds complex64"),
    "text": (changed(layer_bias=np.full(37, "x")), "must be float32"),
    "big-endian": (changed(layer_bias=np.zeros(37, ">f4")), "must be float32"),
    "shape that lies": (lying_shape, "must be (37,)"),
    "bytes cut off": (cut_bytes, "wrong number of bytes"),
    "not a NumPy file": (not_numpy, "'scale'"),
    "Python objects": (objects, "holds Python objects"),
    "pickled": (other_stype, "must be numpy.ndarray"),
    "two array records": (two_array_records, "2 array records"),
    "no array record": (lambda request, after: reply_to(request, None), "0 array records"),
    "another array record": (renamed_record, "called 'weights', must be 'arrays'"),
    "two metric records": (two_metric_records, "2 metric records"),
    "no metric record": (no_metric_record, "0 metric records"),
    "no count": (metrics(num_examples=None), "is missing"),
    "count −31": (metrics(num_examples=-31), "is -31, must be a whole number ≥ 1"),
    "count 0": (metrics(num_examples=0), "is 0, must be a whole number ≥ 1"),
    "count next to 0": (metrics(num_examples=1e-9), "is 1e-09, must be a whole number ≥ 1"),
    "count of halves": (metrics(num_examples=10.5), "is 10.5, must be a whole number"),
    "count NaN": (metrics(num_examples=float("nan")), "is nan, must be a whole number ≥ 1"),
    "count infinite": (metrics(num_examples=float("inf")), "is inf"),
    "count beyond float64": (metrics(num_examples=2**60), "≤ 1000000000, the limits of the terms"),
    "count a list": (metrics(num_examples=[10, 10]), "is a list"),
    "two different replies": (different_twice, "several different replies"),
    "gigantic": (changed(layer_bias=np.full(37, 1e15, np.float32)), "exceeds the limit"),
}


MEDIAN = ("NaN", "misshapen", "two metric records", "count 0", "another array record")


@pytest.mark.parametrize(
    ("name", "strategy"), [*((n, FedAvg) for n in BAD), *((n, FedMedian) for n in MEDIAN)]
)
def test_a_bad_reply_is_rejected_and_the_round_goes_on(name, strategy, run, caplog):
    other, reason = BAD[name]
    caplog.set_level(logging.INFO, "flwr")
    ran = run(But(1, other), strategy=strategy())
    assert ran.marked("statuses") == {"client-1": "rejected"}
    assert reason in ran.marked("reasons")["client-1"]
    assert reason in caplog.text
    # The model is the one of the other two alone.
    both = strategy().start(LocalGrid(nodes(3)[::2], Skipping(1)), model(), 1)
    for key, array in numpy_of(both.arrays).items():
        np.testing.assert_allclose(ran.result.arrays[key].numpy(), array, rtol=1e-6)
        assert np.isfinite(ran.result.arrays[key].numpy()).all()
    # The policy's default: a broken update costs what the largest of the round does.
    levies = ran.column("statistics")
    assert levies["client-1"] is None
    paid = ran.column("payments")
    assert paid["client-1"] == pytest.approx(max(paid.values()))
    assert paid["client-1"] > 0


class Skipping(Honest):
    """Clients 0 and 2 of three, at the positions 0 and 1 of a smaller grid."""

    def __init__(self, who):
        super().__init__()

    def __call__(self, i, request):
        return super().__call__(2 * i, request)


@pytest.mark.parametrize(
    ("policy", "paid"),
    [(FailurePolicy(rejected="excuse"), 0.0), (FailurePolicy(rejected="flat-fee", fee=4.0), 4.0)],
)
def test_the_policy_of_the_terms_is_what_a_rejected_update_costs(policy, paid, run):
    ran = run(But(1, spoiled(np.nan)), agreed=terms(policy=policy))
    assert ran.column("payments")["client-1"] == pytest.approx(paid)
    assert sum(ran.content()["amounts"]) == 0


def failed(request, after):
    return Message(Error(code=2, reason="out of memory at 0x7f"), reply_to=request)


def grid_error(request, after):
    """An error that the SuperLink itself made: it comes from node 1."""
    reply = Message(Error(code=3, reason="unavailable"), reply_to=request)
    reply.metadata.__dict__["_src_node_id"] = 1
    return reply


@pytest.mark.parametrize("other", [failed, grid_error])
def test_an_error_reply(other, run, caplog):
    caplog.set_level(logging.INFO, "flwr")
    fee = FailurePolicy(error="flat-fee", fee=2.0)
    ran = run(But(1, other), agreed=terms(policy=fee))
    assert ran.marked("statuses") == {"client-1": "error"}
    assert ran.column("payments")["client-1"] == pytest.approx(2.0)
    assert "0x7f" not in ran.marked("reasons")["client-1"], (
        "the book holds the same words each time"
    )
    assert ("unavailable" if other is grid_error else "out of memory") in caplog.text


def test_no_reply(run):
    fee = FailurePolicy(missing="flat-fee", fee=2.0)
    ran = run(But(1, lambda request, after: None), agreed=terms(policy=fee))
    assert ran.marked("statuses") == {"client-1": "missing"}
    assert ran.column("payments")["client-1"] == pytest.approx(2.0)


def test_the_same_reply_twice_counts_once(run, caplog):
    caplog.set_level(logging.WARNING, "flwr")

    def twice(request, after):
        return [reply_to(request, after, **{"num-examples": 20}) for _ in range(2)]

    ran = run(But(1, twice))
    assert not ran.marked("statuses")
    assert "sent the same reply more than once" in caplog.text
    plain = FedAvg().start(LocalGrid(nodes(3), Honest()), model(), 1)
    for key, array in numpy_of(plain.arrays).items():
        np.testing.assert_allclose(ran.result.arrays[key].numpy(), array, rtol=1e-6)


def test_a_late_reply_is_left_out(run, caplog):
    caplog.set_level(logging.WARNING, "flwr")
    infos = nodes(3)
    kept = []

    def late(request, after):
        if request.content["config"]["server-round"] == 1:
            kept.append(reply_to(request, after))
            return None
        grid.late = kept
        return reply_to(request, after)

    grid = LocalGrid(infos, None)
    client = grid.client = But(1, late)
    ran = run(client, grid=grid, rounds=3, strategy=FedAvg(fraction_evaluate=0.0))
    assert ran.marked("statuses", 1) == {"client-1": "missing"}
    assert not ran.marked("statuses", 2)
    assert not ran.marked("statuses", 3)
    assert "node 12 answers no request of round 3" in caplog.text


def test_a_reply_in_anothers_name_is_left_out(run, caplog):
    caplog.set_level(logging.WARNING, "flwr")

    def forged(request, after):
        reply = reply_to(request, after)
        reply.metadata.__dict__["_src_node_id"] = 12345
        return reply

    ran = run(But(1, forged))
    assert ran.marked("statuses") == {"client-1": "missing"}
    assert "node 12345" in caplog.text


def test_arrays_in_another_order_are_put_in_order(run):
    """Flower's trimmed mean, Krum and clipping go by position."""
    from flwr.serverapp.strategy import Krum

    def turned(request, after):
        reply = reply_to(request, after)
        record = reply.content["arrays"]
        reply.content["arrays"] = ArrayRecord(dict(reversed(record.items())))
        return reply

    ran = run(But(0, turned), strategy=Krum())
    plain = Krum().start(LocalGrid(nodes(3), Honest()), model(), 1)
    assert list(ran.result.arrays) == list(plain.arrays)
    for key, array in numpy_of(plain.arrays).items():
        np.testing.assert_array_equal(ran.result.arrays[key].numpy(), array)


def test_one_valid_reply_is_not_charged(run):
    class Lone(Honest):
        def train(self, i, request):
            return super().train(i, request) if i == 0 else None

    ran = run(Lone())
    assert ran.content()["amounts"] == [0, 0, 0]
    assert len(ran.marked("statuses")) == 2


def test_no_valid_reply_leaves_the_model_and_books_an_empty_round(run):
    class Silent(Honest):
        def train(self, i, request):
            return None

    ran = run(Silent(), rounds=2)
    for t in (1, 2):
        assert ran.content(t)["amounts"] == [0, 0, 0]
        assert set(ran.marked("statuses", t).values()) == {"missing"}
    for key, array in numpy_of(model()).items():
        np.testing.assert_array_equal(ran.result.arrays[key].numpy(), array)


def test_odd_metrics_in_an_evaluation_do_not_stop_the_run(run, caplog):
    class Odd(Honest):
        def __call__(self, i, request):
            reply = super().__call__(i, request)
            if "loss" in next(iter(reply.content.metric_records.values())) and i == 2:
                return reply_to(request, None, strange=1.0)
            if request.metadata.message_type == "evaluate" and i == 1:
                return reply_to(request, None, loss=1.0, train_loss=None, **{"num-examples": -1})
            return reply

    caplog.set_level(logging.WARNING, "flwr")
    ran = run(Odd(), rounds=2)
    assert ran.result.evaluate_metrics_clientapp[2]["loss"] == 0.0  # client 0's alone
    assert ran.result.evaluate_metrics_clientapp[2]["strange"] == 1.0  # client 2's alone
    assert "evaluation by client-1 is ignored" in caplog.text


def test_reported_counts_are_ignored_when_the_terms_fix_the_weights(run):
    agreed = terms(weights=Weights("equal"))
    ran = run(Honest(examples=(10**6, -31, float("nan"))), agreed=agreed)
    even = FedAvg().start(LocalGrid(nodes(3), Honest(examples=(1, 1, 1))), model(), 1)
    assert not ran.marked("statuses")
    assert not ran.marked("weights")
    for key, array in numpy_of(even.arrays).items():
        np.testing.assert_allclose(ran.result.arrays[key].numpy(), array, rtol=1e-6)


def test_a_table_of_weights(run):
    names = tuple(f"client-{i}" for i in range(3))
    agreed = terms(members=names, weights=Weights("fixed", (1.0, 2.0, 5.0)))
    ran = run(Honest(examples=(9, 9, 9)), agreed=agreed)
    table = FedAvg().start(LocalGrid(nodes(3), Honest(examples=(1, 2, 5))), model(), 1)
    for key, array in numpy_of(table.arrays).items():
        np.testing.assert_allclose(ran.result.arrays[key].numpy(), array, rtol=1e-6)
    for i, own in enumerate((1, 2, 5)):
        others = [w for w in (1, 2, 5) if w != own]
        share = (1 + sum(others) ** 2 / sum(w**2 for w in others)) * own / 8
        wanted = share**2 * ran.client.norm(i, 1)
        assert ran.column("statistics")[f"client-{i}"] == pytest.approx(wanted, rel=1e-12)
