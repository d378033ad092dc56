"""The outcome of a booked round, as Flower metrics, as lines of the log and for trackers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from flwr.app import MetricRecord

from verax.flower.log import log
from verax.flower.matching import Asked
from verax.ledger import Receipt
from verax.ledger.money import format_units
from verax.mechanism import Status, Terms


def round_metrics(
    asked: Sequence[Asked],
    receipt: Receipt,
    balances: Mapping[str, int],
    alarms: Mapping[str, str],
    metrics: MetricRecord | None,
    terms: Terms,
) -> MetricRecord:
    """The strategy's metrics, with norm, payment and balance of each member added."""
    result = MetricRecord() if metrics is None else metrics
    unit = 10.0**terms.scale
    for one in asked:
        name, label = one.member.id, one.member.label
        if one.reply.status == "ok":
            result[f"verax.norm.{label}"] = one.norm
        result[f"verax.payment.{label}"] = receipt.amounts.get(name, 0) / unit
        result[f"verax.balance.{label}"] = balances.get(name, 0) / unit
    result["verax.alarms"] = len(alarms)
    result["verax.counted"] = sum(one.reply.status == "ok" for one in asked)
    return result


def log_round(
    round_: int,
    asked: Sequence[Asked],
    receipt: Receipt,
    balances: Mapping[str, int],
    alarms: Mapping[str, str],
    terms: Terms,
) -> None:
    """One line per member in Flower's log, and a warning per alarm."""
    log.info("Verax: round %d is in the book (record %d)", round_, receipt.sequence)
    for one in asked:
        name, label = one.member.id, one.member.label
        paid = format_units(receipt.amounts.get(name, 0), terms.scale, terms.currency)
        owed = format_units(balances.get(name, 0), terms.scale)
        if one.reply.status == "ok":
            weight = "" if one.effective == 1 else f", weight {one.effective:.4g}"
            level, text = logging.INFO, f"squared norm {one.norm:.6g}{weight}"
        else:
            level, text = logging.WARNING, f"{one.reply.status}: {one.reply.reason}"
        log.log(level, "\t%s: %s; pays %s, owes %s", label, text, paid, owed)
        if name in alarms:
            log.warning("Verax ALARM: %s sent %s", label, alarms[name])


def tracked_values(
    asked: Sequence[Asked],
    receipt: Receipt,
    balances: Mapping[str, int],
    alarms: Mapping[str, str],
    terms: Terms,
) -> dict[str, float]:
    """What trackers log of a round, by the names in `verax.flower.trackers`."""
    result: dict[str, float] = {}
    unit = 10.0**terms.scale
    for one in asked:
        name, prefix = one.member.id, f"verax/{one.member.label or one.member.id}"
        if one.reply.status == "ok":
            result[f"{prefix}/squared_norm"] = one.norm
        result[f"{prefix}/payment"] = receipt.amounts.get(name, 0) / unit
        result[f"{prefix}/balance"] = balances.get(name, 0) / unit
    counts = Counter(one.reply.status for one in asked)
    # The book counts members as missing that the terms list and that could not be asked.
    counts["missing"] += len(receipt.amounts.keys() - {one.member.id for one in asked})
    for status in get_args(Status):
        result[f"verax/{status}"] = counts[status]
    result["verax/alarms"] = len(alarms)
    return result
