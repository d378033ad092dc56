"""Rules set on some seeds, chosen on others and judged on yet others, from recorded runs."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from harm.pricing import (
    FITS,
    Array,
    Evidence,
    Rule,
    harm_payments,
    harm_weights,
    larger_payments,
    norm_payments,
    profiles,
)
from harm.runs import PARTS, SETTINGS, Records
from verax.audit.plan.deviations import DeviationPlan
from verax.game import Policy, Reporting, Scale, Stretch, Timed
from verax.mechanism import Blocks, refined_blocks

#: Seeds that set weights and prices, that choose multiples and combinations, and that judge.
SET, CHOOSE, JUDGE = range(4), range(4, 6), range(6, 11)

#: Probes scale the messages of a block by 1 ± h.
PROBE = 0.3

#: The rules that are compared in everything but the main table.
COMPARED = ("norm", "harm", "harm + norm", "larger")

MULTIPLES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)


def probes(blocks: Blocks) -> list[Stretch]:
    """Scale 1 + h, then 1 − h, in each block."""
    return [
        Stretch(1 + sign * PROBE, first, last) for first, last in blocks.ranges for sign in (1, -1)
    ]


def pair_reportings(blocks: Blocks) -> list[Reporting]:
    """What both members of a pair do."""
    T = blocks.rounds
    tried: list[Reporting] = [Scale(a) for a in (-1, 0, 0.5, 1.5, 2, 3, 5)]
    tried += [Stretch(a, T - n + 1, T) for a in (2, 5, 10) for n in (1, max(T // 20, 2))]
    tried += [Timed(-3, 1, 0.1)]
    return tried + [Policy((a,), memory=0.9, own=(1.0,)) for a in (1.0, 1.5)]


class Recorded:
    """The runs of a setting that `record` kept."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.setting = name, SETTINGS[name]
        self._file = np.load(folder / f"{name}.npz")
        self.blocks = refined_blocks(self.setting.rounds)
        self.clients: int = self._file["honest.norms"].shape[-1]
        self.deviators = tuple(range(self.clients))
        # Absent members would need evaluations of models without them, which the rule lacks.
        given = DeviationPlan(absences=(), block_scales=(-1.0, -3.0, -10.0))
        self.grid = given.reportings_tried(self.blocks)
        self.labels = [d.describe(self.setting.rounds) for d in self.grid]
        self.probes = self._records("probes")
        self.seconds = float(self._file["seconds"])

    def _records(self, what: str, rows: slice = slice(None)) -> Records:
        return Records(*(self._file[f"{what}.{field}"][rows] for field in Records._fields))

    def honest(self, seeds: range) -> Records:
        """Honest runs of some seeds."""
        return self._records("honest", slice(seeds.start, seeds.stop))

    def evidence(self, seeds: range, **options: Any) -> Evidence:
        """What single members tried on some seeds."""
        rows = slice(seeds.start - len(SET), seeds.stop - len(SET))
        alone = [(client,) for client in self.deviators]
        return Evidence(self.honest(seeds), self._records("grid", rows), alone, **options)

    def pairs(self) -> Evidence:
        """What pairs tried on the judging seeds."""
        both = list(itertools.combinations(self.deviators, 2))
        return Evidence(self.honest(JUDGE), self._records("pairs"), both)


class Rules(NamedTuple):
    """The rules that are judged: by name, what was chosen for each on the choosing seeds."""

    rules: dict[str, Rule]
    chosen: dict[str, str]
    weights: Array  # of the chosen harm rule, (K,) or (K, N)
    about: dict[str, Any]


def choose(family: dict[str, Rule], evidence: Evidence) -> str:
    """The member of a family that leaves the least at the others' expense."""
    if len(family) == 1:
        return next(iter(family))
    return min(family, key=lambda name: evidence.contested(evidence.rises(family[name])).max())


def rules_of(known: Recorded, part: int = 0, reward: int = 0) -> Rules:
    """Weights and prices from the setting seeds, multiples and combinations from the choosing ones.

    Args:
        known: the runs.
        part: of the evaluation data on which members price.
        reward: on which rewards are counted.
    """
    individual, common = profiles(known.probes, known.blocks, 2 * PROBE)
    fits = {fit: harm_weights(known.probes, part, 2 * PROBE, fit) for fit in FITS}
    prices = individual.prices
    scaled = {f"{fit} × {m:g}": m * own.weights for fit, own in fits.items() for m in MULTIPLES}
    evidence = known.evidence(CHOOSE, price=part, reward=reward)

    def norm(p: Array) -> Rule:
        return lambda harm, norms: norm_payments(norms, p)

    def harmed(own: Array) -> Rule:
        return lambda harm, norms: harm_payments(harm, own)

    families: dict[str, dict[str, Rule]] = {
        "no payment": {"": norm(0 * prices)},
        "norm × 1": {"individual × 1": norm(prices)},
        "norm": {f"individual × {m:g}": norm(m * prices) for m in MULTIPLES}
        | {f"common × {m:g}": norm(m * common.prices) for m in MULTIPLES},
        "harm × 1": {"monotone × 1": harmed(fits["monotone"].weights)},
        "harm": {name: harmed(own) for name, own in scaled.items()},
    }
    chosen = {name: choose(family, evidence) for name, family in families.items()}
    w = scaled[chosen["harm"]]
    honest = known.honest(SET)
    expected = np.asarray(honest.norms, dtype=np.float64).mean(axis=0)
    expected_harm = np.asarray(honest.harm[..., part], dtype=np.float64).mean(axis=0).sum(axis=-1)

    def added(m: float, share: float) -> Rule:
        return lambda harm, norms: harm_payments(harm, m * w) + norm_payments(norms, share * prices)

    def larger(m: float, n: float, whole: bool) -> Rule:
        def payments(harm: Array, norms: Array) -> Array:
            one = m * w.reshape(len(w), -1) * (harm.sum(axis=-1) - expected_harm)
            other = n * prices * (norms - expected)
            if whole:
                one, other = (levy.sum(axis=-2, keepdims=True) for levy in (one, other))
            return larger_payments(one, other)

        return payments

    some = (0.7, 1.0, 1.4)
    families |= {
        "harm + norm": {
            f"harm × {m:g} + {share:g} of the profile": added(m, share)
            for m in some
            for share in (0.05, 0.1, 0.2, 0.5)
        },
        "larger": {
            f"harm × {m:g}, profile × {n:g}, {'whole run' if whole else 'by block'}": larger(
                m, n, whole
            )
            for m in some
            for n in some
            for whole in (False, True)
        },
    }
    chosen |= {name: choose(families[name], evidence) for name in ("harm + norm", "larger")}
    weighed = w.reshape(len(w), -1).max(axis=1)
    about = {
        "fits": {
            fit: {"weights": own.weights.round(4).tolist(), "explained": round(own.explained, 3)}
            for fit, own in fits.items()
        },
        "weighted rounds": int(known.blocks.lengths[weighed > 0.01 * weighed[-1]].sum()),
        "prices": prices.tolist(),
    }
    return Rules({n: families[n][member] for n, member in chosen.items()}, chosen, w, about)


def judge(known: Recorded) -> dict[str, Any]:
    """Everything that the recorded runs of a setting say."""
    rules, chosen, weights, about = rules_of(known)
    judging = known.evidence(JUDGE)
    rows = {
        name: {"chosen": chosen[name], **judging.judge(judging.rises(rule), known.labels)}
        for name, rule in rules.items()
    }
    worth: dict[str, Any] = {}
    for factor in (0.5, 2.0):
        wrong = known.evidence(JUDGE, worth=factor)
        worth[str(factor)] = {
            name: wrong.judge(wrong.rises(rules[name]), known.labels) for name in COMPARED
        }
    both = known.pairs()
    words = [d.describe(known.setting.rounds) for d in pair_reportings(known.blocks)]
    pairs = {name: both.judge(both.rises(rules[name]), words) for name in ("no payment", *COMPARED)}
    samples: dict[str, Any] = {}
    for price, reward in ((1, 0), (2, 0), (3, 4), (4, 3)):
        own = rules_of(known, price, reward)
        parted = known.evidence(JUDGE, price=price, reward=reward)
        samples[f"priced on {PARTS[price]}, rewarded on {PARTS[reward]}"] = {
            name: {
                "chosen": own.chosen[name],
                **parted.judge(parted.rises(own.rules[name]), known.labels),
            }
            for name in COMPARED
        }
    return {
        "words": known.setting.words,
        "clients": known.clients,
        "deviators": list(known.deviators),
        "rounds": known.setting.rounds,
        "misreports": len(known.grid),
        "honest losses": judging.losses.mean(axis=0).round(4).tolist(),
        "seconds": round(known.seconds),
        **about,
        "rules": rows,
        "worth": worth,
        "pairs": pairs,
        "samples": samples,
        "reports": reports(known, weights),
        "not shared out": _not_shared_out(known, about["fits"]),
    }


def _not_shared_out(known: Recorded, fits: dict[str, Any]) -> dict[str, Any]:
    """Gains if each one's levy at × 1 goes to nobody: what sharing the levies out costs.

    Such payments are not balanced, so that what the others gain is not told.
    """
    judging, found = known.evidence(JUDGE), dict[str, Any]()
    for fit in ("monotone", "anchored"):
        weights = np.array(fits[fit]["weights"])

        def levies(harm: Array, norms: Array, weights: Array = weights) -> Array:
            return np.einsum("...kij,k->...i", harm, weights)

        judged = judging.judge(judging.rises(levies), known.labels)
        found[fit] = {
            kind: {name: judged[kind][name] for name in ("gain", "interval", "clients", "what")}
            for kind in ("raising", "any")
            if judged[kind]
        }
    return found


def reports(known: Recorded, weights: Array) -> dict[str, Any]:
    """What one false reporter changes for each client in an honest run, in % of the mean loss.

    The reporter is client 0. It multiplies its reports by ten, or adds 1 % of the mean loss to
    what it reports on client 1 in every round that has a weight. "Usual balance" is for comparison:
    there each one's whole levy is shared by all others, reporters included.
    """
    honest = known.honest(JUDGE)
    harm = np.asarray(honest.harm[..., 0], dtype=np.float64)
    size = float(np.asarray(honest.final[..., 0]).mean())
    tenfold, more = harm.copy(), harm.copy()
    tenfold[..., 0] *= 10
    rows = np.broadcast_to(weights.reshape(len(weights), -1), (len(weights), known.clients))
    more[..., 1, 0] += 0.01 * size * known.blocks.lengths * (rows[:, 1] > 0.01 * rows[-1, 1])

    def usual(values: Array) -> Array:
        return norm_payments(values.sum(axis=-1), rows)

    def shift(lie: Array, balanced: bool) -> list[float]:
        paid = usual(lie) - usual(harm) if balanced else harm_payments(lie - harm, weights)
        return (100 * paid.mean(axis=0) / size).round(3).tolist()

    return {
        f"{words}, {balance} balance": shift(lie, balance == "usual")
        for words, lie in (("tenfold reports", tenfold), ("more on client 1", more))
        for balance in ("disjoint", "usual")
    }
