"""Payments, prices and what they guarantee: numbers in, numbers out, NumPy only.

This is the only place where a payment is computed; audit, Flower layer and ledger all call it.
"""

from verax.mechanism.arrays import Arrays
from verax.mechanism.audited import Audited
from verax.mechanism.cautions import cautions
from verax.mechanism.changes import Changes
from verax.mechanism.charge import Status, charge
from verax.mechanism.evidence import EvidenceTerms
from verax.mechanism.groves_ledyard import GrovesLedyard
from verax.mechanism.no_payment import NoPayment
from verax.mechanism.norms import gram_of_updates, squared_norm, squared_norms
from verax.mechanism.openness import Openness
from verax.mechanism.price import Blocks, Price, refined_blocks
from verax.mechanism.problem import Problem, constant_steps, decaying_offset, decaying_steps
from verax.mechanism.profile import (
    ProfilePrices,
    Sensitivities,
    common_profile,
    individual_profile,
)
from verax.mechanism.rule import Payments, Rule, balance, pay, spread
from verax.mechanism.rules import BUILT_IN, rule_named
from verax.mechanism.schedule import Schedule
from verax.mechanism.spot_audit import SpotAudit
from verax.mechanism.spot_checks import SpotChecks
from verax.mechanism.squared_distance import SquaredDistance
from verax.mechanism.squared_norm import SquaredNorm
from verax.mechanism.statistics import Statistics
from verax.mechanism.terms import FailurePolicy, Terms
from verax.mechanism.weights import Weights, effective_weights

__all__ = [
    "BUILT_IN",
    "Arrays",
    "Audited",
    "Blocks",
    "Changes",
    "EvidenceTerms",
    "FailurePolicy",
    "GrovesLedyard",
    "NoPayment",
    "Openness",
    "Payments",
    "Price",
    "Problem",
    "ProfilePrices",
    "Rule",
    "Schedule",
    "Sensitivities",
    "SpotAudit",
    "SpotChecks",
    "SquaredDistance",
    "SquaredNorm",
    "Statistics",
    "Status",
    "Terms",
    "Weights",
    "balance",
    "cautions",
    "charge",
    "common_profile",
    "constant_steps",
    "decaying_offset",
    "decaying_steps",
    "effective_weights",
    "gram_of_updates",
    "individual_profile",
    "pay",
    "refined_blocks",
    "rule_named",
    "spread",
    "squared_norm",
    "squared_norms",
]
