"""What spot checks fine the policies that a search found, in expectation."""

from __future__ import annotations

from collections.abc import Sequence

from verax.audit.judge.judgement import Judgement
from verax.audit.judge.spot import FinedPolicy
from verax.audit.run.record import RunResults
from verax.audit.run.subject import Runner
from verax.audit.search.responses import FoundResponse
from verax.audit.search.utilities import Array, Utilities
from verax.learning import Behaviour
from verax.mechanism import NoPayment, Rule, SpotAudit


def fined(
    judgement: Judgement, runner: Runner, responses: Sequence[FoundResponse], seeds: Sequence[int]
) -> list[FinedPolicy]:
    """Run the responses to the proposed price on some seeds, and price them three times."""
    own = [one for one in responses if one.price == "proposed"]
    if not own or not judgement.evidence.has(SpotAudit()):
        return []
    plan = judgement.plan
    price = judgement.choice.price.times(judgement.multiplier)
    behaviours = [Behaviour(one.reporting, (one.client,)) for one in own]
    once = _RunOnce(runner)

    def gains(rule: Rule) -> list[Array]:
        found = Utilities(plan, once, rule, price).on_seeds(seeds, behaviours)
        return [found[:, k, one.client] for k, one in enumerate(own)]

    rows = zip(own, gains(NoPayment()), gains(judgement.main.rule), gains(SpotAudit()), strict=True)
    return [
        FinedPolicy(one.client, free, free - paying, free - checked)
        for one, free, paying, checked in rows
    ]


class _RunOnce:
    """A runner that remembers its results: the same runs are priced by several rules."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self._results = runner, dict[tuple[int, tuple[Behaviour, ...]], RunResults]()
        self.width, self.work = runner.width, runner.work

    def run(self, seed: int, behaviours: Sequence[Behaviour]) -> RunResults:
        """Run some behaviours, unless the same were run before."""
        key = seed, tuple(behaviours)
        if key not in self._results:
            self._results[key] = self._runner.run(seed, list(behaviours))
        return self._results[key]
