"""Which member a node is, in every round and every run.

With SuperNode authentication a member's id is the fingerprint of its public key, as `ssh-keygen -l`
prints it, and the node's name is its label. Without authentication there is only a node id, which
changes with each restart: a member could leave its debts behind, and a warning says so. The
operator gives a node its name when its key is registered, so a node with key *and* name is
authenticated.

Terms that list `members` are closed. A listed name means the node with that fingerprint, the node
with that name, or the account that has the name as id or label in the book. If no node has exactly
this name, `client 0`, `client-0`, `client_0` and `0` are the same name, unless two members or two
nodes share it. Nodes that are not listed are not asked.

In a simulation no node has a key or a name. Then a node's replies say which member it is, if the
ClientApp has the mod `identified`. If they do not say it, the listed names are assigned to the
nodes in sorted order, with a warning, and only if the terms are the same for all members.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from verax.flower.anonymous import AnonymousNodes
from verax.flower.log import log
from verax.flower.names import match_names
from verax.ledger import Book, BookError
from verax.mechanism import Terms
from verax.text import printable

#: `auto`: the key of nodes that were registered under a name, else the node id.
Identity = Literal["auto", "key", "node"]


@dataclass(frozen=True)
class Node:
    """What the grid says about a node; `key` is a fingerprint, or "" if no key is proven."""

    id: int
    key: str = ""
    name: str = ""

    @property
    def rank(self) -> tuple[str, int]:
        """A sort key that is the same in every run for nodes with a key."""
        return self.key, self.id


@dataclass(frozen=True)
class Member:
    """The member whose account is charged for a node's updates.

    A node that has yet to say which member it is stands under its node id, with `is_known` False.
    """

    id: str
    label: str
    is_known: bool = True


def node_of(info: Any, identity: Identity = "auto") -> Node:
    """A node from Flower's `NodeInfo`."""
    name = printable(info.name.strip(), 200)
    key = "" if identity == "node" else fingerprint(info.public_key)
    if identity == "auto" and not name:
        key = ""  # The SuperNode created this key at its start and loses it at its end.
    if identity == "key" and not key:
        raise ValueError(
            f'node {info.node_id} has no public key, but identity is "key"; '
            "turn SuperNode authentication on"
        )
    return Node(info.node_id, key, name)


def fingerprint(public_key: bytes) -> str:
    """`SHA256:…` of a public key in PEM, as `ssh-keygen -l` prints it; "" if it is not a key."""
    try:
        key = serialization.load_pem_public_key(public_key)
        line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    except (ValueError, UnsupportedAlgorithm):
        return ""
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


class Roster:
    """The nodes of a run as members of a federation in a book."""

    def __init__(self, book: Book, federation: str, run: str) -> None:
        self._book, self._federation, self._run = book, federation, run
        self._anonymous = AnonymousNodes()
        self._warned: set[str] = set()

    def not_connected(self, nodes: Sequence[Node], terms: Terms) -> list[str]:
        """Listed members that have neither an account nor a connected node.

        Refuses names that cannot match: as many nodes are connected as the terms list members, but
        they have other names.
        """
        if not terms.members:
            return []
        known = set(self._match(nodes, terms).values()) | set(self._listed_accounts(terms))
        absent = [name for name in terms.members if name not in known]
        if _are_anonymous(nodes):
            if len(nodes) > len(terms.members):
                raise ValueError(
                    f"{len(nodes)} nodes without names are connected, the terms list "
                    f"{len(terms.members)} members; give the nodes names when their keys are "
                    "registered"
                )
            return absent if len(nodes) < len(terms.members) else []
        named = [node.name or node.key for node in nodes]
        if absent and len(nodes) >= len(terms.members) and all(named):
            raise ValueError(
                f"no node is {', '.join(absent)}: the terms list {', '.join(terms.members)}, the "
                f"connected nodes are {', '.join(named)}. Register the SuperNodes under the listed "
                "names, or list the nodes' names as `members`"
            )
        return absent

    def listed(self, nodes: Sequence[Node], terms: Terms) -> dict[int, Member]:
        """The nodes that may take part, as members; nothing is written to the book.

        Under open terms these are all nodes; under closed ones those that the terms list, and
        nodes without names, which have yet to say who they are.
        """
        if not terms.members or _are_anonymous(nodes):
            names = {node.id: node.name or f"node {node.id}" for node in nodes}
        else:
            names = self._match(nodes, terms)
        keys = {node.id: node.key for node in nodes}
        return {id_: Member(keys[id_] or name, name) for id_, name in names.items()}

    def members(self, nodes: Iterable[Node], terms: Terms, round_: int) -> dict[int, Member]:
        """Members by node id; new ones join the book, and nodes that are not listed are left out.

        Args:
            nodes: the connected nodes.
            terms: the terms in force.
            round_: the round that is about to begin.
        """
        nodes = sorted(nodes, key=lambda node: node.rank)
        if weak := [node for node in nodes if not node.key]:
            self._warn(
                "weak",
                f"{len(weak)} of {len(nodes)} nodes have no authenticated key: after a restart "
                "they are new members, and leave their debts behind. Register SuperNodes by key "
                "and --name, and start the SuperLink with --enable-supernode-auth",
            )
        if not terms.members:
            accounts = self._book.members(self._federation)
            labels = {account.member: account.label for account in accounts}
            return {node.id: self._join_open(node, labels, round_) for node in nodes}
        listed = self._match(nodes, terms)
        accounts = self._listed_accounts(terms)
        result: dict[int, Member] = {}
        for node in nodes:
            name = listed.get(node.id)
            if name is None and _are_anonymous(nodes):
                result[node.id] = Member(f"node {node.id}", f"node {node.id}", is_known=False)
                continue
            if name is None:
                self._warn(
                    f"stranger {node.key or node.id}",
                    f"node {node.name or node.key or node.id} is not among the members that the "
                    "terms list, and is not asked",
                )
                continue
            known = accounts.get(name)
            member = known or Member(node.key or name, name)
            if known is None:
                self._book.join(self._federation, member.id, member.label)
            result[node.id] = member
        return result

    def identify(
        self, asked: Sequence[int], told: Mapping[int, str | None], terms: Terms
    ) -> dict[int, Member]:
        """Members by node id of anonymous nodes, as far as their replies tell; all members join.

        Args:
            asked: the nodes.
            told: the `partition-id` that a node says it has, or None, of each node that replied.
            terms: the terms in force.
        """
        accounts = self._listed_accounts(terms)
        available = [name for name in terms.members if _may_have(name, "", accounts)]
        names = self._anonymous.learn(asked, told, available, terms)
        for name in terms.members:
            if name not in accounts:
                self._book.join(self._federation, name)
        accounts = self._listed_accounts(terms)
        return {node: accounts[name] for node, name in names.items()}

    def _join_open(self, node: Node, labels: dict[str, str], round_: int) -> Member:
        """The member of a node in an open federation; a new one joins."""
        member = node.key or f"node {node.id}"
        if member in labels:
            return Member(member, labels[member])
        try:
            self._book.join(self._federation, member, node.name, from_round=round_, run=self._run)
        except BookError as error:  # the name looks like that of another member
            log.warning("Verax: %s keeps its key as its label: %s", node.name, error)
            self._book.join(self._federation, member, from_round=round_, run=self._run)
            return Member(member, member)
        return Member(member, node.name or member)

    def _listed_accounts(self, terms: Terms) -> dict[str, Member]:
        """The members in the book that the terms list, by the name they are listed under."""
        return {
            name: Member(account.member, account.label)
            for account in self._book.members(self._federation)
            for name in (account.member, account.label)
            if name in terms.members
        }

    def _match(self, nodes: Sequence[Node], terms: Terms) -> dict[int, str]:
        """Listed names by node id: by key, then by name, then by names that mean the same."""
        if _are_anonymous(nodes):
            return self._anonymous.names([node.id for node in nodes], terms.members)
        accounts = self._listed_accounts(terms)
        by_key = {member.id: name for name, member in accounts.items()}
        matched: dict[int, str] = {}
        for node in nodes:
            name = by_key.get(node.key) if node.key else None
            if name is None and node.key in terms.members:
                name = node.key
            if (
                name is None
                and node.name in terms.members
                and _may_have(node.name, node.key, accounts)
            ):
                name = node.name
            if name is not None and name not in matched.values():
                matched[node.id] = name
        same = match_names([node.name for node in nodes if node.name], terms.members)
        for node in nodes:
            name = same.get(node.name)
            if name is None or node.id in matched or name in matched.values():
                continue
            if _may_have(name, node.key, accounts):
                matched[node.id] = name
        return matched

    def _warn(self, key: str, message: str) -> None:
        """Log a warning once."""
        if key not in self._warned:
            self._warned.add(key)
            log.warning("Verax: %s", message)


def _may_have(name: str, key: str, accounts: Mapping[str, Member]) -> bool:
    """Whether a node with this key, or without one, may have a name: no other key has it."""
    return name not in accounts or accounts[name].id == (key or name)


def _are_anonymous(nodes: Sequence[Node]) -> bool:
    """Whether no node has a key or a name, as in a simulation."""
    return not any(node.key or node.name for node in nodes)
