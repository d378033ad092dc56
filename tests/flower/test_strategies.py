"""Flower's strategies, wrapped: the same model, the right norms, balanced payments."""

import random

import numpy as np
import pytest
from flwr.serverapp import strategy as flower

from verax.flower import PaidStrategy
from verax.mechanism import FailurePolicy, Weights

from .grid import But, Honest, LocalGrid, model, nodes, numpy_of, reply_to, terms

COUNT = 7
ALL = {"min_train_nodes": COUNT, "min_evaluate_nodes": COUNT, "min_available_nodes": COUNT}
STRATEGIES = {
    "FedAvg": lambda: flower.FedAvg(**ALL),
    "FedAvgM": lambda: flower.FedAvgM(**ALL, server_momentum=0.9, server_learning_rate=0.5),
    "FedProx": lambda: flower.FedProx(**ALL, proximal_mu=0.1),
    "FedMedian": lambda: flower.FedMedian(**ALL),
    "FedTrimmedAvg": lambda: flower.FedTrimmedAvg(**ALL),
    "FedAdam": lambda: flower.FedAdam(**ALL),
    "FedAdagrad": lambda: flower.FedAdagrad(**ALL),
    "FedYogi": lambda: flower.FedYogi(**ALL),
    "QFedAvg": lambda: flower.QFedAvg(**ALL, client_learning_rate=0.1, q=0.3),
    "Krum": lambda: flower.Krum(**ALL, num_malicious_nodes=1),
    "MultiKrum": lambda: flower.MultiKrum(**ALL, num_malicious_nodes=1, num_nodes_to_select=3),
    "Bulyan": lambda: flower.Bulyan(**ALL, num_malicious_nodes=1),
    "DP, server clips": lambda: flower.DifferentialPrivacyServerSideFixedClipping(
        flower.FedAvg(**ALL), 0.0, 1.0, COUNT
    ),
    "DP, clients clip": lambda: flower.DifferentialPrivacyClientSideFixedClipping(
        flower.FedAvg(**ALL), 0.0, 1.0, COUNT
    ),
    "DP, server clips adaptively": lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(
        flower.FedMedian(**ALL), 0.0, COUNT
    ),
}
WEIGHING = {
    "FedAvg", "FedAvgM", "FedProx", "FedAdam", "FedAdagrad", "FedYogi", "MultiKrum",
    "DP, server clips", "DP, clients clip",
}  # fmt: skip


class Lossy(Honest):
    """Every client reports a loss of its own, for q-FedAvg."""

    def train(self, i, request):
        super().train(i, request)
        after = self.seen[i, request.content["config"]["server-round"]][1]
        return reply_to(request, after, **{"num-examples": self.examples[i], "train_loss": i + 0.5})


def weights_of(name, client):
    if name == "QFedAvg":
        raw = np.array([(i + 0.5 + 1e-10) ** 0.3 for i in range(COUNT)])
    elif name in WEIGHING:
        raw = np.array(client.examples, float)
    else:
        return np.ones(COUNT)
    return effective(raw)


def effective(counts):
    """(1 + E_i) w_i, in the plainest way: E_i is Kish's effective number of the others."""
    result = []
    for i, own in enumerate(counts):
        others = [count for j, count in enumerate(counts) if j != i]
        number = sum(others) ** 2 / sum(count**2 for count in others)
        result.append((1 + number) * own / sum(counts))
    return np.array(result)


@pytest.mark.parametrize("name", STRATEGIES)
def test_norms_payments_and_model(name, run):
    infos = sorted_nodes(COUNT)
    small = model(size=1_000)  # Flower's QFedAvg and Bulyan are slow
    ran = run(Lossy(), strategy=STRATEGIES[name](), infos=infos, rounds=2, arrays=small)
    bare = STRATEGIES[name]()
    expected = bare.start(LocalGrid(infos, Lossy()), model(size=1_000), 2)
    for key, array in numpy_of(expected.arrays).items():
        np.testing.assert_array_equal(ran.result.arrays[key].numpy(), array, strict=True)
    share = weights_of(name, ran.client)
    for t in (1, 2):
        booked = ran.column("statistics", t)
        for i in range(COUNT):
            wanted = share[i] ** 2 * ran.client.norm(i, t)
            assert booked[f"client-{i}"] == pytest.approx(wanted, rel=1e-12)
        amounts = ran.content(t)["amounts"]
        assert sum(amounts) == 0
        assert any(amounts)
        measured = ran.result.train_metrics_clientapp[t]["verax.norm.client-4"]
        assert measured == pytest.approx(ran.client.norm(4, t), rel=1e-12)
        own = {k: v for k, v in ran.result.train_metrics_clientapp[t].items() if "verax" not in k}
        assert own == dict(expected.train_metrics_clientapp[t])


def sorted_nodes(count):
    """Nodes whose order by key is that by node id, so that the bare strategy sums in that order."""
    from verax.flower.identity import fingerprint

    made = nodes(count)
    keys = sorted((info.public_key for info in made), key=fingerprint)
    for info, key in zip(made, keys, strict=True):
        info.public_key = key
    return made


@pytest.mark.parametrize("rule", ["squared-distance", "groves-ledyard"])
def test_rules_on_the_gram_matrix(rule, run):
    ran = run(agreed=terms(rule=rule, weights=Weights("reported")), rounds=1)
    updates = []
    for i in range(3):
        before, after = ran.client.seen[i, 1]
        updates.append(
            np.concatenate([(after[k].astype(float) - before[k]).ravel() for k in before])
        )
    share = effective([10, 20, 30])
    m = {f"client-{i}": share[i] * updates[i] for i in range(3)}
    labels = [ran.labels()[n] for n in ran.content()["accounts"]]
    wanted = [[float(m[a] @ m[b]) for b in labels] for a in labels]
    np.testing.assert_allclose(ran.content()["gram"], wanted, rtol=1e-12, atol=1e-12)


def test_a_broken_reply_does_not_spoil_the_gram_matrix(run):
    def broken(request, after):
        after["layer.weight"][3, 3] = np.inf
        return reply_to(request, after)

    agreed = terms(rule="squared-distance", weights=Weights("equal"))
    ran = run(But(1, broken), agreed=agreed, infos=nodes(4))
    assert ran.marked("statuses") == {"client-1": "rejected"}
    gram = np.array(ran.content()["gram"])
    labels = [ran.labels()[n] for n in ran.content()["accounts"]]
    ok = [int(name[-1]) for name in labels if name != "client-1"]
    norms = [ran.client.norm(i, 1) for i in ok]
    np.testing.assert_allclose(np.diagonal(gram), norms, rtol=1e-12)


def test_scaling_by_three_costs_nine_times_the_honest_norm(run, book):
    def scaled(request, after):
        before = numpy_of(request.content["arrays"])
        return reply_to(request, {k: before[k] + 3 * (after[k] - before[k]) for k in after})

    honest = Honest(examples=(10, 10, 10))
    agreed = terms(price=2.0, weights=Weights("equal"))
    ran = run(But(1, scaled, examples=(10, 10, 10)), agreed=agreed, rounds=1)
    LocalGrid(nodes(3), honest)
    norms = [ran.client.norm(i, 1) for i in range(3)]  # of the honest updates
    paid = ran.column("payments")
    assert paid["client-1"] == pytest.approx(
        2.0 * (9 * norms[1] - (norms[0] + norms[2]) / 2), rel=1e-5
    )
    from verax.ledger.statement import make_statement

    statement = make_statement(book, "federation", "client-1")
    assert not statement.differing
    assert statement.closing == ran.column("amounts")["client-1"]


def test_a_strategy_that_uses_no_update_charges_nobody(run):
    bulyan = flower.Bulyan(num_malicious_nodes=2)  # needs eleven replies
    ran = run(strategy=bulyan, agreed=terms(policy=FailurePolicy(error="flat-fee", fee=1.0)))
    assert not any(ran.content()["amounts"])
    assert set(ran.marked("reasons").values()) == {"the strategy used no update"}
    np.testing.assert_array_equal(
        numpy_of(ran.result.arrays)["layer.bias"], numpy_of(model())["layer.bias"]
    )


def test_trees_are_refused(book):
    with pytest.raises(ValueError, match="exchanges trees"):
        PaidStrategy(flower.FedXgbBagging(), terms=terms(), ledger=book)


def test_weights_that_the_strategy_would_not_use_are_refused(book):
    fixed = terms(members=("a", "b"), weights=Weights("fixed", (1.0, 2.0)))
    with pytest.raises(ValueError, match="FedMedian gives all replies the same weight"):
        PaidStrategy(flower.FedMedian(), terms=fixed, ledger=book)
    with pytest.raises(ValueError, match="QFedAvg weighs by the reported loss"):
        PaidStrategy(
            flower.QFedAvg(0.1), terms=terms(weights=Weights("equal")), ledger=book, federation="b"
        )


def test_half_of_the_members_a_round(run):
    random.seed(3)
    strategy = flower.FedAvg(fraction_train=0.5, min_train_nodes=2)
    ran = run(strategy=strategy, infos=nodes(6), rounds=4)
    for t in range(1, 5):
        assert len(ran.content(t)["accounts"]) == 3
        assert sum(ran.content(t)["amounts"]) == 0
