"""Audits of Flower apps as they are, in whatever framework they are written.

Needs the extra `flower`.
"""

from verax.apps.api import audit_app
from verax.apps.rehearsal import rehearsal

__all__ = ["audit_app", "rehearsal"]
