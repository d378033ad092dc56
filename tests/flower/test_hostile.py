"""Hostile members: what they send costs them, and neither ends the run nor costs the others."""

import logging
import math

import numpy as np
import pytest
from flwr.app import Array, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian

from verax.flower import PaidStrategy
from verax.mechanism import FailurePolicy, Weights

from .grid import (
    But,
    Honest,
    LocalGrid,
    model,
    nodes,
    numpy_of,
    record_of,
    reply_to,
    terms,
    training,
)
from .hostile import MALFORMED, array_of

ESCAPE = "\x1b[2Jall is well\r\n\u202e\x9b31m"


def same_model(a, b):
    for key, array in numpy_of(b).items():
        np.testing.assert_allclose(numpy_of(a)[key], array, rtol=1e-6)


# Replies that cannot be read


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_array_is_rejected_and_the_run_goes_on(name, run):
    def broken(request, after):
        reply = reply_to(request, after)
        reply.content["arrays"]["layer.bias"] = array_of(MALFORMED[name])
        return reply

    ran = run(But(1, broken), rounds=2)
    for t in (1, 2):
        assert ran.marked("statuses", t) == {"client-1": "rejected"}
        assert "'layer.bias'" in ran.marked("reasons", t)["client-1"]


@pytest.mark.parametrize("error", [RecursionError, MemoryError, KeyError, AssertionError, OSError])
def test_whatever_goes_wrong_while_a_reply_is_read_rejects_it_alone(error, run):
    class Bomb(Array):
        """Raises an error when somebody asks how it is serialised."""

        def __getattribute__(self, name):
            if name == "stype":
                raise error("boom")
            return super().__getattribute__(name)

    def exploding(request, after):
        reply = reply_to(request, after)
        reply.content["arrays"]["layer.bias"] = Bomb(after["layer.bias"])
        return reply

    ran = run(But(1, exploding))
    assert ran.marked("statuses") == {"client-1": "rejected"}
    assert ran.marked("reasons")["client-1"] == f"cannot be read ({error.__name__})"


def test_a_count_of_five_thousand_digits_is_rejected(run):
    def long(request, after):
        return reply_to(request, after, **{"num-examples": 10**5000})

    ran = run(But(1, long))
    assert "a number of more than 4000 digits" in ran.marked("reasons")["client-1"]


@pytest.mark.parametrize("who", [0, 1, 2])
def test_a_wider_type_does_not_become_everybodys_type(who, run):
    """An integer counter came back as float64 from every average; float128 would spread."""
    arrays = model()
    arrays["count"] = Array(np.arange(3))

    def wide(request, after):
        return reply_to(request, after | {"count": np.arange(3).astype(np.longdouble)})

    class Whole(But):
        def train(self, i, request):
            before = request.content["arrays"]
            counter = before.pop("count").numpy()
            reply = super().train(i, request)
            if "count" not in reply.content["arrays"]:
                reply.content["arrays"]["count"] = Array(counter.astype(np.int64))
            return reply

    ran = run(Whole(who, wide), arrays=arrays, rounds=2, agreed=terms(weights=Weights("equal")))
    assert not ran.marked("statuses", 2)
    assert ran.result.arrays["count"].dtype == "float64"


# Aggregates that fail


class Fragile(FedAvg):
    """Raises an error if a reply holds a value of 5000 or more."""

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        if any(m.content["arrays"]["scale"].numpy() >= 5000 for m in replies):
            raise ZeroDivisionError("a value that nobody expected")
        return super().aggregate_train(server_round, replies)


def poison(request, after):
    return reply_to(request, after | {"scale": np.float32(5000)})


@pytest.mark.parametrize("who", [0, 1, 2])
def test_the_reply_that_breaks_the_aggregate_is_found(who, run):
    ran = run(But(who, poison), strategy=Fragile(), rounds=2)
    for t in (1, 2):
        assert ran.marked("statuses", t) == {f"client-{who}": "rejected"}
        reason = ran.marked("reasons", t)[f"client-{who}"]
        assert reason == "the strategy cannot use it (ZeroDivisionError)"
    assert ran.result.arrays["scale"].numpy() < 5000


def test_several_replies_that_break_the_aggregate_are_found(run):
    class Several(Honest):
        def train(self, i, request):
            honest = super().train(i, request)
            return honest if i in (0, 3) else poison(request, self.seen[i, 1][1])

    ran = run(Several(), strategy=Fragile(), infos=nodes(5))
    assert ran.marked("statuses") == dict.fromkeys(("client-1", "client-2", "client-4"), "rejected")


def test_a_strategy_that_always_fails_ends_the_run_with_its_own_error(run, book):
    class Broken(FedAvg):
        def aggregate_train(self, server_round, replies):
            raise ZeroDivisionError("a fault of the operator's")

    with pytest.raises(ZeroDivisionError, match="operator"):
        run(strategy=Broken())
    assert book.rounds("federation") == []


def test_the_state_of_a_strategy_does_not_suffer_from_the_search(run):
    class FragileAdam(FedAdam):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            result = super().aggregate_train(server_round, replies)
            if any(m.content["arrays"]["scale"].numpy() >= 5000 for m in replies):
                raise ZeroDivisionError("after the moments were changed")
            return result

    ran = run(But(1, poison), strategy=FragileAdam(), rounds=3)
    two = [nodes(3)[0], nodes(3)[2]]

    class Two(Honest):
        def __call__(self, i, request):
            return super().__call__(2 * i, request)

    same_model(ran.result.arrays, FedAdam().start(LocalGrid(two, Two()), model(), 3).arrays)


def test_an_aggregate_that_overflows_is_traced_to_the_largest_update(run):
    """Each reply is finite, and so is its norm, but not their sum in float32."""

    class Huge(Honest):
        def train(self, i, request):
            honest = super().train(i, request)
            if i == 0:
                return honest
            value = np.float32(3e38 if i == 1 else 3.2e38)
            return reply_to(request, self.seen[i, 1][1] | {"scale": value})

    class Sum(FedAvg):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            total = sum(m.content["arrays"]["scale"].numpy() for m in replies)
            arrays["scale"] = Array(np.asarray(total, dtype=np.float32))
            return arrays, metrics

    ran = run(Huge(), strategy=Sum(), agreed=terms(0.0))
    assert ran.marked("statuses") == {"client-2": "rejected"}
    assert np.isfinite(ran.result.arrays["scale"].numpy())


# Metrics


def metrics(**kwargs):
    return lambda request, after: reply_to(request, after, **kwargs)


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize(
    "odd",
    [
        {"train_loss": None},
        {"train_loss": None, "a": 1.0},
        {"more": 1.0},
        {"train_loss": [0.5, 0.5]},
        {"train_loss": []},
    ],
)
def test_of_two_members_with_different_metrics_neither_is_rejected(odd, who, run):
    """A vote that ends in a tie would reject the honest one, and the other's model won for free."""
    ran = run(But(who, metrics(**odd)), infos=nodes(2))
    assert not ran.marked("statuses")
    assert any(ran.content()["amounts"])


def test_another_metric_record_is_no_reason_to_stop(run):
    def other(request, after):
        content = RecordDict(
            {"arrays": record_of(after), "my own": MetricRecord({"num-examples": 20, "x": 1.0})}
        )
        return Message(content, reply_to=request)

    ran = run(But(1, other), rounds=2)
    assert not ran.marked("statuses", 2)
    assert ran.result.train_metrics_clientapp[2]["train_loss"] == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, [math.nan], 10**400])
def test_metrics_that_are_not_finite_are_left_out_and_reported(bad, run, caplog):
    class Odd(Honest):
        def __call__(self, i, request):
            if not training(request):
                loss = bad if i == 1 else 3.0 * i
                return reply_to(request, None, loss=loss, train_loss=None)
            honest = super().__call__(i, request)
            if i == 1:
                honest.content["metrics"]["train_loss"] = bad
            return honest

    caplog.set_level(logging.WARNING, "flwr")
    ran = run(Odd(), rounds=2)
    assert not ran.marked("statuses", 2)
    assert ran.result.train_metrics_clientapp[2]["train_loss"] == pytest.approx(0.5)
    assert ran.result.evaluate_metrics_clientapp[2]["loss"] == pytest.approx(3.0)
    assert "metric train_loss of client-1 is" in caplog.text
    assert "metric loss of client-1 is" in caplog.text


def test_a_metric_is_the_weighted_average_of_those_who_report_it(run):
    class Some(Honest):
        def train(self, i, request):
            honest = super().train(i, request)
            if i != 1:
                honest.content["metrics"]["own"] = [float(i), 2.0 * i]
            return honest

    ran = run(Some(examples=(10, 20, 30)))
    assert not ran.marked("statuses")
    # (10 · 0 + 30 · 2) / 40 = 1.5, whatever client 1's weight is.
    assert ran.result.train_metrics_clientapp[1]["own"] == pytest.approx([1.5, 3.0])


def test_names_of_metrics_cannot_imitate_those_of_the_layer(run):
    forged = {"verax.payment.client-0": -1e9, "verax.counted": 99, ESCAPE: 1.0, "x" * 300: 1.0}
    ran = run(But(1, metrics(**forged)))
    seen = ran.result.train_metrics_clientapp[1]
    assert seen["verax.counted"] == 3
    assert seen["verax.payment.client-0"] == pytest.approx(ran.column("payments")["client-0"])
    assert all(key.isprintable() and len(key) < 100 for key in seen)


def test_a_function_for_metrics_that_a_member_breaks_costs_nobody_an_update(run, caplog):
    def strict(contents, weighted_by):
        assert all("odd" not in content["metrics"] for content in contents)
        return MetricRecord({"mean": 1.0})

    caplog.set_level(logging.WARNING, "flwr")
    strategy = FedAvg(train_metrics_aggr_fn=strict, evaluate_metrics_aggr_fn=strict)

    class Odd(Honest):
        def __call__(self, i, request):
            reply = super().__call__(i, request)
            if i == 1:
                reply.content["metrics"]["odd"] = 1.0
            return reply

    ran = run(Odd(), strategy=strategy, rounds=2)
    assert not ran.marked("statuses", 2)
    assert "the metrics of round 2 are left out" in caplog.text
    same_model(ran.result.arrays, FedAvg().start(LocalGrid(nodes(3), Honest()), model(), 2).arrays)


# Who is asked


CLOSED = ("client-0", "client-1", "client-2")


class Watched(Honest):
    """Remembers who was sent a model, and lies in evaluations."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.asked = []

    def __call__(self, i, request):
        self.asked.append((i, request.metadata.message_type))
        if not training(request) and i > 2:
            return reply_to(request, None, loss=-1000.0, train_loss=None)
        return super().__call__(i, request)


def test_closed_terms_are_closed_at_evaluation(run):
    client = Watched()
    ran = run(client, agreed=terms(members=CLOSED), infos=nodes(5), rounds=2)
    assert {i for i, _ in client.asked} == {0, 1, 2}
    assert ran.result.evaluate_metrics_clientapp[2]["loss"] == pytest.approx(1.0)


@pytest.mark.parametrize("strategy", [FedAvg, FedMedian])
def test_strangers_take_no_members_place_in_a_sample(strategy, run):
    client = Watched()
    sampling = strategy(fraction_train=1.0, fraction_evaluate=0.5, min_evaluate_nodes=2)
    agreed = terms(members=CLOSED)
    ran = run(client, strategy=sampling, agreed=agreed, infos=nodes(12), rounds=4)
    for t in range(1, 5):
        assert not ran.marked("statuses", t)
    assert sum(kind == "evaluate" for _, kind in client.asked) == 4 * 2
    assert {i for i, _ in client.asked} == {0, 1, 2}


def test_strangers_are_not_counted_as_members(run):
    """Two members are needed; one and four strangers are connected."""
    agreed, infos = terms(members=CLOSED), nodes(7)
    run(agreed=agreed, infos=infos[:3], run="first")  # all three have an account
    with pytest.raises(TimeoutError, match=r"1 nodes are connected, 2 are needed; 4 more nodes"):
        run(agreed=agreed, infos=[infos[0], *infos[3:]], run="second")


def test_an_evaluation_in_anothers_name_and_a_second_one_are_ignored(run):
    class Loud(Honest):
        def __call__(self, i, request):
            honest = super().__call__(i, request)
            if training(request) or i != 1:
                return honest
            forged = reply_to(request, None, loss=-1000.0, train_loss=None)
            forged.metadata.__dict__["_src_node_id"] = 99
            return [forged, honest, honest]

    ran = run(Loud())
    assert ran.result.evaluate_metrics_clientapp[1]["loss"] == pytest.approx(1.0)


def test_nobody_can_report_an_error_for_somebody_else(run):
    class Forging(Honest):
        def train(self, i, request):
            honest = super().train(i, request)
            if i != 2:
                return honest
            forged = Message(Error(2, "forged"), reply_to=request)
            forged.metadata.__dict__["_src_node_id"] = 12  # another member's node
            return [forged, honest]

    ran = run(Forging())
    assert not ran.marked("statuses")


# What an absence, an error and a light reply cost


def failed(request, after):
    return Message(Error(code=2, reason="out of memory"), reply_to=request)


def test_an_error_costs_what_silence_costs(run):
    paid = {}
    for name, other in (("error", failed), ("missing", lambda request, after: None)):
        agreed = terms(policy=FailurePolicy(missing="largest"))
        ran = run(But(1, other), agreed=agreed, federation=name)
        assert ran.marked("statuses") == {"client-1": name}
        paid[name] = ran.column("payments")["client-1"]
    assert paid["error"] == paid["missing"] > 0


class Light(Honest):
    """Clients from the third on send the model back, and report almost no examples."""

    def __init__(self, count):
        super().__init__(examples=(10_000, 10_000, 10_000))
        self.count = count

    def train(self, i, request):
        if i < 3:
            return super().train(i, request)
        before = numpy_of(request.content["arrays"])
        return reply_to(request, before, **{"num-examples": self.count})


@pytest.mark.parametrize("identities", [1, 10])
@pytest.mark.parametrize("rule", ["squared-norm", "squared-distance"])
def test_light_replies_do_not_multiply_what_the_others_pay(identities, rule, run):
    """Counted by heads, one more reply multiplied all levies by (4/3)², ten by (13/3)²."""
    alone = run(Light(1), agreed=terms(rule=rule), federation="alone")
    joined = run(
        Light(1), agreed=terms(rule=rule), federation="joined", infos=nodes(3 + identities)
    )
    share = identities * 1 / 20_000  # of what the others of a member report
    for i in range(3):
        before, after = (norm_of(each, f"client-{i}") for each in (alone, joined))
        assert before * (1 - 2 * share) <= after <= before * (1 + share) ** 4
    if rule == "squared-norm":
        levies = {name: 0.5 * norm for name, norm in joined.column("statistics").items()}
        paid = joined.column("payments")
        assert all(paid[name] <= levies[name] for name in paid)
        assert -sum(min(amount, 0) for amount in paid.values()) <= sum(levies.values())


def norm_of(ran, name):
    """The effective squared norm of a member in the book."""
    content, labels = ran.content(), ran.labels()
    if content["gram"] is None:
        return ran.column("statistics")[name]
    k = [labels[number] for number in content["accounts"]].index(name)
    return content["gram"][k][k]


def test_light_replies_fail_below_the_limit_of_the_terms(run):
    agreed = terms(weights=Weights("reported", fewest=100, most=20_000))
    ran = run(Light(99), agreed=agreed, infos=nodes(4))
    assert ran.marked("statuses") == {"client-3": "rejected"}
    assert "≥ 100 and ≤ 20000, the limits of the terms" in ran.marked("reasons")["client-3"]


# What is shown


def test_control_characters_reach_neither_log_nor_book(run, caplog):
    def loud(request, after):
        return Message(Error(2, ESCAPE), reply_to=request)

    def named(request, after):
        return reply_to(request, after | {ESCAPE: np.zeros(3, np.float32)})

    def measured(request, after):
        return reply_to(request, after, **{"a" + ESCAPE: math.nan})

    caplog.set_level(logging.DEBUG, "flwr.verax")
    for k, other in enumerate((loud, named, measured)):
        ran = run(But(1, other), federation=f"f{k}")
        for text in ran.marked("reasons").values():
            assert text.isprintable()
    own = [r.getMessage() for r in caplog.records if r.name == "flwr.verax"]
    assert any("all is well" in text for text in own)
    for text in own:
        assert text.replace("\t", "").isprintable(), repr(text)


def test_a_reason_of_a_megabyte_is_cut(run):
    def long(request, after):
        return reply_to(request, after | {"x" * 10**6: np.zeros(3, np.float32)})

    ran = run(But(1, long))
    assert len(ran.marked("reasons")["client-1"]) <= 300


# Terms and names of runs


def test_old_terms_are_refused_and_the_difference_is_named(book):
    old, new = terms(0.5), terms(0.25, policy=FailurePolicy(missing="largest"))
    book.create_federation("federation", old)
    book.change_terms("federation", new, from_round=7)
    message = (
        r"other terms from round 7 on: policy.error is 'largest' in the book and 'excuse' in "
        r"`terms`; policy.missing .*; price.values is 0.25 in the book and 0.5 in `terms`"
    )
    with pytest.raises(ValueError, match=message):
        PaidStrategy(FedAvg(), terms=old, ledger=book)
    assert PaidStrategy(FedAvg(), terms=new, ledger=book).terms == new
    assert PaidStrategy(FedAvg(), ledger=book).terms == new


@pytest.mark.parametrize(
    "name", ["..", ".", ".hidden", "", " ", "a/b", "/etc", "..\\x", "a\nb", "a\x1b[0m", "x" * 201,
             "\u202eabc", "ü" * 40, "a\0b"],
)  # fmt: skip
def test_names_of_runs_that_lead_elsewhere_are_refused(name, book, tmp_path):
    with pytest.raises(ValueError, match=r"^run "):
        PaidStrategy(FedAvg(), terms=terms(), ledger=book, run=name, checkpoints=tmp_path / "kept")
    assert list(tmp_path.glob("kept*")) == []


def test_a_members_own_record_agrees_where_weights_differ(run, book_path, tmp_path):
    """The verifier computes the effective weight by itself."""
    import json

    from verax.verifier import verify

    ran = run(Honest(examples=(10, 200, 3000)))
    for i in range(3):
        own = tmp_path / f"{i}.jsonl"
        own.write_text(json.dumps({"run": "7", "round": 1, "norm": ran.client.norm(i, 1)}) + "\n")
        assert verify(book_path, mine=own, member=f"client-{i}").ok
        own.write_text(json.dumps({"run": "7", "round": 1, "norm": 2 * ran.client.norm(i, 1)}))
        assert not verify(book_path, mine=own, member=f"client-{i}").ok


def test_a_constant_price_is_named_when_a_long_run_begins(run, caplog):
    caplog.set_level(logging.WARNING, "flwr")
    run(rounds=9, federation="short", arrays=model(size=100))
    assert "the price is the same" not in caplog.text
    run(rounds=10, federation="long", arrays=model(size=100))
    assert "the price is the same in all of 10 rounds" in caplog.text
