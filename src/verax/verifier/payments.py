"""Payments and amounts, computed again: p_i = C_i n_i − mean_{j≠i} C_j n_j − κ_i."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter, sub

from verax.verifier.forms import Account, Record, WrongRecordError
from verax.verifier.terms import Terms, check_gram

_NANO = 10**9  # nano-units in a minor unit


def check_inputs(terms: Terms, r: Record, accounts: Mapping[int, Account]) -> None:
    """Price, rule, statuses, statistics, Gram matrix and weights fit the terms."""
    price = terms.price(r["round"])
    if (
        r["rule"] != terms.rule
        or len(price) != len(r["price"])
        or not all(
            math.isclose(a, b, rel_tol=1e-12) for a, b in zip(price, r["price"], strict=True)
        )
    ):
        raise WrongRecordError(
            "terms", f"rule {r['rule']!r} at {r['price']}, the terms say {price}"
        )
    reads, values, gram = r["reads"], r["statistics"], r["gram"]
    if terms.reads not in (None, reads) or (reads == "gram") != (values is None):
        raise WrongRecordError("form", f"rule {terms.rule} cannot read {reads!r}")
    if (reads == "gram") != (gram is not None):
        raise WrongRecordError("form", f"rule {terms.rule} needs other inputs")
    statuses, weights, counts = r["statuses"], r["weights"], r["examples"]
    named = statuses.keys() | weights.keys() | r["reasons"].keys() | counts.keys()
    if named - {*r["accounts"]}:
        raise WrongRecordError("form", "a status, weight or reason belongs to nobody in the round")
    if (weights.keys() | counts.keys()) & statuses.keys():
        raise WrongRecordError("form", "a member that is not ok has a weight or an example count")
    ok = [number for number in r["accounts"] if number not in statuses]
    if values is not None:
        numbers = [n for n, x in zip(r["accounts"], values, strict=False) if x is not None]
        if len(values) != len(r["accounts"]) or numbers != ok:
            raise WrongRecordError("form", "not exactly the members that are ok have a statistic")
    else:
        check_gram(gram, len(ok))
    if counts:
        _check_examples(terms, ok, weights, counts)
    order = listed_order(terms, r, accounts)
    if ok and (weights or terms.weights == "fixed"):
        _check_weights(terms, r["accounts"], ok, weights, order)


def _check_examples(
    terms: Terms, ok: list[int], weights: dict[int, float], counts: dict[int, int]
) -> None:
    """Where example counts are booked, weights follow from them: N c_i / Σ c_j."""
    fewest, most = terms.counts
    if terms.weights != "reported" or counts.keys() != {*ok}:
        raise WrongRecordError("weight", "not exactly the members that are ok have a count")
    if not fewest <= min(counts.values()) <= max(counts.values()) <= most:
        raise WrongRecordError("weight", "an example count is outside the limits of the terms")
    total = sum(counts.values())
    pairs = [(weights.get(number, 1.0), counts[number] * len(ok) / total) for number in ok]
    if not all(math.isclose(a, b, rel_tol=1e-9) for a, b in pairs):
        raise WrongRecordError("weight", "weights do not follow from the example counts")


def _check_weights(
    terms: Terms, accounts: list[int], ok: list[int], weights: dict[int, float], order: list[int]
) -> None:
    """Weights must be those that the terms fix; reported weights must have the mean 1."""
    booked = [weights.get(number, 1.0) for number in ok]
    if terms.weights == "reported":
        right = abs(math.fsum(booked) / len(ok) - 1) <= 1e-9 * len(ok)
    else:
        expected = [1.0] * len(ok)
        if terms.weights == "fixed":
            table = dict(zip(accounts, _by_participant(terms.weight_values, order), strict=True))
            own = [table[number] for number in ok]
            expected = [value * len(ok) / math.fsum(own) for value in own]
        pairs = zip(booked, expected, strict=True)
        right = all(abs(a - b) <= 1e-9 * max(1, b) for a, b in pairs)
    if not right:
        raise WrongRecordError("weight", "weights are not those of the terms")


def check_charge(terms: Terms, r: Record, accounts: Mapping[int, Account]) -> None:
    """Payments follow from inputs and terms; of an unknown rule, what is true of every rule."""
    booked = r["payments"]
    if len(booked) != len(r["accounts"]):
        raise WrongRecordError("form", "there must be as many payments as accounts")
    total, size = sum(booked), sum(map(abs, booked))
    if max(map(abs, booked), default=0.0) * 10.0**terms.scale > 2.0**64 or not (
        abs(total) <= max(0.5 * 10.0**-terms.scale, 1e-9 * size)
    ):
        raise WrongRecordError("payment", f"payments sum to {total:.6g} or are too large")
    for number, status in r["statuses"].items():
        if booked[r["accounts"].index(number)] and terms.policy[status] == "excuse":
            raise WrongRecordError("payment", "a member that is excused pays")
    if terms.measure is None or not booked:
        return
    order = listed_order(terms, r, accounts)
    payments, rounding = compute_payments(terms, r, order)
    difference = max(map(abs, map(sub, payments, booked)))
    allowed = 1e-9 * max(map(abs, payments)) + rounding
    if not difference <= allowed < math.inf:  # a levy that overflows allows nothing
        raise WrongRecordError(
            "payment", f"payments differ by {difference:.6g} from inputs and terms"
        )


def listed_order(terms: Terms, r: Record, accounts: Mapping[int, Account]) -> list[int]:
    """The positions of the members that the terms list, who must be exactly the participants."""
    if not terms.members:
        return list(range(len(r["accounts"])))
    members = [accounts[number] for number in r["accounts"]]
    order: list[int] = []
    for listed in terms.members:
        by_id = [i for i, each in enumerate(members) if each.member == listed]
        order += by_id or [i for i, each in enumerate(members) if each.label == listed]
    if sorted(order) != list(range(len(members))) or len(order) != len(terms.members):
        raise WrongRecordError(
            "member", "participants are not exactly the members that the terms list"
        )
    return order


def to_units(payments: list[float], scale: int, carried: list[int]) -> tuple[list[int], list[int]]:
    """Minor units that sum to zero, and the remainders to carry, in nano-units."""
    units, after = [0] * len(carried), list(carried)
    paying = [i for i, payment in enumerate(payments) if payment]
    if not paying:
        return units, after
    ratios = [payments[i].as_integer_ratio() for i in paying]
    common = max(ratios, key=itemgetter(1))[1]  # all are powers of two
    power = 10**scale * _NANO
    nano = _apportion([above * power * (common // below) for above, below in ratios], common)
    totals = [after[i] + x for i, x in zip(paying, nano, strict=True)]
    m, shared = len(paying), sum(after[i] for i in paying)
    whole = _apportion([m * total - shared for total in totals], m * _NANO)
    for i, unit, total in zip(paying, whole, totals, strict=True):
        units[i], after[i] = unit, total - _NANO * unit
    return units, after


def _apportion(parts: list[int], unit: int) -> list[int]:
    """Parts as whole multiples of a unit that sum to zero, by the largest-remainder method."""
    wholes = [part // unit for part in parts]
    each, rest = divmod(-sum(wholes), len(parts))
    remainders = [part % unit for part in parts]
    for i in sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)[:rest]:
        wholes[i] += 1
    return [whole + each for whole in wholes] if each else wholes


def _by_participant(listed: list[float], order: list[int]) -> list[float]:
    """Numbers in the order of the terms' members, put into that of the participants."""
    if len(listed) == 1:
        return listed * len(order)
    result = [0.0] * len(order)
    for value, i in zip(listed, order, strict=True):
        result[i] = value
    return result


def _balanced(levies: list[float], present: list[bool]) -> list[float]:
    """Each participant pays its levy and receives the mean of the others' levies."""
    total = math.fsum(levies)  # those of the absent are zero
    others = sum(present) - 1
    pairs = zip(levies, present, strict=True)
    return [levy - (total - levy) / others if p else 0.0 for levy, p in pairs]


def compute_payments(terms: Terms, r: Record, order: list[int]) -> tuple[list[float], float]:
    """The payments of a round, and by how much rounding may change them."""
    assert terms.measure is not None
    statuses = ["ok"] * len(order)
    for number, status in r["statuses"].items():
        statuses[r["accounts"].index(number)] = status
    ok = [status == "ok" for status in statuses]
    measured, fewest = terms.measure(r["statistics"], r["gram"], ok)
    measures = [float(m) if there else 0.0 for m, there in zip(measured, ok, strict=True)]
    prices = _by_participant(terms.price(r["round"]), order)
    actions = [None if s == "ok" else terms.policy[s] for s in statuses]
    present = ok
    if any(ok) and "largest" in actions:
        most = max(measures)
        pairs = zip(measures, actions, strict=True)
        measures = [most if action == "largest" else m for m, action in pairs]
        present = [action in (None, "largest") for action in actions]
    result = [0.0] * len(ok)
    if sum(present) >= max(fewest, 2):
        result = _balanced([c * m for c, m in zip(prices, measures, strict=True)], present)
        if terms.allowances:
            result = _less_allowances(terms, result, r["round"], present, order)
    fined = actions.count("flat-fee")
    if fined and any(ok):
        fee = terms.policy["fee"]
        share = fee * fined / sum(ok)
        for i, action in enumerate(actions):
            result[i] += fee if action == "flat-fee" else -share if action is None else 0.0
    inputs = [x for x in r["statistics"] or () if x]
    inputs += [40 * row[i] for i, row in enumerate(r["gram"] or ())]
    size = max(max(inputs, default=0.0), max(map(abs, measures), default=0.0))
    return result, 1e-12 * max(prices, default=0.0) * size


def _less_allowances(
    terms: Terms, payments: list[float], t: int, present: list[bool], order: list[int]
) -> list[float]:
    row = terms.allowances[min(terms.block(t), len(terms.allowances) - 1)]
    kappa = _by_participant(row, order)
    mean = math.fsum(k for k, p in zip(kappa, present, strict=True) if p) / sum(present)
    rows = zip(payments, kappa, present, strict=True)
    return [payment - (k - mean) if p else payment for payment, k, p in rows]
