"""How runs are cut into batches: each once, with one width per program, and little padding."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from verax.audit import Plan
from verax.audit.run.runs import all_runs, batch_width, batches_of, branch_rounds, probes


def computed(cut, rounds):
    """Run-rounds that are computed, padding included."""
    return sum(batch.width * (rounds - batch.first.branch) for batch in cut)


def kind(batch):
    return batch.first.aggregator, str(batch.first.behaviour(3).program)


@given(
    rounds=st.integers(2, 400),
    scales=st.sets(st.sampled_from([0.0, 0.5, 0.9, 1.1, 1.5, 2.0, 3.0, 5.0]), min_size=1),
    seeds=st.integers(2, 3),
    parameters=st.sampled_from([10, 650, 4810, 100_000, 7_000_000]),
    memory=st.sampled_from([1, 2**20, 2**28, 2**33]),
)
def test_every_run_once_and_one_width_per_program(rounds, scales, seeds, parameters, memory):
    plan = Plan.of(rounds=rounds, scales=(1.0, *sorted(scales)), judging_seeds=seeds)
    runs = all_runs(plan, min(50, rounds))
    cut = batches_of(runs, rounds, 3, parameters, memory)
    assert [batch.number for batch in cut] == list(range(len(cut)))
    assert sorted(run.number for batch in cut for run in batch.runs) == list(range(len(runs)))
    most = batch_width(3, parameters, memory)
    for _, like in groupby(sorted(cut, key=kind), key=kind):
        (width,) = {batch.width for batch in like}
        assert 1 <= width <= most
    for batch in cut:
        assert len({(run.seed, run.branch, run.aggregator) for run in batch.runs}) == 1
        assert len(batch.padded) == batch.width
        # the state that others branch from is that of the batch's first run
        assert all(run.role != "honest" for run in batch.runs[1:])


def test_the_default_audit_pads_little():
    plan = Plan.of(protocol="fedsgd")
    runs = all_runs(plan, 50)
    needed = sum(plan.rounds - run.branch for run in runs)
    cut = batches_of(runs, plan.rounds, 3, 4810, 2**30)
    assert needed <= computed(cut, plan.rounds) < 1.1 * needed


def test_probes_cover_every_block_twice_and_cost_a_few_runs():
    plan = Plan.of(protocol="fedsgd")
    tried = probes(plan)
    assert len(tried) == 2 * len(plan.blocks)
    covered = sum((probe.scales(plan.rounds) != 1).astype(int) for probe in tried)
    assert set(covered) == {2}
    assert {probe.a for probe in tried} == {1.3, 0.7}
    seed = plan.seeds.first
    runs = [run for run in all_runs(plan, 50) if run.role == "probe" and run.seed == seed]
    cost = sum(plan.rounds - run.branch for run in runs) / plan.rounds / len(plan.deviators)
    assert cost < 5  # in whole runs, per client


@given(st.integers(1, 200), st.integers(0, 70), st.sampled_from([1, 7, 50]))
def test_runs_branch_off_where_a_segment_of_the_simulator_ends(rounds, every, segment):
    plan = Plan.of(rounds=rounds, evaluate_every=every)
    length, ends, now = min(segment, rounds), {0}, 0
    for t in range(1, rounds + 1):
        if t - now == length or (every and t % every == 0):
            now = t
            ends.add(t)
    assert set(branch_rounds(plan, length)) <= ends
