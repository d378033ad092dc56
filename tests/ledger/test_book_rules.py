"""Every rule, policy and price: the verifier's own payments agree with the mechanism's."""

import numpy as np
import pytest
from books import forged

from verax.ledger import Book, BookError, Report
from verax.ledger.export import export_book, import_book
from verax.mechanism import BUILT_IN, FailurePolicy, Price, Terms, Weights, rule_named
from verax.verifier import verify

ACTIONS = ("excuse", "flat-fee", "largest")
RULES = [rule.name for rule in BUILT_IN if rule.reads != "smoothed"]
PRICES = {
    "one": Price.constant(0.37),
    "discounted": Price.discounted(0.37, 0.05, 40),
    "blocks": Price(((0.2,), (0.9,)), starts=(1, 4), rounds=40),
    "own": Price(((0.1, 0.2, 0.7, 0.0, 1.1),)),
    "own blocks": Price(
        ((0.1, 0.2, 0.7, 0.3, 1.1), (1.0, 2.0, 3.0, 4.0, 5.0)), starts=(1, 4), rounds=40
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_verified(path, rule):
    """All prices × policies × allowances, random statuses, a few rounds each."""
    rng = np.random.default_rng(sum(map(ord, rule)))
    statuses = ("ok", "ok", "ok", "missing", "rejected", "error")
    charged = 0
    with Book.open(path) as book:
        for k, (price, own) in enumerate((p, w) for p in PRICES.values() for w in (False, True)):
            closed = own or len(price.values[0]) > 1
            terms = Terms(
                price,
                rule=rule,
                members=tuple("edcba") if closed else (),
                allowances=((0.5, -0.2, 0.1, -0.3, -0.1),) if own else (),
                policy=FailurePolicy(*rng.choice(ACTIONS, 3).tolist(), fee=0.77),
                weights=Weights("equal"),
                scale=int(rng.integers(0, 9)),
            )
            name = f"f{k}"
            book.create_federation(name, terms)
            for member in "abcde" if closed else "":
                book.join(name, member)
            for t in range(1, 7):
                fates = [str(rng.choice(statuses)) for _ in range(5)]
                vectors = rng.normal(0, 2, (5, 3))
                ok = [i for i, fate in enumerate(fates) if fate == "ok"]
                gram = None
                if rule_named(rule).reads == "distances":
                    gram = (vectors @ vectors.T)[np.ix_(ok, ok)]
                reports = [
                    Report("abcde"[i], fate, None if gram is not None or fate != "ok" else
                           float(vectors[i] @ vectors[i]))
                    for i, fate in enumerate(fates)
                ]  # fmt: skip
                receipt = book.post(name, "run", t, reports, gram)
                assert sum(receipt.amounts.values()) == 0
                charged += any(receipt.amounts.values())
            found = verify(path, federation=name)
            assert found.ok, found.findings
    assert charged > 10


@pytest.mark.parametrize("rule", [name for name in RULES if name != "none"])
def test_a_wrong_payment_is_found_under_every_rule(path, tmp_path, rule):
    terms = Terms(Price.constant(0.5), rule=rule, scale=2)
    vectors = np.random.default_rng(3).normal(0, 1, (3, 4))
    gram = vectors @ vectors.T

    def change(content):
        if content["kind"] == "round":
            content["payments"][0] += 0.01
            content["payments"][1] -= 0.01
            content["amounts"][0] += 1
            content["amounts"][1] -= 1

    with Book.open(path) as book:
        book.create_federation("clinics", terms)
        if rule_named(rule).reads == "distances":
            book.post("clinics", "r", 1, [Report(m) for m in "abc"], gram)
        else:
            reports = [Report(m, statistic=gram[i, i]) for i, m in enumerate("abc")]
            book.post("clinics", "r", 1, reports)
        wrong = forged(book, "clinics", tmp_path / "forged.db", change)
    assert verify(path).ok
    assert [each.kind for each in verify(wrong).findings] == ["payment"]


@pytest.mark.parametrize("norm", [1.7e308, 6e307])
def test_a_norm_whose_charge_overflows_does_not_allow_every_payment(path, tmp_path, norm):
    """Whatever is within a relative error of infinity is anything."""

    def change(content):
        if content["kind"] == "round":
            content["statistics"][0] = norm

    with Book.open(path) as book:
        book.create_federation("clinics", Terms(Price.constant(3.0), scale=2))
        book.post("clinics", "r", 1, [Report(m, statistic=1.0 + i) for i, m in enumerate("abc")])
        wrong = forged(book, "clinics", tmp_path / "forged.db", change)
    with Book.open(wrong) as book:
        export_book(book, "clinics", tmp_path / "forged.jsonl")
    assert not verify(wrong).ok
    with Book.create(tmp_path / "copy.db") as copy, pytest.raises(BookError):
        import_book(copy, tmp_path / "forged.jsonl")


def test_no_book_is_charged_by_a_rule_of_simulations(path):
    with Book.open(path) as book, pytest.raises(ValueError, match="simulations only"):
        book.create_federation("clinics", Terms(Price.constant(1.0), rule="smoothed-norm"))
