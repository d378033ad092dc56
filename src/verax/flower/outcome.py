"""The outcome of a booked round, as Flower metrics and as lines of the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from flwr.app import MetricRecord

from verax.flower.log import log
from verax.flower.matching import Asked
from verax.ledger import Receipt
from verax.ledger.money import format_units
from verax.mechanism import Terms


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
