"""Reads the text form of a reporting."""

from __future__ import annotations

import json
from typing import Any

from verax.game.misreports import (
    Absent,
    Adaptive,
    Directional,
    Mixed,
    Piecewise,
    ScaleAndNoise,
    Stretch,
    Timed,
)
from verax.game.policy import LargerBatch, Policy
from verax.game.reporting import Reporting
from verax.plugins import is_reference, load

_BUILT_IN: tuple[type[Reporting], ...] = (
    ScaleAndNoise,
    Stretch,
    Absent,
    Piecewise,
    Timed,
    Mixed,
    Adaptive,
    Directional,
    Policy,
    LargerBatch,
)


def reporting_of(text: str) -> Reporting:
    """Read a reporting's text: a JSON object with a "kind", or `module:name`."""
    if is_reference(text):
        return load(text, "reporting", "message", "scales", "batch")
    try:
        fields: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"a reporting is a JSON object or module:name, {text!r} is neither ({error})"
        ) from None
    if not isinstance(fields, dict) or "kind" not in fields:
        raise ValueError('a reporting is a JSON object with a "kind"')
    kinds = {kind.kind: kind for kind in _BUILT_IN}
    kind: Any = fields.pop("kind")  # pyright: ignore[reportUnknownMemberType]
    if kind not in kinds:
        raise ValueError(f"kind is {kind!r}, must be one of {', '.join(kinds)}")
    values: dict[str, Any] = {
        name: _as_tuples(value)
        for name, value in fields.items()  # pyright: ignore[reportUnknownVariableType]
    }
    try:
        return kinds[kind](**values)
    except TypeError as error:
        raise ValueError(f"{kind}: {error}".replace("__init__() ", "")) from None


def _as_tuples(value: Any) -> Any:
    """JSON's lists as tuples, also within lists."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value  # pyright: ignore
