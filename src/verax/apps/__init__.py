"""Audits of Flower apps as they are, in whatever framework they are written.

Needs the extra `flower`.
"""
