"""Payments, prices and what they guarantee.

NumPy only, numbers in, numbers out; the sums over whole updates alone are compiled loops (`sums`).
This is the only place where a payment is computed; simulator and payment layer both call it.
"""

from verax.mechanism.charge import Status, charge
from verax.mechanism.groves_ledyard import GrovesLedyard
from verax.mechanism.no_payment import NoPayment
from verax.mechanism.norms import squared_norm
from verax.mechanism.problem import Problem, constant_steps, decaying_offset, decaying_steps
from verax.mechanism.profile import (
    Blocks,
    ProfilePrices,
    Sensitivities,
    common_profile,
    individual_profile,
    refined_blocks,
)
from verax.mechanism.rule import Payments, Rule, balance, pay, spread
from verax.mechanism.schedule import Schedule
from verax.mechanism.spot_audit import SpotAudit
from verax.mechanism.squared_distance import SquaredDistance
from verax.mechanism.squared_norm import SquaredNorm
from verax.mechanism.terms import RULES, Policy, Price, Terms, Weights

__all__ = [
    "RULES",
    "Blocks",
    "GrovesLedyard",
    "NoPayment",
    "Payments",
    "Policy",
    "Price",
    "Problem",
    "ProfilePrices",
    "Rule",
    "Schedule",
    "Sensitivities",
    "SpotAudit",
    "SquaredDistance",
    "SquaredNorm",
    "Status",
    "Terms",
    "Weights",
    "balance",
    "charge",
    "common_profile",
    "constant_steps",
    "decaying_offset",
    "decaying_steps",
    "individual_profile",
    "pay",
    "refined_blocks",
    "spread",
    "squared_norm",
]
