"""Which member a node is, in every round and every run.

With SuperNode authentication a member's id is the fingerprint of its public key, as `ssh-keygen -l`
prints it, and the node's name is its label. Without authentication there is only a node id, which
changes with each restart: a member could leave its debts behind, and a warning says so. The
operator gives a node its name when its key is registered, so a node with key *and* name is
authenticated.

Terms that list `members` are closed. A listed name means the node with that fingerprint, the node
with that name, or the account that has the name as id or label in the book. If no node has a name,
the listed names are assigned to the nodes in sorted order, with a warning. Nodes that are not
listed are not asked.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from verax.ledger import Book, BookError
from verax.mechanism import Terms

#: `auto`: the key of nodes that were registered under a name, else the node id.
Identity = Literal["auto", "key", "node"]

_log = logging.getLogger("flwr.verax")


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
    """The member whose account is charged for a node's updates."""

    id: str
    label: str


def node_of(info: Any, identity: Identity = "auto") -> Node:
    """A node from Flower's `NodeInfo`."""
    name = info.name.strip()
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
        self._assigned: dict[int, str] = {}  # listed names assigned in sorted order, by node id
        self._warned: set[str] = set()

    def not_connected(self, nodes: Sequence[Node], terms: Terms) -> list[str]:
        """Listed members that have neither an account nor a connected node."""
        if not terms.members:
            return []
        known = set(self._match(nodes, terms).values()) | set(self._listed_accounts(terms))
        return [name for name in terms.members if name not in known]

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

    def _join_open(self, node: Node, labels: dict[str, str], round_: int) -> Member:
        """The member of a node in an open federation; a new one joins."""
        member = node.key or f"node {node.id}"
        if member in labels:
            return Member(member, labels[member])
        try:
            self._book.join(self._federation, member, node.name, from_round=round_, run=self._run)
        except BookError as error:  # the name looks like that of another member
            _log.warning("Verax: %s keeps its key as its label: %s", node.name, error)
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
        """Listed names by node id."""
        accounts = self._listed_accounts(terms)
        by_key = {member.id: name for name, member in accounts.items()}
        matched: dict[int, str] = {}
        for node in nodes:
            name = by_key.get(node.key) if node.key else None
            if name is None and node.key in terms.members:
                name = node.key
            if name is None and node.name in terms.members:
                holder = accounts.get(node.name)
                # A name that belongs to another key already is not assigned again.
                if holder is None or holder.id == (node.key or node.name):
                    name = node.name
            if name is not None and name not in matched.values():
                matched[node.id] = name
        if not matched and not any(node.name for node in nodes):
            return self._in_sorted_order(nodes, terms, accounts)
        return matched

    def _in_sorted_order(
        self, nodes: Sequence[Node], terms: Terms, accounts: dict[str, Member]
    ) -> dict[int, str]:
        """Assign the listed names to the sorted nodes; a node keeps its name while connected."""
        online = {node.id for node in nodes}
        self._assigned = {node: name for node, name in self._assigned.items() if node in online}
        fresh = [node for node in nodes if node.id not in self._assigned]
        free = [
            name
            for name in terms.members
            if name not in self._assigned.values()
            and (name not in accounts or accounts[name].id == name)
        ]
        if len(nodes) > len(terms.members):
            raise ValueError(
                f"{len(nodes)} nodes without names are connected, the terms list "
                f"{len(terms.members)} members; give the nodes names when their keys are registered"
            )
        if fresh and len(nodes) == len(terms.members):
            for node, name in zip(sorted(fresh, key=lambda n: n.rank), free, strict=False):
                self._assigned[node.id] = name
            assigned = ", ".join(f"{name} = node {node}" for node, name in self._assigned.items())
            _log.warning(
                "Verax: no node has a name, so the terms' members are the nodes in sorted order, "
                "which may be another one in the next run: %s",
                assigned,
            )
        return dict(self._assigned)

    def _warn(self, key: str, message: str) -> None:
        """Log a warning once."""
        if key not in self._warned:
            self._warned.add(key)
            _log.warning("Verax: %s", message)
