"""Requests and the replies to them: who was asked, and what came back from whom."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict

from verax.flower.identity import Member, Roster
from verax.flower.log import log
from verax.flower.mods import take_partition
from verax.flower.replies import Reply, SentModel
from verax.ledger.forms import SignedStatement
from verax.mechanism import Terms

_SUPERLINK = 1  # the node id of errors that the grid itself makes


@dataclass(eq=False)
class Request:
    """A member that was sent a message, and its replies."""

    member: Member
    request: Any  # Flower's metadata object: its message id is set when the message is pushed
    replies: list[Message] = field(default_factory=list[Message], kw_only=True)

    @property
    def message(self) -> Message:
        """The reply that counts; there may be repetitions of it."""
        return self.replies[0]


@dataclass(eq=False)
class Asked(Request):
    """A member that was sent the model to train it.

    Attributes:
        sent: the model.
        reply: the result of checking the reply.
        norm: ‖reply − sent‖².
        weight: N w_i, its share of the aggregate times the number of replies that count.
        effective: (1 + E_i) w_i, by how much its update counts for its charge.
        statement: what the member signed, if its signature is valid.
    """

    sent: SentModel
    reply: Reply = field(default_factory=lambda: Reply("missing", "no reply"))
    norm: float = math.nan
    weight: float = 1.0
    effective: float = 1.0
    statement: SignedStatement | None = None

    @property
    def effective_norm(self) -> float:
        """The squared norm of the effective update, which is charged."""
        return self.effective**2 * self.norm

    @property
    def content(self) -> RecordDict:
        """The reply as the strategy may see it; every member with the status ok has one."""
        assert self.reply.content is not None
        return self.reply.content


def match_replies(asked: Iterable[Request], replies: Iterable[Message], round_: int) -> None:
    """Match replies with requests; a reply to no request of this round is ignored."""
    by_id = {one.request.message_id: one for one in asked}
    for message in replies:
        one = by_id.get(message.metadata.reply_to_message_id)
        source = source_of(message)
        if one is None or not (
            source == one.request.dst_node_id or (source == _SUPERLINK and message.has_error())
        ):
            log.warning(
                "Verax: a reply from node %d answers no request of round %d (it is late, or "
                "was not asked for) and is ignored",
                source,
                round_,
            )
            continue
        one.replies.append(message)


def identified(asked: Sequence[Asked], roster: Roster, terms: Terms, round_: int) -> list[Asked]:
    """The asked members, sorted by id; nodes that were not known say in their replies who.

    A node that did not reply cannot say it. It is left out, and its member, which the terms list,
    is booked as missing.
    """
    told: dict[int, str | None] = {}
    for one in asked:
        said = {take_partition(m.content) for m in one.replies if m.has_content()}
        if said and not one.member.is_known:
            told[one.request.dst_node_id] = said.pop() if len(said) == 1 else None
    unknown = [one for one in asked if not one.member.is_known]
    if unknown:
        nodes = [one.request.dst_node_id for one in unknown]
        members = roster.identify(nodes, told, terms)
        for one in unknown:
            one.member = members.get(one.request.dst_node_id, one.member)
            if not one.member.is_known:
                log.warning(
                    "Verax: %s did not reply in round %d and has not said which member it is; "
                    "the member is booked as missing",
                    one.member.label,
                    round_,
                )
    known = [one for one in asked if one.member.is_known]
    return sorted(known, key=lambda one: one.member.id)


def same_content(replies: Sequence[Message]) -> bool:
    """Whether replies say the same; those that cannot be compared do not."""
    try:
        return len({_content_id(message) for message in replies}) == 1
    except Exception:  # a member decides what is in them
        return False


def with_content(message: Message, content: RecordDict) -> Message:
    """The same message with another content."""
    changed = copy.copy(message)
    changed.content = content
    return changed


def source_of(message: Message) -> int:
    """The node that a message came from."""
    return message.metadata.src_node_id


def _content_id(message: Message) -> str:
    return message.content.object_id if message.has_content() else str(message.error)
