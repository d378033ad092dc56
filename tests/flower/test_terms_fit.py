"""Terms that do not fit what is charged are refused, or named in the log: traps 8 to 11."""

import logging
import re
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from verax.flower import PaidStrategy, identified, run_in_process
from verax.flower.names import match_names
from verax.ledger import Book
from verax.mechanism import Arrays, Audited, FailurePolicy, Price, Terms, Weights
from verax.verifier import verify

from .grid import (
    But,
    Honest,
    LocalGrid,
    context,
    model,
    nodes,
    numpy_of,
    record_of,
    reply_to,
    round_of,
    step,
    terms,
    training,
)

THREE = ("client 0", "client 1", "client 2")


def audited(low=2.0, high=18.0, **changes):
    """Honest clients of `grid.py` have squared norms of 2, 8 and 18."""
    known = Audited(
        "model difference",
        "FedAvg",
        "one step of size 0.01",
        rounds=5,
        weights="equal",
        members=3,
        starts=(1, 3),
        lowest=(low, low),
        highest=(high, high),
        audit="digits",
        digest="0" * 64,
        versions="verax 0.2.0",
    )
    return replace(known, **changes)


def agreed(known=None, **kwargs):
    return terms(weights=Weights("equal"), audited=known or audited(), **kwargs)


# What was audited


@pytest.mark.parametrize(
    ("known", "listed", "message"),
    [
        ({"message": "gradient"}, (), r"a reply in Flower is a model.*verax audit --app FOLDER"),
        ({"weights": "reported"}, (), r'audited with weights "reported", and weights.kind is "equ'),
        ({"members": 4}, THREE, "audited for 4 members, and list 3"),
    ],
)
def test_trap_8_terms_for_something_else_are_refused_before_the_book_has_them(
    known, listed, message, book
):
    with pytest.raises(ValueError, match=message):
        PaidStrategy(FedAvg(), ledger=book, terms=agreed(audited(**known), members=listed))
    assert book.federations() == []
    PaidStrategy(FedAvg(), ledger=book, terms=agreed(members=listed))


def test_terms_that_are_in_the_book_are_checked_too(book):
    book.create_federation("federation", agreed(audited(message="gradient")))
    with pytest.raises(ValueError, match="messages of the kind"):
        PaidStrategy(FedAvg(), ledger=book)


def test_terms_that_say_nothing_are_accepted_and_the_log_says_so(run, caplog):
    caplog.set_level(logging.INFO, "flwr")
    run()
    assert caplog.text.count("nothing says what they were audited for") == 1


def test_more_rounds_than_audited_are_a_warning(run, caplog):
    run(agreed=agreed(), rounds=6)
    assert "num_rounds is 6, the terms were audited for 5 rounds" in caplog.text
    assert "the audit saw" not in caplog.text


def larger(factor):
    """Client 1 sends its update times a factor."""

    def other(request, after):
        before = numpy_of(request.content["arrays"])
        return reply_to(request, {k: before[k] + factor * (after[k] - before[k]) for k in before})

    return But(1, other, examples=(10, 10, 10))


@pytest.mark.parametrize("factor", [0.3, 2.9])
def test_trap_10_norms_within_a_factor_of_four_of_the_band_are_nothing_to_warn_of(
    factor, run, caplog
):
    run(larger(factor), agreed=agreed(), rounds=4)
    assert "the audit saw" not in caplog.text


@pytest.mark.parametrize("factor", [0.2, 10])
def test_trap_10_a_norm_outside_the_band_is_a_warning_in_the_first_three_rounds(
    factor, run, caplog
):
    ran = run(larger(factor), agreed=agreed(), rounds=5)
    warnings = [r.getMessage() for r in caplog.records if "the audit saw" in r.getMessage()]
    assert len(warnings) == 3
    assert warnings[0].startswith("Verax: round 1: client-1 sent an update of effective squared")
    norm = ran.column("statistics")["client-1"]
    assert f"norm {norm:.4g}, the audit saw 2 to 18" in warnings[0]
    assert "another optimiser, step or number of local steps" in warnings[0]
    assert "one step of size 0.01" in warnings[0]


def test_trap_10_with_stop_nothing_is_charged(run, book):
    stop = agreed(policy=FailurePolicy(outside="stop"))
    with pytest.raises(ValueError, match=r'client-1 sent .* 2 to 18, .*"stop": nothing is charged'):
        run(larger(10), agreed=stop)
    assert book.rounds("federation") == []
    run(agreed=stop, run="honest")
    assert len(book.rounds("federation")) == 1


def test_the_effective_norm_is_compared(run, caplog):
    """Of 1, 1 and 3 examples, the last count (1 + 2)² (3/5)² = 3.24 times; of 10, 6.25 times."""
    by_count = terms(audited=audited(weights="reported"))
    run(Honest(examples=(1, 1, 3)), agreed=by_count, run="in")
    assert "the audit saw" not in caplog.text
    run(Honest(examples=(1, 1, 10)), agreed=by_count, run="out")
    assert re.search(r"client-2 sent an update of effective squared norm 11\d\.", caplog.text)


# Members


def apps(agreed, path, done):
    """A ServerApp that charges by the terms, and a ClientApp without mods."""
    server, client = ServerApp(), ClientApp()

    @server.main()
    def main(grid, _):
        paid = PaidStrategy(FedAvg(fraction_evaluate=0.0), ledger=path, terms=agreed)
        done.append(paid.start(grid, model(), 2))

    @client.train()
    def train(request, now):
        i, before = now.node_config["partition-id"], numpy_of(request.content["arrays"])
        return reply_to(request, step(i, round_of(request), before))

    return server, client


PER_MEMBER = Price.constant((1.0, 2.0, 4.0))


def check_payments(content, labels):
    """p_i = C_i n_i − mean of the others' C_j n_j, with prices 1, 2, 4 and norms 2, 8, 18."""
    label = [labels[n] for n in content["accounts"]]
    norms = dict(zip(label, content["statistics"], strict=True))
    paid = dict(zip(label, content["payments"], strict=True))
    for i, name in enumerate(THREE):
        assert norms[name] == pytest.approx(2 * (1 + i) ** 2, rel=0.05), "who is who"
    levies = {name: 2**i * norms[name] for i, name in enumerate(THREE)}
    for name in THREE:
        others = sum(levies.values()) - levies[name]
        assert paid[name] == pytest.approx(levies[name] - others / 2, rel=1e-9)


@pytest.mark.parametrize("form", ["client {}", "client-{}", "client_{}", "{}"])
def test_in_one_process_an_audits_names_fit_at_once(form, tmp_path):
    names = tuple(form.format(i) for i in range(3))
    given = Terms(PER_MEMBER, members=names, weights=Weights("equal"))
    done = []
    run_in_process(*apps(given, tmp_path / "book.db", done), 3)
    run_in_process(*apps(given, tmp_path / "book.db", done), 3, run_id=2)
    assert len(done) == 2
    assert verify(tmp_path / "book.db").ok
    with Book.open(tmp_path / "book.db") as book:
        labels = {a.number: f"client {a.label[-1]}" for a in book.members("federation")}
        contents = [record.content for record in book.records("federation")]
    rounds = [content for content in contents if content["kind"] == "round"]
    assert len(rounds) == 4
    for content in rounds:
        check_payments(content, labels)


@pytest.mark.parametrize("names", [("north", "south", "west"), ("client 0", "client 1", "west")])
def test_names_that_cannot_match_are_refused_at_once_with_both_lists(names, tmp_path):
    both = rf"no node is .*west: the terms list {', '.join(names)}, the connected nodes are "
    given = Terms(PER_MEMBER, members=names, weights=Weights("equal"))
    with pytest.raises(ValueError, match=both + "client-0, client-1, client-2"):
        run_in_process(*apps(given, tmp_path / "book.db", []), 3)


def test_an_exact_name_is_preferred_and_two_of_one_form_are_not_matched():
    assert match_names(["client-0"], ["client 0", "north"]) == {"client-0": "client 0"}
    assert match_names(["client-0"], ["client 0", "0"]) == {}
    assert match_names(["client-0", "client_0"], ["client 0"]) == {}
    assert match_names(["Client 0", "client x"], ["client 0", "x"]) == {}


def test_a_key_is_not_lost_to_a_name_of_the_same_form(run):
    """The node `client-0` keeps its account, although another node is called `client 0` now."""
    given = terms(members=("client-0", "client-1", "client-2"))
    run(agreed=given, run="first")
    infos = [*nodes(3), *nodes(4)[3:]]
    infos[0].name, infos[3].name = "renamed", "client 0"
    ran = run(agreed=given, infos=infos, run="second")
    assert not ran.content(1, "second")["statuses"]
    assert {i for i, _ in ran.client.seen} == {0, 1, 2}


class Simulated:
    """Clients of a simulation: they know their partition, the grid only a random node id."""

    def __init__(self, mods, fail=(), partitions=(0, 1, 2)):
        self.app, self.fail, self.partitions = ClientApp(mods=mods), fail, partitions
        self.contexts = [context(i) for i in partitions]

        @self.app.train()
        def train(request, now):
            i, before = now.node_config["partition-id"], numpy_of(request.content["arrays"])
            return reply_to(request, step(i, round_of(request), before))

        @self.app.evaluate()
        def evaluate(request, now):
            return reply_to(request, None, loss=1.0, train_loss=None)

    def __call__(self, i, request):
        if training(request) and (i, round_of(request)) in self.fail:
            return Message(Error(2, "out of memory"), reply_to=request)
        return self.app(request, self.contexts[i])


class Strict(FedAvg):
    """Refuses replies with records that a client without the mod would not send."""

    def aggregate_train(self, server_round, replies):
        for message in replies:
            assert set(message.content) == {"arrays", "metrics"}
        return super().aggregate_train(server_round, replies)


def simulated_nodes(seed):
    """Partition i has the i-th of these ids: a new order in each simulation."""
    ids = np.random.default_rng(seed).integers(10**6, 2**62, 3)
    return [NodeInfo(node_id=int(node), public_key=b"random") for node in ids]


@pytest.mark.parametrize("seed", range(4))
def test_trap_11_prices_go_to_the_right_members_of_a_simulation(seed, run):
    given = Terms(PER_MEMBER, members=THREE, weights=Weights("equal"))
    infos = simulated_nodes(seed)
    ran = run(Simulated([identified]), agreed=given, infos=infos, rounds=2, strategy=Strict())
    for t in (1, 2):
        check_payments(ran.content(t), ran.labels())


@pytest.mark.parametrize(
    "changes",
    [
        {"price": PER_MEMBER},
        {"allowances": ((1.0, -1.0, 0.0),)},
        {"weights": Weights("fixed", (1.0, 2.0, 3.0))},
    ],
)
def test_trap_11_without_the_mod_numbers_per_member_are_refused(changes, run, book):
    given = replace(terms(members=THREE, weights=Weights("equal")), **changes)
    with pytest.raises(ValueError, match=r"says nothing.*client 0, client 1, client 2.*identified"):
        run(Simulated([]), agreed=given, infos=simulated_nodes(0))
    assert book.rounds("federation") == []


def test_partitions_that_are_not_listed_are_refused(run, book):
    given = Terms(PER_MEMBER, members=("north", "south", "west"), weights=Weights("equal"))
    with pytest.raises(ValueError, match=r"says 2.*the terms list north, south, west"):
        run(Simulated([identified]), agreed=given, infos=simulated_nodes(0))
    assert book.rounds("federation") == []


def test_two_clients_that_say_they_are_the_same_member(run, book):
    infos = simulated_nodes(0)
    twice = sorted(info.node_id for info in infos[1:])
    given = terms(members=THREE)
    with pytest.raises(ValueError, match=f"nodes {twice[0]} and {twice[1]} both say .*'client 1'"):
        run(Simulated([identified], partitions=(0, 1, 1)), agreed=given, infos=infos)
    assert book.rounds("federation") == []


def test_a_client_of_a_simulation_that_fails_is_missing_until_it_says_who_it_is(run, caplog):
    given = Terms(PER_MEMBER, members=THREE, weights=Weights("equal"))
    client = Simulated([identified], fail={(1, 1), (0, 3)})
    ran = run(client, agreed=given, infos=simulated_nodes(1), rounds=3)
    assert ran.marked("statuses", 1) == {"client 1": "missing"}
    assert "has not said which member it is" in caplog.text
    check_payments(ran.content(2), ran.labels())
    assert ran.marked("statuses", 3) == {"client 0": "error"}


def test_a_simulation_in_which_every_client_fails(run):
    given = Terms(PER_MEMBER, members=THREE, weights=Weights("equal"))
    client = Simulated([identified], fail={(i, 1) for i in range(3)})
    ran = run(client, agreed=given, infos=simulated_nodes(1), rounds=2)
    assert set(ran.marked("statuses", 1).values()) == {"missing"}
    check_payments(ran.content(2), ran.labels())


def test_a_registered_name_wins_over_what_a_client_says(run):
    given = Terms(PER_MEMBER, members=THREE, weights=Weights("equal"))
    ran = run(Simulated([identified], partitions=(2, 2, 2)), agreed=given, strategy=Strict())
    assert ran.labels() == {1: "client 0", 2: "client 1", 3: "client 2"}
    assert not ran.content()["statuses"]


# Arrays


class Normalised(Honest):
    """Clients with a BatchNorm layer: they count batches as int64, whatever the server sends."""

    def train(self, i, request):
        t = round_of(request)
        before = numpy_of(request.content["arrays"])
        counter = before.pop("bn.num_batches_tracked")
        after = step(i, t, before, self.size)
        self.seen[i, t] = before, after
        count = np.asarray(int(counter) + 50 * (1 + i), dtype=np.int64)
        order = request.content["arrays"]
        return reply_to(request, {name: after.get(name, count) for name in order})


def normalised_model():
    rng = np.random.default_rng(0)
    arrays = {
        "bn.weight": rng.standard_normal(40).astype(np.float32),
        "bn.running_var": np.ones(40, np.float32),
        "bn.num_batches_tracked": np.array(0),
        "out.weight": rng.standard_normal((40, 10)).astype(np.float32),
    }
    return record_of(arrays)


EVEN = (10, 10, 10)


def test_trap_9_batchnorm_trains_as_without_payments_and_its_counter_costs_nothing(run):
    ran = run(Normalised(EVEN), arrays=normalised_model(), rounds=4)
    for t in range(1, 5):
        assert ran.content(t)["statuses"] == {}
        for i in range(3):
            norm = ran.column("statistics", t)[f"client-{i}"]
            assert norm == pytest.approx(ran.client.norm(i, t), rel=1e-12)
    plain = FedAvg().start(LocalGrid(nodes(3), Normalised(EVEN)), normalised_model(), 4)
    assert list(ran.result.arrays) == list(plain.arrays)
    for key in ("bn.weight", "bn.running_var", "out.weight"):
        expected = plain.arrays[key].numpy()
        np.testing.assert_array_equal(ran.result.arrays[key].numpy(), expected)
    assert plain.arrays["bn.num_batches_tracked"].numpy() == 400
    assert ran.result.arrays["bn.num_batches_tracked"].numpy() == 0


def test_an_array_that_is_not_charged_cannot_steer(run):
    class Steering(Normalised):
        def train(self, i, request):
            reply = super().train(i, request)
            if i == 1:
                arrays = numpy_of(reply.content["arrays"])
                arrays["bn.num_batches_tracked"] = np.array(np.nan, np.float32)
                reply.content["arrays"] = record_of(arrays)
            return reply

    ran = run(Steering(EVEN), arrays=normalised_model(), rounds=2)
    assert ran.content(2)["statuses"] == {}
    assert ran.result.arrays["bn.num_batches_tracked"].numpy() == 0


def test_a_counter_that_is_charged_may_still_change_between_integer_and_floating(run):
    charged = terms(arrays=Arrays(()))
    ran = run(Normalised(EVEN), arrays=normalised_model(), rounds=3, agreed=charged)
    assert ran.content(3)["statuses"] == {}
    norms = ran.column("statistics", 3)
    for i in range(3):
        counted = (50 * (1 + i)) ** 2
        assert norms[f"client-{i}"] == pytest.approx(counted + ran.client.norm(i, 3), rel=1e-12)
    assert ran.result.arrays["bn.num_batches_tracked"].numpy() == 300


def test_integers_in_place_of_floats_do_not_change_the_type_of_the_model(run):
    """Otherwise honest replies would have the wrong type in the next round."""

    def rounded(request, after):
        return reply_to(request, {k: np.round(v).astype(np.int32) for k, v in after.items()})

    ran = run(But(0, rounded), rounds=2)
    assert ran.content(2)["statuses"] == {}
    assert all(array.dtype == np.float32 for array in numpy_of(ran.result.arrays).values())


def test_patterns_that_leave_nothing_to_charge_are_refused(run):
    with pytest.raises(ValueError, match=r"uncharged is \['\*'\], which leaves none of the model"):
        run(agreed=terms(arrays=Arrays(("*",))))


def test_batchnorm_of_pytorch(run):
    torch = pytest.importorskip("torch")
    from flwr.app import ArrayRecord

    def network():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))

    class Torch(Honest):
        def train(self, i, request):
            net = network()
            net.load_state_dict(request.content["arrays"].to_torch_state_dict())
            inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(i))
            optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
            optimiser.zero_grad()
            (net(inputs) ** 2).mean().backward()
            optimiser.step()
            reply = reply_to(request, {})
            reply.content["arrays"] = ArrayRecord(net.state_dict())
            return reply

    initial = ArrayRecord(network().state_dict())
    ran = run(Torch(), arrays=initial, rounds=3)
    plain = FedAvg().start(LocalGrid(nodes(3), Torch()), ArrayRecord(network().state_dict()), 3)
    for t in (1, 2, 3):
        assert ran.content(t)["statuses"] == {}
        assert all(norm < 1 for norm in ran.content(t)["statistics"])
    for key in plain.arrays:
        if key != "1.num_batches_tracked":
            expected = plain.arrays[key].numpy()
            np.testing.assert_array_equal(ran.result.arrays[key].numpy(), expected)
