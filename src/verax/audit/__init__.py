"""Audit: does anybody gain by misreporting, and which price stops it? Plan, run, judge, show."""

from verax.audit.api import Audit, audit
from verax.audit.plan import Plan

__all__ = ["Audit", "Plan", "audit"]
