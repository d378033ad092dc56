"""Spot checks: members commit to data and app, and an auditor recomputes drawn rounds.

Needs the extra `flower`, which includes the ledger.
"""
