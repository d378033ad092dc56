"""Audit: does anybody gain by misreporting, and which price stops it? Plan, run, judge, show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verax.audit.api import Audit, audit
    from verax.audit.plan import Plan

__all__ = ["Audit", "Plan", "audit"]


def __getattr__(name: str) -> Any:
    """Import on first use: JAX takes a second to load, and `verax --help` does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from verax.audit import api, plan

    return plan.Plan if name == "Plan" else getattr(api, name)
