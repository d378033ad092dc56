"""Verax: find out whether the members of a federation gain by misreporting, and charge for it.

Three verbs carry the package: *audit* (simulate and judge), *charge* (payments in a running
federation) and *settle* (books that every member can check). The layers, each importing only from
those before it: `mechanism`, `game`, `learning`, `tasks`, `audit`, `cli`.
"""

from importlib.metadata import version

__version__ = version("verax-fl")
