"""The audit as one page to open: `report.html`, with everything it needs inside it.

The page loads nothing. Tables that do not depend on the reader's choice are written here; what
follows the price slider is computed in the browser from the same numbers, which the page carries as
JSON. Its content security policy admits exactly the one script and the one style sheet of the
template, by their hashes, so that no name or label in the audit can bring a script of its own.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from verax.amounts import number
from verax.files import write_text


def write_report(audit: dict[str, Any], path: Path) -> None:
    """Write the audit as one self-contained HTML page, wholly or not at all.

    Args:
        audit: The audit as plain JSON values; `None` stands for a number that is not known, NaN and
            infinities are refused.
        path: The file to write. Its folder is made if missing; a page already there is replaced
            only once the new one is complete.
    """
    write_text(path, _render(audit))


def _render(audit: dict[str, Any]) -> str:
    source = _source()
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {
        "allow_nan": False,
        "ensure_ascii": False,
        "separators": (",", ":"),
    }
    environment.filters["number"] = number
    environment.filters["price"] = price_words
    environment.filters["window"] = window_words
    environment.filters["powers"] = _powers
    environment.filters["percent"] = percent
    environment.filters["share"] = _share
    environment.filters["polyline"] = _polyline
    return environment.from_string(source).render(
        audit=audit, style_hash=_hash(source, "style"), script_hash=_hash(source, "script")
    )


def _source() -> str:
    """The template with the charts inside it, which are a module and a style sheet elsewhere."""
    folder = files("verax.audit.show")
    page, script, style = (
        folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("report.html", "charts.js", "charts.css")
    )
    script = re.sub(r"^export ", "", script, flags=re.MULTILINE)
    return page.replace("// charts.js\n", script).replace("/* charts.css */\n", style)


def _hash(source: str, element: str) -> str:
    """What a content security policy calls the template's only bare <style> or <script>."""
    match = re.search(rf"<{element}>(.*?)</{element}>", source, re.DOTALL)
    assert match is not None
    digest = hashlib.sha256(match[1].encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def price_words(value: float | None) -> str:
    """A number without the zeros that only say how exact it is: 1.00 becomes 1."""
    text = re.sub(r"(\.\d*?)0+(?=$|·)", r"\1", number(value))
    return re.sub(r"^1·10", "10", re.sub(r"\.(?=$|·)", "", text))


def _powers(text: str) -> str:
    """Numbers in a text as the page writes them: 6.9e-07 becomes 6.9·10⁻⁷."""
    return re.sub(r"\d\S*e[+-]\d+", lambda match: price_words(float(match[0])), text)


def window_words(window: dict[str, Any] | None) -> str:
    """A window in words: "0.8 … 1.3", "from 0.8 on" or "empty"."""
    if window is None or (window["low"] is None and window["high"] is None):
        return "empty"
    low = window["low"] or 0.0
    if window["high"] is None:
        return f"from {price_words(low)} on"
    return f"{price_words(low)} … {price_words(window['high'])}"


def _share(interval: dict[str, float]) -> Markup:
    """A share with its interval, in per cent."""
    mean, low, high = map(percent, interval.values())
    return Markup(f"{mean}<small>{low} … {high}</small>")


def percent(share: float) -> str:
    """A share in per cent, with its sign."""
    return f"{100 * share:+.2f} %".replace("-", "−")


def _polyline(values: list[float]) -> str:
    """Points of a line in a box of 120 × 28."""
    low, high = min(*values, 0.0), max(*values, 1.0)
    across = 118 / max(len(values) - 1, 1)
    points = [
        (1 + k * across, 27 - 26 * (value - low) / (high - low)) for k, value in enumerate(values)
    ]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
