"""Evaluations: which replies a strategy may average."""

from __future__ import annotations

from collections.abc import Sequence

from flwr.app import Message

from verax.flower.log import log
from verax.flower.matching import Request, same_content, with_content
from verax.flower.metrics import averageable, example_count
from verax.mechanism import Weights
from verax.text import printable


def evaluations(asked: Sequence[Request], count_key: str | None, limits: Weights) -> list[Message]:
    """The members' replies with metrics that can be averaged; the log names the others.

    Args:
        asked: members with their replies.
        count_key: the metric that must be a valid example count, or None.
        limits: of that count.
    """
    valid: list[tuple[Request, int]] = []
    for one in sorted(asked, key=lambda each: each.member.id):
        try:
            valid.append((one, _count(one, count_key, limits)))
        except Exception as error:  # a member decides what is in its reply
            log.warning(
                "Verax: evaluation by %s is ignored: %s",
                one.member.label,
                printable(str(error) or type(error).__name__, 300),
            )
    contents = averageable(
        [one.message.content for one, _ in valid],
        [one.member.label for one, _ in valid],
        [count for _, count in valid],
        () if count_key is None else (count_key,),
    )
    return [
        with_content(one.message, content)
        for (one, _), content in zip(valid, contents, strict=True)
    ]


def _count(one: Request, count_key: str | None, limits: Weights) -> int:
    """The example count of a reply; a ValueError if it cannot be used."""
    if not one.replies:
        raise ValueError("no reply")
    if len(one.replies) > 1 and not same_content(one.replies):
        raise ValueError("several different replies to one request")
    if one.message.has_error():
        raise ValueError(f"error {one.message.error.code}: {one.message.error.reason}")
    return example_count(one.message.content, count_key, limits)
