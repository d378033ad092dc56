"""Which listed members the nodes of a simulation are, which have neither keys nor names.

Node ids are random there, and only a client knows its `partition-id`. With the mod `identified` its
replies tell it. Without the mod, the listed names can only be assigned to the nodes in sorted
order. That is harmless if the terms are the same for all members, and refused if they are not:
prices would go to the wrong members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verax.flower.log import log
from verax.flower.names import match_names
from verax.mechanism import Terms


class AnonymousNodes:
    """The listed names of a run's anonymous nodes, as far as they are known."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def names(self, connected: Sequence[int], listed: Sequence[str]) -> dict[int, str]:
        """Names by node id; one whose node is gone is free again."""
        self._names = {
            node: name for node, name in self._names.items() if node in connected and name in listed
        }
        return dict(self._names)

    def learn(
        self,
        asked: Sequence[int],
        told: Mapping[int, str | None],
        available: Sequence[str],
        terms: Terms,
    ) -> dict[int, str]:
        """The names of nodes that had none so far, by node id.

        Args:
            asked: the nodes.
            told: the `partition-id` that a node says it has, or None, of each node that replied.
            available: listed names that belong to no key.
            terms: the terms in force.
        """
        same = match_names(sorted({one for one in told.values() if one is not None}), terms.members)
        nodes = {name: node for node, name in self._names.items()}
        unclear: list[int] = []
        for node, partition in sorted(told.items()):
            name = same.get(partition or "")
            if name is None or name not in available:
                unclear.append(node)
            elif name in nodes:
                raise ValueError(
                    f"nodes {nodes[name]} and {node} both say that they are {name!r}; give each "
                    "client a partition-id of its own"
                )
            else:
                nodes[name] = node
        if unclear:
            rest = sorted(set(asked) - set(nodes.values()))
            free = [name for name in available if name not in nodes]
            if not terms.are_uniform or len(free) < len(rest):
                raise ValueError(_refusal(unclear, told, terms))
            assigned = dict(zip(free, rest, strict=False))
            log.warning(
                "Verax: no reply says which member it is from, so the terms' members are the nodes "
                "in sorted order, which may be another one in the next run: %s",
                ", ".join(f"{name} = node {node}" for name, node in assigned.items()),
            )
            nodes |= assigned
        self._names = {node: name for name, node in nodes.items()}
        return {node: self._names[node] for node in asked if node in self._names}


def _refusal(unclear: Sequence[int], told: Mapping[int, str | None], terms: Terms) -> str:
    said = [
        f"node {node} " + ("says nothing" if told[node] is None else f"says {told[node]}")
        for node in unclear
    ]
    return (
        f"nobody knows which members the nodes are: {', '.join(said)}; the terms list "
        f"{', '.join(terms.members)}. Prices, allowances or weights differ by member, or the book "
        "has members under other ids, so nothing is charged. In a simulation, use "
        "ClientApp(mods=[identified]) of `verax.flower`, and list members by partition-id, such as "
        "client 0; otherwise register SuperNodes by key and --name"
    )
