"""How runs are cut into batches: each once, alike ones equally wide, little filled up."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from verax.audit import Plan
from verax.audit.work import all_runs, batch_width, batches


def computed(cut, rounds):
    """Run-rounds that are computed, those that only fill up included."""
    return sum(batch.width * (rounds - batch.first.branch) for batch in cut)


def kind(batch):
    noisy = bool(getattr(batch.first.reporting, "b", 0))
    return batch.first.aggregator, noisy


@given(
    rounds=st.integers(2, 400),
    scales=st.sets(st.sampled_from([0.0, 0.5, 0.9, 1.1, 1.5, 2.0, 3.0, 5.0]), min_size=1),
    seeds=st.integers(2, 3),
    parameters=st.sampled_from([10, 650, 4810, 100_000, 7_000_000]),
    memory=st.sampled_from([1, 2**20, 2**28, 2**33]),
)
def test_every_run_once_and_alike_ones_equally_wide(rounds, scales, seeds, parameters, memory):
    plan = Plan(rounds=rounds, scales=(1.0, *sorted(scales)), judging_seeds=seeds)
    runs = all_runs(plan, min(50, rounds))
    cut = batches(runs, rounds, 3, parameters, memory)
    assert [batch.number for batch in cut] == list(range(len(cut)))
    assert sorted(run.number for batch in cut for run in batch.runs) == list(range(len(runs)))
    most = batch_width(3, parameters, memory)
    for _, alike in groupby(sorted(cut, key=kind), key=kind):
        (width,) = {batch.width for batch in alike}
        assert 1 <= width <= most
    for batch in cut:
        assert len({(run.seed, run.branch, run.aggregator) for run in batch.runs}) == 1
        assert len(batch.padded) == batch.width
        # the state that others branch from is that of the batch's first run
        assert all(run.role != "honest" for run in batch.runs[1:])


def test_the_default_audit_fills_up_little():
    """Of the embedded task, 59, 12, 12 and 72 runs a seed: ten at a time would add a ninth."""
    plan = Plan()
    runs = all_runs(plan, 50)
    needed = sum(plan.rounds - run.branch for run in runs)
    cut = batches(runs, plan.rounds, plan.clients, 4810, 2**30)
    assert needed <= computed(cut, plan.rounds) < 1.04 * needed
