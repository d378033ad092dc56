"""A made-up audit in the shape that `write_report` takes: plausible, and consistent in itself."""

import numpy as np

SCHEDULES = {
    "constant": "one price C for all rounds",
    "discounted": "C (1 − r)^(T − t), r fixed beforehand",
    "profile": "prices per block of rounds, from probes",
}
#: What one unit of the measure is worth under each schedule: a fair price, in units of C.
UNITS = {"constant": 6e-5, "discounted": 2e-3, "profile": 1.0}
ROUNDS, SWITCH = 1000, 990


def _spread(rng, mean, width):
    low, high = np.sort(mean + width * (0.8 + 0.4 * rng.random(2)) * [-1, 1])
    return {"mean": float(mean), "low": float(low), "high": float(high)}


def _strategies():
    for a in (0.0, 0.5, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0):
        yield f"scale {a:g}", a, a, 0, 0.0
    for early in (0.0, 0.8, 1.0):
        for late in (0.0, 1.5, 2.0, 3.0, 5.0):
            yield f"{early:g}, then {late:g}", early, late, SWITCH, 0.0
    for b in (0.1, 0.3, 1.0):
        yield f"noise {b:g}", 1.0, 1.0, 0, b


def _deviation(rng, client, clients, strategy, pull):
    label, early, late, switch, b = strategy
    e, f = early - 1, late - 1
    reward = pull * (0.01 * e + 0.02 * f - 0.0015 * (e + f) ** 2) - 0.004 * b**2
    reward += 3e-4 * rng.standard_normal()
    rises = {  # a constant price cannot see that the last rounds weigh more than the first
        "constant": 0.96 * (early**2 - 1) + 0.04 * (late**2 - 1) + b**2,
        "discounted": 0.5 * (early**2 - 1) + 0.5 * (late**2 - 1) + b**2,
        "profile": 0.34 * (early**2 - 1) + 0.66 * (late**2 - 1) + b**2,
    }
    rise = {s: float(0.017 * pull * rises[s] / UNITS[s]) for s in SCHEDULES}
    others = [j for j in range(clients) if j != client]
    harm = {
        str(j): _spread(rng, (0.008 + 0.01 * rng.random()) * (e + 2 * f) + 0.01 * b, 0.003)
        for j in others
    }
    return {
        "label": label,
        "a_early": early,
        "a_late": late,
        "switch_round": switch or None,
        "constant": early == late,
        "b": b,
        "reward_gain": _spread(rng, reward, 0.0015 + 0.004 * abs(reward)),
        "steering": None if b else _spread(rng, 0.9 * reward, 0.001),
        "others_gain": {"mean": -sum(one["mean"] for one in harm.values())},
        "payment_rise": rise,
        "harm": harm,
    }


def window_of(deviations, schedule, tolerance):
    """Prices at which no deviation gains more than the tolerance."""
    gains = np.array([d["reward_gain"]["mean"] for d in deviations]) - tolerance
    rises = np.array([d["payment_rise"][schedule] for d in deviations])
    low = float(max(0.0, *(gains[rises > 0] / rises[rises > 0])))
    ends = gains[rises < 0] / rises[rises < 0]
    high = float(ends.min()) if ends.size else None
    empty = bool((gains[rises <= 0] > 0).any()) or (high is not None and low > high)
    prices = [0.0, *np.geomspace(UNITS[schedule] / 30, UNITS[schedule] * 30, 400)]
    worst = min(float((gains + tolerance - c * rises).max()) for c in prices)
    return {
        "schedule": schedule,
        "low": None if empty else low,
        "high": None if empty else high,
        "worst_gain": worst,
        "reason": "empty: a late surge gains more than the price takes" if empty else None,
    }


def _client(rng, i, clients):
    pull = float(0.6 + 0.8 * rng.random())
    deviations = [_deviation(rng, i, clients, s, pull) for s in _strategies()]
    constant = [d for d in deviations if d["a_early"] == d["a_late"] and not d["b"]]
    tolerance = float(0.0035 + 0.001 * rng.random())
    return {
        "client": i,
        "name": f"client {i}",
        "tolerance": tolerance,
        "others_tolerance": 2 * tolerance,
        "reward_size": 0.25,
        "honest_loss": _spread(rng, 0.2 + 0.1 * rng.random(), 0.01),
        "honest_accuracy": float(0.9 + 0.05 * rng.random()),
        "honest_payment": {},
        "windows": [window_of(deviations, s, tolerance) for s in SCHEDULES],
        "windows_constant_misreports": [window_of(constant, s, tolerance) for s in SCHEDULES],
        "deviations": deviations,
    }


def _profile(rng, clients):
    starts = [1, 501, 751, 876, 938, 969, 985, 993, 997, 998, 999, 1000]
    length = np.diff([*starts, ROUNDS + 1])
    decay = np.exp(-(ROUNDS - np.array(starts) - length / 2) / 150.0)
    prices = 0.02 * decay[:, None] * (0.6 + 0.8 * rng.random(clients))
    prices[0, -1] = 0.0
    return {
        "starts": starts,
        "rounds": ROUNDS,
        "prices": prices.tolist(),
        "common": prices.mean(axis=1).tolist(),
        "temptation": [
            [_spread(rng, 3 * p * np.sqrt(n), 0.01) for p in row]
            for row, n in zip(prices, length, strict=True)
        ],
        "undeterred": [{"block": 0, "reason": "nobody has a price"}],
    }


def _payments(rng, clients):
    rounds = [*range(1, ROUNDS, 5), ROUNDS]
    rate = rng.standard_normal(clients)
    rate -= rate.mean()
    spent = {
        "constant": 1 - np.exp(-np.array(rounds) / 300.0),
        "discounted": np.exp((np.array(rounds) - ROUNDS) / 200.0),
        "profile": np.exp((np.array(rounds) - ROUNDS) / 150.0),
    }
    return {
        "rounds": rounds,
        "schedules": {
            s: np.multiply.outer(spent[s], 0.05 * rate / UNITS[s]).tolist() for s in SCHEDULES
        },
    }


def _spot(with_price, fine):
    return {
        "with_price": with_price,
        "fine": fine,
        "worst_share": 0.001,
        "searched_share": 0.002,
    }


def make_audit(clients=3, seed=0):
    """The audit of a federation in which only the profile has a window."""
    rng = np.random.default_rng(seed)
    members = [_client(rng, i, clients) for i in range(clients)]
    payments = _payments(rng, clients)
    for i, member in enumerate(members):
        member["honest_payment"] = {s: payments["schedules"][s][-1][i] for s in SCHEDULES}
    ends = [next(w for w in m["windows"] if w["schedule"] == "profile") for m in members]
    low, high = max(w["low"] for w in ends), min(w["high"] for w in ends)
    return {
        "verax": "0.1.0",
        "task": "digits",
        "members": [
            [m["name"], m["honest_payment"]["profile"], m["honest_loss"]["mean"]] for m in members
        ],
        "members_words": "Before allowances honest members pay +0.1 to +0.2 over the run.",
        "title": f"digits, mlp, {clients} clients, {ROUNDS} rounds",
        "settings": [
            ["protocol", "FedSGD, step 0.06, batch 32"],
            ["heterogeneity", "Dirichlet 0.3"],
            ["seeds", "4 set the price, 8 judged"],
        ],
        "verdict": [
            f"Without a price, all {clients} clients gain by misreporting.",
            "One price for all rounds does not stop it: a late surge still gains.",
            f"The price profile does, from {low:.2g} to {high:.2g} times its prices.",
        ],
        "currency": "EUR",
        "worth": [1.0] * clients,
        "tolerance": float(np.mean([m["tolerance"] for m in members])),
        "schedules": list(SCHEDULES),
        "schedule_words": dict(SCHEDULES),
        "window": {"schedule": "profile", "low": low, "high": high},
        "tolerance_share": 0.01,
        "rule": "squared-norm",
        "reason": None,
        "proposed": {"schedule": "profile", "price": 1.0},
        "clients": members,
        "search": [
            {
                "price": "proposed",
                "client": 0,
                "name": "client 0",
                "gain": {"mean": 0.0021, "low": 0.001, "high": 0.0032},
                "gain_share": 0.0084,
                "others_gain": {"mean": -0.0012, "low": -0.002, "high": 0.0},
                "harmful": False,
                "undeterred": False,
                "most_hurt": {
                    "client": 1,
                    "name": "client 1",
                    "gain_share": {"mean": -0.001, "low": -0.002, "high": 0.0},
                },
                "words": "own momentum 0.9",
                "scales": [1.0, 1.5, 0.5],
                "runs": 160,
            }
        ],
        "tried": [
            {
                "kind": "timing",
                "tried": 12,
                "client": 0,
                "name": "client 0",
                "label": "scale 5 in the last round",
                "gain_share": {"mean": 0.0123, "low": 0.01, "high": 0.015},
                "others_share": {"mean": -0.02, "low": -0.03, "high": -0.01},
                "harmful": True,
            }
        ],
        "absences": [],
        "spot": {
            "rounds": 2,
            "calls": 2 * clients,
            "run_calls": ROUNDS * clients,
            "honest_levy": 0.5,
            "error": 1e-4,
            "honest_payment": 5e-9,
            "tolerance": 1e-3,
            "fee": 0.25,
            "options": (spot := [_spot(True, 10.0), _spot(False, 30.0)]),
            "chosen": spot[0],
        },
        "pairs": [
            {
                "members": [0, 1],
                "names": ["client 0", "client 1"],
                "gain_share": {"mean": 0.004, "low": 0.001, "high": 0.007},
                "others_share": {"mean": -0.001, "low": -0.002, "high": 0.0},
                "harmful": False,
                "scales": [[1.0, 2.0], [1.0, 1.5]],
                "runs": 60,
            }
        ],
        "everybody": [
            {
                "price": "none",
                "start": 1.0,
                "settled": False,
                "scales": [[2.0, 2.5], [3.0, 3.5]],
                "rise_by_member": [{"mean": -0.1, "low": -0.2, "high": 0.0}] * 2,
                "rise": {"mean": -0.1, "low": -0.2, "high": 0.0},
            }
        ],
        "second_order": [
            {
                "client": 0,
                "name": "client 0",
                "first": 1,
                "last": 15,
                "second_difference": {"mean": -0.02, "low": -0.03, "high": -0.01},
                "scale": 2.0,
                "gain_share": {"mean": -0.004, "low": -0.006, "high": -0.002},
            }
        ],
        "noise": [
            {
                "client": 0,
                "name": "client 0",
                "source": "full batch",
                "signal_share": [0.5, 0.25],
                "predicted": 0.12,
                "measured": 0.11,
                "predicted_best": 0.3,
                "measured_best": 0.28,
                "predicted_in_batches_4_times_as_large": 0.04,
                "measured_in_batches_4_times_as_large": None,
            }
        ],
        "profile": _profile(rng, clients),
        "payments": payments,
        "rules": [
            {
                "name": f"{rule}, {schedule}",
                "worst_gain": float(0.02 * rng.random()),
                "worst_share": float(0.02 * rng.random()),
                "window": "0.8 … 1.3" if schedule == "profile" else "empty",
                "honest_payment": float(0.1 * rng.random()),
                "mean_loss": 0.26,
            }
            for rule in ("squared-norm", "groves-ledyard")
            for schedule in ("constant", "profile")
        ],
        "not_tried": ["collusion", "misreports that follow the others' messages"],
        "versions": {"jax": "0.10.2", "numpy": np.__version__},
    }
