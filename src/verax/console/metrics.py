"""`/metrics` in Prometheus' text format, and `/healthz`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from starlette.responses import JSONResponse, Response

from verax.console.call import Call
from verax.console.follow import Followed

#: Name, kind and meaning of every metric.
_METRICS = (
    ("verax_records", "gauge", "Records in the book."),
    ("verax_rounds_total", "counter", "Rounds in the book."),
    ("verax_alarms_total", "counter", "Alarms since the console looks for them."),
    ("verax_outside_total", "counter", "Squared norms outside the audited band."),
    ("verax_balance", "gauge", "What a member owes, in units of the currency."),
    ("verax_charged_total", "gauge", "What rounds charged a member so far."),
    ("verax_norm", "gauge", "A member's last squared norm."),
)


def metrics(call: Call) -> Response:
    """All federations' numbers."""
    samples: dict[str, list[str]] = {name: [] for name, _, _ in _METRICS}
    for followed in call.console.library.federations:
        with followed.lock:
            for name, labels, value in _samples(followed):
                samples[name].append(f"{name}{{{labels}}} {value}")
    lines: list[str] = []
    for name, kind, words in _METRICS:
        lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *samples[name]]
    text = "\n".join(lines) + "\n"
    return Response(text, media_type="text/plain; version=0.0.4")


def _samples(followed: Followed) -> Iterator[tuple[str, str, float]]:
    federation = f'federation="{_escaped(followed.name)}"'
    unit = 10.0**followed.state.scale
    yield "verax_records", federation, followed.state.sequence
    yield "verax_rounds_total", federation, len(followed.rounds)
    yield "verax_alarms_total", federation, sum(len(row.alarms) for row in followed.rounds)
    yield "verax_outside_total", federation, sum(len(row.outside) for row in followed.rounds)
    for account in followed.members:
        labels = f'{federation},member="{_escaped(account.label)}"'
        balance = followed.state.balances.get(account.number, 0)
        yield "verax_balance", labels, balance / unit
        series = followed.series.get(account.number)
        if series is not None:
            yield "verax_charged_total", labels, series.charged / unit
            last = next((norm for norm in reversed(series.norms) if not math.isnan(norm)), None)
            if last is not None:
                yield "verax_norm", labels, last


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def healthz(call: Call) -> Response:
    """Whether the book can be read; says nothing about what is in it."""
    library = call.console.library
    ok = not library.problem and not any(each.problem for each in library.federations)
    return JSONResponse({"ok": ok}, 200 if ok else 503)
