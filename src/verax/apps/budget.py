"""How long an app's audit takes, and what is left out so that it fits a budget of time."""

from __future__ import annotations

from verax.apps.look import AppFacts
from verax.audit.plan import Plan
from verax.audit.run.runs import all_runs

#: What is left out, step by step, until the audit fits; each with its words.
_STEPS = (
    ({"setting_seeds": 2, "judging_seeds": 3}, "2 seeds set the price and 3 judge"),
    ({"surges": (0.0, 5.0)}, "surges have the scales 0 and 5 alone"),
    ({"scales": (0.0, 0.5, 0.9, 1.0, 1.1, 2.0, 5.0)}, "seven constant scales"),
    ({"surge_rounds": (1, 5, 20, 200)}, "surges of 1, 5, 20 and 200 last rounds"),
    ({"phases": ((0.5, 2.0, 0.5), (0.5, 5.0, 0.9))}, "two timings with two phases"),
    ({"setting_seeds": 1, "judging_seeds": 2}, "1 seed sets the price and 2 judge"),
    ({"noises": (), "scales": (0.5, 1.0, 2.0, 5.0)}, "three constant scales and no noise"),
)


def predicted_seconds(plan: Plan, facts: AppFacts, workers: int) -> float:
    """From the time of one run: honest rounds before a deviation cost nothing."""
    T = plan.rounds
    rounds = 0
    for run in all_runs(plan, T):
        honest = 0
        if run.role in ("probe", "deviation"):
            honest = run.reporting.honest_rounds(T)
        rounds += T - honest
    return rounds / T * facts.run_seconds / workers


def fitted(plan: Plan, facts: AppFacts, workers: int, budget: float) -> tuple[Plan, list[str]]:
    """A plan that takes at most so many seconds, and what was left out for that."""
    words: list[str] = []
    for change, sentence in _STEPS:
        seconds, less = predicted_seconds(plan, facts, workers), plan.changed(**change)
        if seconds <= budget:
            break
        if predicted_seconds(less, facts, workers) < seconds:  # the user may have asked for less
            plan = less
            words.append(f"To fit the budget: {sentence}.")
    seconds = predicted_seconds(plan, facts, workers)
    if seconds > budget:
        raise ValueError(
            f"the smallest audit of this app takes about {time_words(seconds)}, the budget is "
            f"{time_words(budget)}; give more, fewer rounds by --run-config, or more --workers"
        )
    return plan, words


def time_words(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
