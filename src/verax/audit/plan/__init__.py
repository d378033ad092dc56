"""What an audit tries: the plan, the task that it names, and the paper's figures as plans."""

from verax.audit.plan.plan import Plan

__all__ = ["Plan"]
