"""Who pays: keys, names, node ids, and terms that list their members."""

import base64
import hashlib
import logging

import pytest
from cryptography.hazmat.primitives import serialization

from verax.flower.identity import fingerprint, node_of
from verax.mechanism import Price, Terms, Weights

from .grid import Honest, LocalGrid, key_pem, nodes, terms


def listed(*names, **kwargs):
    return terms(members=names, **kwargs)


def test_a_member_is_the_fingerprint_of_its_key(run, book):
    run()
    members = book.members("federation")
    assert {m.label for m in members} == {"client-0", "client-1", "client-2"}
    ssh = serialization.load_pem_public_key(key_pem(1)).public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    blob = base64.b64decode(ssh.split()[1])
    wanted = "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    assert next(m.member for m in members if m.label == "client-1") == wanted


def test_bytes_that_are_no_key_have_no_fingerprint():
    assert fingerprint(b"") == fingerprint(b"\x00" * 32) == ""


def test_a_key_made_at_the_start_of_a_supernode_proves_nothing():
    info = nodes(1)[0]
    assert node_of(info).key
    info.name = ""
    assert node_of(info).key == ""
    assert node_of(info, "key").key
    with pytest.raises(ValueError, match="turn SuperNode authentication on"):
        node_of(nodes(1, names=False)[0], "key")


def test_without_keys_the_node_id_is_the_member_and_a_warning_says_why_that_is_weak(
    run, book, caplog
):
    caplog.set_level(logging.WARNING, "flwr")
    run(infos=nodes(3, names=False), rounds=3)
    assert [m.member for m in book.members("federation")] == ["node 11", "node 12", "node 13"]
    assert caplog.text.count("leave their debts behind") == 1


def test_a_restarted_supernode_keeps_its_account_by_its_key(run, book):
    run(infos=nodes(3), run="first")
    run(infos=nodes(3, first=71), run="second")  # new node ids, the same keys
    assert len(book.members("federation")) == 3
    assert len(book.rounds("federation")) == 2


def test_a_renamed_node_keeps_its_account(run, book):
    run(run="first")
    infos = nodes(3)
    infos[0].name = "north"
    run(infos=infos, run="second")
    assert len(book.members("federation")) == 3


def test_a_name_that_another_key_holds_is_not_given_away(run, book, caplog):
    """Names are not unique in Flower, and cheap."""
    infos = nodes(4)
    infos[3].name = "client-0"
    ran = run(infos=infos)
    assert len(ran.labels()) == 4
    assert sorted(ran.labels().values())[-3:] == ["client-0", "client-1", "client-2"]
    assert "keeps its key as its label" in caplog.text


def test_terms_that_list_names_match_the_nodes_of_that_name(run, book):
    agreed = listed("client-2", "client-0", "client-1")
    per_member = Terms(Price.constant((1.0, 2.0, 4.0)), members=agreed.members)
    ran = run(agreed=per_member, client=Honest(examples=(1, 1, 1)))
    norms = ran.column("statistics")
    levies = {"client-2": 1.0, "client-0": 2.0, "client-1": 4.0}
    paid = ran.column("payments")
    for name, price in levies.items():
        others = [levies[o] * norms[o] for o in levies if o != name]
        assert paid[name] == pytest.approx(price * norms[name] - sum(others) / 2, rel=1e-9)


def test_terms_that_list_fingerprints(run):
    keys = [fingerprint(key_pem(i)) for i in range(3)]
    ran = run(agreed=listed(*keys[:2]))
    assert len(ran.content()["accounts"]) == 2


def test_the_terms_of_an_audit_as_they_are(run, book, caplog):
    """`members` are "client 0", …; if all pay alike, nodes without names have the sorted order."""
    agreed = Terms(
        Price((((0.1,), (0.4,))), (1, 2), rounds=4),
        members=("client 0", "client 1", "client 2"),
        weights=Weights("equal"),
    )
    ran = run(infos=nodes(3, names=False), agreed=agreed, rounds=4, run="one")
    assert caplog.text.count("the nodes in sorted order") == 1
    assert ran.labels() == {1: "client 0", 2: "client 1", 3: "client 2"}
    assert ran.content(1)["price"] == [0.1]
    assert ran.content(2)["price"] == [0.4]
    # The next simulation has other node ids, and the same members.
    run(infos=nodes(3, names=False, first=501), agreed=agreed, rounds=1, run="two")
    assert len(book.members("federation")) == 3


def test_more_rounds_than_the_terms_have_prices_for(run):
    agreed = Terms(Price(((0.1,), (0.2,)), (1, 2), rounds=4))
    with pytest.raises(ValueError, match="num_rounds is 5, the terms have prices for 4 rounds"):
        run(agreed=agreed, rounds=5)


def test_a_node_without_a_name_that_comes_back_under_another_id(run, book):
    """With listed members there is only one that it can be."""
    agreed = listed("a", "b", "c")

    class Restarting(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            self.infos[1].node_id = 5000
            return replies

    client = Honest()
    grid = Restarting(nodes(3, names=False), client)
    ran = run(client, grid=grid, agreed=agreed, rounds=3)
    for t in (1, 2, 3):
        assert ran.content(t)["statuses"] == {}


def test_too_many_nodes_without_names(run):
    with pytest.raises(ValueError, match="4 nodes without names are connected, the terms list 3"):
        run(agreed=listed("a", "b", "c"), infos=nodes(4, names=False))


def test_a_listed_member_that_was_never_seen(run):
    agreed = listed("client-0", "client-1", "client-2", "client-9")
    with pytest.raises(TimeoutError, match="members not seen yet: client-9"):
        run(agreed=agreed, patience=0.2)


def test_a_listed_member_that_is_away_is_missing(run, book):
    agreed = listed("client-0", "client-1", "client-2")
    run(agreed=agreed, run="first")
    ran = run(agreed=agreed, infos=nodes(2), run="second")
    away = ran.content(1, "second")["statuses"]
    assert {ran.labels()[int(n)]: status for n, status in away.items()} == {"client-2": "missing"}


def test_members_that_were_not_asked_are_not_charged_for_being_missing(run):
    from flwr.serverapp.strategy import FedAvg

    from verax.mechanism import FailurePolicy

    agreed = listed(
        "client-0", "client-1", "client-2", policy=FailurePolicy(missing="flat-fee", fee=1.0)
    )
    with pytest.raises(ValueError, match="connected but not asked in round 1"):
        run(agreed=agreed, strategy=FedAvg(fraction_train=0.4, min_train_nodes=2))


def test_keys_do_not_take_over_accounts_of_a_simulation(run):
    """The book binds a listed name to whoever had it first."""
    agreed = listed("client-0", "client-1", "client-2")
    run(agreed=agreed, infos=nodes(3, names=False), run="simulation")
    with pytest.raises(TimeoutError, match=r"0 nodes are connected.*3 more nodes are not members"):
        run(agreed=agreed, run="deployment")
