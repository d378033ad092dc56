"""Schedules against direct products, brute force and hand-worked numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from verax.mechanism import Problem, constant_steps, decaying_offset, decaying_steps, schedule
from verax.mechanism.influence import contraction


def problem(**changes):
    values = {
        "clients": 3,
        "steps": constant_steps(0.06, 100),
        "strong_convexity": 0.1,
        "smoothness": 1.0,
        "lipschitz": 1.0,
        "epsilon": 0.1,
    }
    return Problem(**(values | changes))


@pytest.mark.parametrize(
    ("rounds", "log10"), [(100, 13.65), (1000, 147.46), (10650, 1582.26)]
)  # of C_1·Nε/L
def test_the_printed_price_explodes(rounds, log10):
    found = schedule.paper(problem(steps=constant_steps(0.06, rounds)))
    assert found.log10[0] == pytest.approx(log10 - math.log10(0.3), abs=0.005)
    assert found.overflow == (rounds > 2081)


def test_float64_overflows_past_2081_rounds():
    exact = problem(steps=constant_steps(0.06, 2081), lipschitz=0.3)
    assert not schedule.paper(exact).overflow
    assert schedule.paper(problem(steps=constant_steps(0.06, 2082), lipschitz=0.3)).overflow


@given(
    steps=st.lists(st.floats(0.01, 0.9), min_size=1, max_size=12),
    m=st.floats(0.05, 0.9),
    ratio=st.floats(1, 5),
    L=st.floats(0.1, 3),
    epsilon=st.floats(0.01, 1),
    L_q=st.floats(0, 1),
)
def test_log_space_equals_the_plain_recursion(steps, m, ratio, L, epsilon, L_q):
    p = problem(
        steps=np.array(steps),
        strong_convexity=m,
        smoothness=m * ratio,
        lipschitz=L,
        epsilon=epsilon,
        payment_lipschitz=L_q,
    )
    T, N, H = len(steps), 3, m * ratio
    for t in range(T):
        c = math.prod(2 * (1 - 2 * g * m + g * g * H * H) for g in steps[t + 1 :])
        assert schedule.paper(p).prices[t] == pytest.approx(
            math.sqrt(2 * c) * steps[t] * L / (N * epsilon)
        )
    after = L
    kappa = contraction(p)
    for t in reversed(range(T)):
        assert schedule.repaired(p).prices[t] == pytest.approx(
            steps[t] * after / (2 * N * epsilon), rel=1e-9, abs=1e-300
        )
        after *= kappa[t] + steps[t] * L_q / (2 * N * epsilon)


def test_contraction_bounds_coupled_runs():
    """κ against the worst pair of points over random per-sample quadratics, by Monte Carlo.

    E‖θ' − θ − γ(ḡ(θ') − ḡ(θ))‖² / ‖θ' − θ‖² for N clients that each draw one sample: 4,000 draws
    leave a relative error of about 2 %, so the bound must hold with that much to spare, and be
    reached by the extreme case.
    """
    rng = np.random.default_rng(0)
    N, m, H, gamma = 3, 0.2, 1.0, 0.7
    p = problem(clients=N, steps=np.array([gamma]), strong_convexity=m, smoothness=H)
    bound = contraction(p)[0] ** 2
    # per-sample curvature is 0 or H, with mean m: the case that the bound is built on
    curvature = H * (rng.random((4000, N)) < m / H)
    ratio = np.mean((1 - gamma * curvature.mean(axis=1)) ** 2)
    assert ratio == pytest.approx(bound, rel=0.02)
    for spread in (0.3, 0.6):  # less extreme samples contract more
        milder = np.clip(m + spread * (curvature - m), 0, H)
        assert np.mean((1 - gamma * milder.mean(axis=1)) ** 2) < bound


def test_per_sample_strong_convexity_gives_the_plain_rate():
    p = problem(sample_convexity=0.1)
    assert_allclose(contraction(p), max(abs(1 - 0.06 * 0.1), abs(1 - 0.06)))
    with_known = problem(sample_convexity=0.1, global_smoothness=0.5)
    assert_allclose(contraction(with_known), 1 - 0.06 * 0.1)


def test_influence_stays_bounded_for_every_horizon():
    p = problem(steps=constant_steps(0.06, 20_000), sample_convexity=0.1, payment_lipschitz=0.0)
    weights = p.steps * np.exp(schedule.log_lambda(p, 0.0))
    assert weights.sum() == pytest.approx((1 - (1 - 0.006) ** 20_000) / 0.1)


def test_sharp_is_offered_only_where_later_payments_cannot_matter():
    once = problem(steps=constant_steps(0.06, 1))
    assert schedule.sharp(once).prices[0] == pytest.approx(0.06 / (2 * 3 * 0.1))
    alike = problem(payment_lipschitz=0.0)
    assert_allclose(schedule.sharp(alike).prices, schedule.repaired(alike).prices)
    with pytest.raises(ValueError, match=r"T = 1 or L_q = 0, here T = 100 and L_q is 0.5.*later"):
        schedule.sharp(problem(payment_lipschitz=0.5))
    with pytest.raises(ValueError, match="L_q is unknown"):
        schedule.sharp(problem())
    with pytest.raises(ValueError, match="needs L_q"):
        schedule.repaired(problem())


def test_stability_threshold():
    p = problem(sample_convexity=0.1, payment_lipschitz=0.06)
    assert schedule.stable_epsilon(p) == pytest.approx(0.06 / (2 * 3 * 0.1))
    for epsilon, bounded in ((0.11, True), (0.09, False)):
        long = problem(
            steps=constant_steps(0.06, 20_000),
            sample_convexity=0.1,
            payment_lipschitz=0.06,
            epsilon=epsilon,
        )
        assert (schedule.repaired(long).log10[0] < 1) == bounded
    unstable = problem(steps=constant_steps(2.5, 1), payment_lipschitz=0.06)
    assert schedule.stable_epsilon(unstable) == math.inf
    with pytest.raises(ValueError, match="L_q"):
        schedule.stable_epsilon(problem())


def test_groves_ledyard_and_spot_audit_prices():
    steps = np.array([0.1, 0.2, 0.3])
    found = schedule.groves_ledyard(2.0, steps, 0.5, clients=4)
    assert_allclose(found.prices, 2 * steps / 8 * [0.9 * 0.85, 0.85, 1.0])
    fines = schedule.spot_audit(3.0, 2.0, steps, [0.5, 0.7, 1.0], clients=4)
    assert_allclose(fines.prices, 3 * 2 * steps * [0.5, 0.7, 1.0] / 8)
    with pytest.raises(ValueError, match=r"step × curvature is 1\.5, must be ≤ 1"):
        schedule.groves_ledyard(1.0, [0.3], 5.0, 3)
    assert schedule.groves_ledyard(1.0, [1.0, 1.0], 1.0, 3).prices[0] == 0.0


def test_decaying_steps():
    eta = decaying_offset(0.5, 2.0, 4, noise_growth=3.0)
    assert eta == pytest.approx(4 * 2 * (6 + 4) / (0.5 * 4))
    assert decaying_offset(0.5, 2.0, 4, 3.0, biased=True) == pytest.approx(8 * 16 / 2)
    assert_allclose(decaying_steps(0.5, eta, 2), [4 / (0.5 * (eta + 1)), 4 / (0.5 * (eta + 2))])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: problem(clients=1), "clients is 1, must be ≥ 2"),
        (lambda: problem(epsilon=0.0), "epsilon is 0"),
        (lambda: problem(epsilon=math.nan), "epsilon is nan"),
        (lambda: problem(strong_convexity=2.0), "strong convexity 2 exceeds smoothness 1"),
        (lambda: problem(noise=-1.0), "noise is -1"),
        (lambda: problem(sample_convexity=0.2), "exceeds that of F"),
        (lambda: problem(global_smoothness=0.01), "outside 0.1 … 1"),
        (lambda: problem(steps=np.array([0.1, -0.1])), "step of round 2 is -0.1"),
        (lambda: problem(steps=np.array([])), "rounds is 0"),
        (lambda: problem(steps=np.ones((2, 2))), "one number per round"),
        (lambda: constant_steps(0.0, 3), "step is 0"),
        (lambda: constant_steps(0.1, 0), "rounds is 0"),
        (lambda: decaying_steps(0.1, -1.0, 3), "offset η is -1"),
    ],
)
def test_wrong_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()
