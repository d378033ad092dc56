"""The book on both databases: what is posted, what is refused, what is read back."""

import pytest
from books import norms

from verax.ledger import Book, BookError, Report, Transfer
from verax.mechanism import FailurePolicy, Price, Statistics, Terms, Weights, charge
from verax.verifier import verify


@pytest.fixture
def book(url, terms):
    with Book.create(url) as opened:
        opened.create_federation("clinics", terms)
        yield opened
        assert verify(url, federation="clinics").ok


def test_a_round_is_charged_by_the_terms(book):
    receipt = book.post("clinics", "first", 1, norms(4, 1, 1))
    assert receipt.posted
    assert receipt.amounts == {"a": 150, "b": -75, "c": -75}
    assert receipt.payments == {"a": 1.5, "b": -0.75, "c": -0.75}
    assert book.balances("clinics") == receipt.amounts
    book.post("clinics", "second", 1, norms(1, 1, 3))
    assert book.balances("clinics") == {"a": 100, "b": -125, "c": 25}
    assert [(run, t) for run, t, _, _ in book.rounds("clinics")] == [("first", 1), ("second", 1)]
    assert book.last_round("clinics", "first") == 1
    assert book.last_round("clinics", "third") is None


def test_posting_twice_is_posting_once(book):
    first = book.post("clinics", "first", 1, norms(4, 1, 1))
    again = book.post("clinics", "first", 1, norms(4, 1, 1)[::-1])
    assert not again.posted
    assert (again.hash, again.amounts, again.payments) == (
        first.hash,
        first.amounts,
        first.payments,
    )
    assert book.head("clinics") == (first.sequence, first.hash)


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        (norms(4, 1, 2), "statistic of 'c' is 1.0 in the book, 2.0 now"),
        (norms(4, 1), "'c' is missing now"),
        (norms(4, 1, 1, 1), "'d' is new"),
        (
            [*norms(4, 1), Report("c", "missing")],
            "status of 'c' is 'ok' in the book, 'missing' now",
        ),
        ([*norms(4, 1), Report("c", statistic=1.0, reason="x")], "reason of 'c' is '' in the book"),
    ],
)
def test_the_same_round_with_other_content_is_refused(book, reports, words):
    book.post("clinics", "first", 1, norms(4, 1, 1))
    head = book.head("clinics")
    with pytest.raises(BookError, match=words):
        book.post("clinics", "first", 1, reports)
    assert book.head("clinics") == head


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ([Report("a", statistic=float("nan"))], "must be a finite number"),
        ([Report("a", statistic=-1.0)], "must be a finite number"),
        ([Report("a")], "statistic of 'a' is None"),
        ([Report("a", "late", 1.0)], "status of 'a' is 'late'"),
        ([*norms(1, 2), Report("a", statistic=1.0)], "reports twice"),
        ([Report("a", statistic=1.0, weight=-1.0)], "weight"),
        ([Report("a", statistic=1.0, weight=7.0)], "mean 7"),
        ([Report("a", "missing", weight=2.0)], "has no weight and no statistic"),
        ([Report("a", "missing", 3.0)], "has no weight and no statistic"),
        ([Report("", statistic=1.0)], "member is ''"),
        ([Report("escrow", statistic=1.0)], "escrow"),
        (norms(1e30, 1), "63 bits"),
        (norms(1.7e308, 1), "63 bits"),
    ],
)
def test_what_cannot_be_charged_changes_nothing(book, reports, words):
    book.post("clinics", "first", 1, norms(4, 1))
    head = book.head("clinics")
    with pytest.raises(ValueError, match=words):
        book.post("clinics", "first", 2, reports)
    assert book.head("clinics") == head
    assert book.post("clinics", "first", 2, norms(1, 2)).posted


@pytest.mark.parametrize("round_", [0, -1, 1.5, True, 2**63])
def test_rounds_are_whole_numbers_from_one(book, round_):
    with pytest.raises(BookError, match=r"whole number in 1 … 9223372036854775807"):
        book.post("clinics", "first", round_, norms(1, 2))


def test_lonely_and_empty_rounds_cost_nothing(book):
    assert book.post("clinics", "first", 1, []).amounts == {}
    assert book.post("clinics", "first", 2, norms(3)).amounts == {"a": 0}
    assert book.post("clinics", "first", 3, [Report("b", "missing")]).amounts == {"b": 0}


def test_entries_of_rounds_of_any_size(url, terms):
    with Book.open(url) as book:
        book.create_federation("crowd", terms)
        names = [f"m{i:03d}" for i in range(300)]
        for t, size in enumerate((2, 3, 7, 127, 128, 129, 255, 257, 300), 1):
            # whoever is excused has an amount of zero, and no entry
            reports = norms(*range(1, size + 1), names=names)
            book.post("crowd", "r", t, [*reports, Report("absent", "missing")])
    assert verify(url).ok


def test_creating_a_federation_again(book, terms):
    assert not book.create_federation("clinics", terms).posted
    with pytest.raises(BookError, match="other terms"):
        book.create_federation("clinics", Terms(Price.constant(1.0), currency="EUR", scale=2))
    book.create_federation("banks", terms)
    assert book.federations() == ["banks", "clinics"]
    with pytest.raises(BookError, match="not in the book"):
        book.balances("schools")


def test_joining_and_leaving(book):
    assert book.join("clinics", "key-1", "North", from_round=3).posted
    assert not book.join("clinics", "key-1", "North", from_round=3).posted
    with pytest.raises(BookError, match="not a member in round 2"):
        book.post("clinics", "first", 2, [Report("key-1", statistic=1.0)])
    book.post("clinics", "first", 3, [Report("North", statistic=1.0), *norms(3)])
    assert book.balances("clinics") == {"key-1": -100, "a": 100}
    book.leave("clinics", "North", from_round=5, run="first")
    book.post("clinics", "first", 4, [Report("key-1", statistic=1.0), *norms(1)])
    for run, t in (("first", 5), ("second", 1)):
        with pytest.raises(BookError, match="not a member"):
            book.post("clinics", run, t, [Report("key-1", statistic=1.0)])
    book.join("clinics", "key-1", "North again")
    book.post("clinics", "first", 5, [Report("key-1", statistic=1.0)])
    assert [(m.member, m.label) for m in book.members("clinics")] == [
        ("key-1", "North again"),
        ("a", "a"),
    ]


def test_who_joined_by_reporting_late_takes_part_in_the_next_run_from_its_start(book):
    book.post("clinics", "first", 9, norms(1, 2))
    with pytest.raises(BookError, match="joined from round 9"):
        book.post("clinics", "first", 8, norms(1))
    assert book.post("clinics", "second", 1, norms(1, 2)).posted


def test_terms_change_from_a_round_on(book, terms):
    dearer = Terms(Price.constant(1.0), currency="EUR", scale=2)
    book.post("clinics", "first", 1, norms(4, 1))
    assert book.change_terms("clinics", dearer, from_round=3).posted
    assert not book.change_terms("clinics", dearer, from_round=3).posted
    assert book.terms("clinics", 2) == terms
    assert book.terms("clinics", 3) == book.terms("clinics") == dearer
    assert book.post("clinics", "first", 2, norms(4, 1)).amounts["a"] == 150
    assert book.post("clinics", "first", 3, norms(4, 1)).amounts["a"] == 300
    # what was posted before stays as it was, also when it comes again
    assert not book.post("clinics", "first", 1, norms(4, 1)).posted
    with pytest.raises(BookError, match="currency and scale"):
        book.change_terms("clinics", Terms(Price.constant(1.0), scale=3), from_round=4)


def test_own_prices_follow_the_order_of_the_terms_not_of_the_book(book):
    own = Terms(
        Price(((1.0, 2.0, 4.0),)),
        members=("z", "North", "x"),
        allowances=((0.5, -0.25, -0.25),),
        policy=FailurePolicy(missing="flat-fee", fee=3.0),
        currency="EUR",
        scale=2,
    )
    book.create_federation("closed", own)
    for member, label in (("x", ""), ("key", "North"), ("z", "")):
        book.join("closed", member, label)
    reports = [Report("x", statistic=5.0), Report("z", statistic=7.0)]
    receipt = book.post("closed", "first", 1, reports)
    right = charge(own, 1, Statistics([7.0, 0.0, 5.0]), ["ok", "missing", "ok"]).amounts
    assert receipt.payments == pytest.approx(dict(zip(["z", "key", "x"], right, strict=True)))
    assert receipt.amounts["key"] == 300
    assert sum(receipt.amounts.values()) == 0
    assert not book.post("closed", "first", 1, reports[::-1]).posted
    with pytest.raises(BookError, match="not among the members"):
        book.join("closed", "y")
    with pytest.raises(BookError, match="has not joined"):
        book.post("closed", "first", 2, [Report("y", statistic=1.0)])
    book.leave("closed", "x", from_round=2)
    with pytest.raises(BookError, match="is not a member in round 2"):
        book.post("closed", "first", 2, [])


@pytest.mark.parametrize("rule", ["squared-distance", "groves-ledyard"])
def test_gram_rules_follow_the_reports_into_the_order_of_the_book(book, rule):
    terms = Terms(Price.constant(0.1), rule=rule, currency="EUR", scale=4)
    book.create_federation("gram", terms)
    for member in "dcba":
        book.join("gram", member)
    vectors = {"a": (1, 0, 2), "b": (0, 3, 1), "c": (2, 2, 2), "d": (5, 1, 0)}
    gram = [
        [float(sum(x * y for x, y in zip(vectors[i], vectors[j], strict=True))) for j in "abd"]
        for i in "abd"
    ]
    reports = [Report("a"), Report("c", "missing"), Report("b"), Report("d")]
    receipt = book.post("gram", "first", 1, reports, gram=gram)
    right = charge(terms, 1, Statistics.of_gram(gram), ["ok"] * 3).amounts
    assert [receipt.payments[m] for m in "abd"] == pytest.approx(right)
    assert receipt.amounts["c"] == 0
    assert not book.post("gram", "first", 1, reports, gram=gram).posted
    gram[0][1] = gram[1][0] = 0.5
    with pytest.raises(BookError, match="Gram matrix differs"):
        book.post("gram", "first", 1, reports, gram=gram)
    with pytest.raises(BookError, match="needs the Gram matrix"):
        book.post("gram", "first", 2, reports)
    with pytest.raises(BookError, match=r"must be \(3, 3\)"):
        book.post("gram", "first", 2, reports, gram=[[1.0]])
    with pytest.raises(BookError, match="reads no Gram"):
        book.post("clinics", "first", 1, norms(1), gram=[[1.0]])


def test_weights_are_those_of_the_terms(book):
    equal = Terms(Price.constant(1.0), weights=Weights("equal"))
    fixed = Terms(
        Price.constant(1.0), members=("a", "b", "c"), weights=Weights("fixed", (1.0, 3.0, 9.0))
    )
    book.create_federation("equal", equal)
    book.create_federation("fixed", fixed)
    for member in "abc":
        book.join("fixed", member)
    with pytest.raises(BookError, match=r"weight of 'b' is 2, must be 1"):
        book.post("equal", "r", 1, [*norms(1), Report("b", statistic=1.0, weight=2.0)])
    with pytest.raises(BookError, match=r"weight of 'a' is 1, must be 0.5"):
        book.post("fixed", "r", 1, norms(1, 1))
    good = [Report("a", statistic=1.0, weight=0.5), Report("b", statistic=2.0, weight=1.5)]
    assert book.post("fixed", "r", 1, good).posted
    reported = [Report("a", statistic=1.0, weight=0.25), Report("b", statistic=2.0, weight=1.75)]
    assert book.post("clinics", "r", 1, reported).posted


def test_deposits_limits_and_corrections(book):
    book.post("clinics", "first", 1, norms(4, 1, 1))
    book.set_limit("clinics", 100)
    assert [(o.member, o.balance, o.limit) for o in book.over_limit("clinics")] == [("a", 150, 100)]
    book.set_limit("clinics", 200, "a")
    assert book.over_limit("clinics") == []
    book.set_limit("clinics", 10, "a")
    book.deposit("clinics", "a", 145, "cash", reference="d")
    assert book.balances("clinics") == {"escrow": 145, "a": 5, "b": -75, "c": -75}
    assert book.over_limit("clinics") == []
    book.correct("clinics", {"a": 10, "b": -10}, "late", corrects=2, reference="c")
    assert [o.balance for o in book.over_limit("clinics")] == [15]
    for amounts, words in (({"a": 1}, "sum to zero"), ({"a": 2**63, "b": -(2**63)}, "outside")):
        with pytest.raises(ValueError, match=words):
            book.correct("clinics", amounts, "why", reference="c2")
    with pytest.raises(BookError, match="reason"):
        book.correct("clinics", {"a": 1, "b": -1}, " ", reference="c2")
    with pytest.raises(BookError, match="record 99"):
        book.correct("clinics", {"a": 1, "b": -1}, "why", corrects=99, reference="c2")
    with pytest.raises(BookError, match="not a member"):
        book.deposit("clinics", "nobody", 1, reference="d2")
    with pytest.raises(BookError, match="not zero"):
        book.deposit("clinics", "a", 0, reference="d2")
    with pytest.raises(BookError, match="amounts holds a number outside"):
        book.deposit("clinics", "a", 2**63, reference="d2")
    with pytest.raises(BookError, match="field limit is -1, must be a whole number in 0 …"):
        book.set_limit("clinics", -1)


def test_settling_needs_the_book_as_it_was(book):
    book.post("clinics", "first", 1, norms(4, 1))
    sequence, _, _ = book.snapshot("clinics")
    book.post("clinics", "first", 2, norms(4, 1))
    transfer = [Transfer("a", "b", 150)]
    with pytest.raises(BookError, match="book grew"):
        book.settle("clinics", transfer, sequence=sequence, reference="s")
    book.settle("clinics", transfer, sequence=book.snapshot("clinics")[0], reference="s")
    assert book.balances("clinics") == {"a": 150, "b": -150}
    with pytest.raises(BookError, match="transfers holds a number outside 0"):
        book.settle(
            "clinics", [Transfer("a", "b", -1)], sequence=book.head("clinics")[0], reference="s2"
        )


def test_balances_beyond_63_bits_are_still_exact(book):
    most = 2**63 - 1
    book.join("clinics", "a")
    book.join("clinics", "b")
    for k in range(3):
        book.correct("clinics", {"a": most, "b": -most}, "much", reference=f"c{k}")
    assert book.balances("clinics")["a"] == 3 * most


def test_two_books_see_each_other(url, terms):
    with Book.create(url) as one, Book.open(url) as two:
        one.create_federation("clinics", terms)
        one.post("clinics", "first", 1, norms(4, 1))
        two.join("clinics", "c")
        one.join("clinics", "d")
        assert not two.post("clinics", "first", 1, norms(4, 1)).posted
        two.change_terms(
            "clinics", Terms(Price.constant(1.0), currency="EUR", scale=2), from_round=2
        )
        assert one.post("clinics", "first", 2, norms(4, 1)).amounts["a"] == 300
        assert [m.member for m in two.members("clinics")] == ["a", "b", "c", "d"]
    assert verify(url).ok


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (
            Terms(Price.constant(1e300)),
            r"price is 1e\+300, must be at most 9\.22337e\+12 ",
        ),
        (
            Terms(Price.constant(10.0), scale=18),
            r"10, must be at most 9\.22337 at scale 18",
        ),
        (Terms(Price.discounted(1e13, 0.1, 5)), "price is 1e\\+13"),
        (
            Terms(Price.constant(1.0), policy=FailurePolicy("flat-fee", fee=1e20)),
            r"policy\.fee is 1e\+20",
        ),
        (
            Terms(Price.constant(1.0), members=("a", "b"), allowances=((1e20, -1e20),)),
            r"allowance is 1e\+20",
        ),
        (Terms(Price.constant(1.0, rounds=2**63)), r"price\.rounds is 9223372036854775808"),
    ],
)
def test_terms_that_no_book_can_hold_are_refused_at_once(path, terms, words):
    with Book.open(path) as book:
        with pytest.raises(BookError, match=words):
            book.create_federation("clinics", terms)
        assert book.federations() == []
        first = Terms(Price.constant(1.0), scale=terms.scale)
        book.create_federation("clinics", first)
        with pytest.raises(BookError, match=words):
            book.change_terms("clinics", terms, from_round=2)


def test_the_largest_price_of_a_book_can_be_charged(path):
    with Book.open(path) as book:
        book.create_federation("clinics", Terms(Price.constant(9.2e18), scale=0))
        assert book.post("clinics", "r", 1, norms(1, 0)).amounts["a"] == 9200000000000000000


def test_terms_are_fixed_when_a_round_is_opened(book):
    dearer = Terms(Price.constant(1.0), currency="EUR", scale=2)
    book.post("clinics", "first", 1, norms(4, 1))
    assert book.open_round("clinics", "first", 2).posted
    assert not book.open_round("clinics", "first", 2).posted
    book.change_terms("clinics", dearer, from_round=2)
    assert book.terms("clinics", 2) == dearer
    assert book.terms("clinics", 2, "first") != dearer
    assert book.post("clinics", "first", 2, norms(4, 1)).amounts["a"] == 150
    assert book.post("clinics", "first", 3, norms(4, 1)).amounts["a"] == 300
    assert not book.open_round("clinics", "first", 3).posted
    found = verify(book_source(book))
    assert found.ok
    assert [each.sequence for each in found.decisions if each.kind == "terms"] == [6]


def book_source(book):
    url = book.engine.url
    if url.get_backend_name() != "sqlite":
        return url.render_as_string(hide_password=False)
    with book.engine.connect() as connection:
        return connection.exec_driver_sql("PRAGMA database_list").fetchone()[2]


def test_a_price_that_may_have_been_chosen_late_is_listed(book):
    dearer = Terms(Price.constant(1.0), currency="EUR", scale=2)
    book.post("clinics", "first", 1, norms(4, 1))
    book.change_terms("clinics", dearer, from_round=2)
    book.post("clinics", "first", 2, norms(4, 1))
    words = [each.message for each in verify(book_source(book)).decisions if each.kind == "terms"]
    assert "nothing shows that the norms of round 2 of run 'first' were unknown" in words[-1]


def test_a_reference_is_booked_once(book):
    book.post("clinics", "first", 1, norms(4, 1))
    first = book.correct("clinics", {"a": 1, "b": -1}, "why", reference="r")
    again = book.correct("clinics", {"b": -1, "a": 1}, "why", reference="r")
    assert (first.posted, again.posted, again.sequence) == (True, False, first.sequence)
    with pytest.raises(BookError, match="other content, as record"):
        book.correct("clinics", {"a": 2, "b": -2}, "why", reference="r")
    with pytest.raises(BookError, match="other content"):
        book.deposit("clinics", "a", 1, reference="r")
    sequence = book.head("clinics")[0]
    paid = [Transfer("a", "b", 5)]
    assert book.settle("clinics", paid, sequence=sequence, reference="s").posted
    assert not book.settle("clinics", paid, sequence=sequence, reference="s").posted
