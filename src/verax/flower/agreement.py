"""The terms that a run charges by: those in the book, and no others."""

from __future__ import annotations

from typing import Any

from flwr.serverapp.strategy import Strategy

from verax import documents
from verax.flower.fit import check_fit
from verax.flower.log import log
from verax.flower.weighing import reply_weights
from verax.ledger import Book
from verax.mechanism import Terms, cautions, rule_named
from verax.text import shown


def agreed_terms(book: Book, federation: str, terms: Terms | None) -> Terms:
    """The newest terms in the book; a new federation is created with the given ones.

    Given terms must be the newest: a server that still has old ones would otherwise train under
    terms that its operator does not know.
    """
    if federation not in book.federations():
        if terms is None:
            raise ValueError(f"{federation!r} is not in the book; give its `terms`")
        book.create_federation(federation, terms)
        newest = terms
    else:
        version = book.versions(federation)[-1]
        newest = version.terms
        if terms is not None and terms != newest:
            raise ValueError(
                f"{federation!r} is in the book with other terms from round {version.from_round} "
                f"on: {difference(terms, newest)}. Leave `terms` out to charge by those in the "
                "book, or change them by `verax ledger terms`"
            )
    for text in cautions(newest):
        log.warning("Verax: %s", text)
    return newest


def difference(given: Terms, booked: Terms) -> str:
    """In which settings terms differ, for an error message."""
    ours, theirs = _settings(documents.write(given)), _settings(documents.write(booked))
    differing = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
    words = [
        f"{name} is {_or_none(theirs, name)} in the book and {_or_none(ours, name)} in `terms`"
        for name in differing[:3]
    ]
    more = f"; and {len(differing) - 3} more" if len(differing) > 3 else ""
    return "; ".join(words) + more


def check_chargeable(strategy: Strategy, terms: Terms) -> None:
    """Refuse terms by which this strategy cannot be charged."""
    reads = rule_named(terms.rule).reads
    if reads in ("misreport", "smoothed"):
        missing = {"misreport": "recomputed updates", "smoothed": "averages of all messages"}
        raise ValueError(
            f"rule {terms.rule} needs {missing[reads]}, which a server does not have; "
            "charge by squared-norm, squared-distance or groves-ledyard"
        )
    reply_weights(strategy, terms)
    check_fit(terms)


def _settings(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A document's settings by their full names."""
    result: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            result |= _settings(value, f"{prefix}{name}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            result[prefix + name] = value
    return result


def _or_none(settings: dict[str, Any], name: str) -> str:
    return shown(settings[name]) if name in settings else "not given"
