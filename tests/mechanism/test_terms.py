"""Terms: the TOML form round-trips, and every wrong field is named."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from verax.mechanism import BUILT_IN, Arrays, Audited, Blocks, FailurePolicy, Price, Terms, Weights

amount = st.floats(0, 1e6)
AUDITED = Audited(
    "model difference",
    "Flower app hospitals, FedAvg",
    "as the app does it",
    20,
    "equal",
    3,
    (1, 11, 20),
    (0.5, 0.25, 0.0),
    (2.0, 1e-7 + 1, 0.125),
    "hospitals",
    "0123456789abcdef" * 4,
    "verax 0.2.0, flwr 1.41.0, numpy 2.4.6",
)
names = st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=5, unique=True)


@st.composite
def terms(draw):
    members = tuple(draw(names))
    n = len(members)
    starts = tuple(sorted(draw(st.sets(st.integers(2, 90), max_size=4)) | {1}))
    width = draw(st.sampled_from([1, n]))
    row = st.tuples(*[amount] * width)
    kappa = draw(st.none() | st.floats(-10, 10))
    allowance = () if kappa is None else ((kappa, -kappa, *[0.0] * (n - 2)),)
    return Terms(
        price=Price(tuple(draw(row) for _ in starts), starts, draw(st.floats(0, 0.5)), rounds=100),
        rule=draw(st.sampled_from([*(rule.name for rule in BUILT_IN), "my_rules:Root"])),
        members=members,
        allowances=allowance,
        weights=draw(st.sampled_from([Weights(), Weights("equal"), Weights("fixed", (2.0,) * n)])),
        policy=draw(
            st.sampled_from(
                [FailurePolicy(), FailurePolicy("flat-fee", "excuse", "largest", 2.5, "stop")]
            )
        ),
        currency=draw(st.sampled_from(["EUR", "credits", "¥ “quoted” #"])),
        scale=draw(st.integers(0, 18)),
        arrays=draw(st.sampled_from([Arrays(), Arrays(()), Arrays(("bn?.*", "mask"))])),
        audited=draw(st.sampled_from([None, AUDITED])),
    )


@given(terms())
def test_toml_round_trip(value):
    assert Terms.from_toml(value.to_toml("proposed by an audit\n\nwith = signs")) == value


def test_price_forms():
    assert_allclose(Price.constant(0.5).at(10**6), [0.5])
    assert_allclose(Price.constant((1.0, 2.0)).at(1), [1, 2])
    discounted = Price.discounted(8.0, 0.5, 4)
    assert_allclose([discounted.at(t)[0] for t in (1, 2, 3, 4)], [1, 2, 4, 8])
    assert_allclose(discounted.per_round(), [[1], [2], [4], [8]])
    assert_allclose(Price(((8.0, 4.0),), discount=0.5, rounds=2).per_round(), [[4, 2], [8, 4]])
    assert_allclose(Price.constant(0.5, rounds=3).per_round(), [[0.5]] * 3)
    assert_allclose(Price.constant(0.5).times(3.0).at(1), [1.5])
    profile = Price.profile(Blocks((1, 4, 5), 5), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert_allclose([profile.at(t) for t in (1, 3, 4, 5)], [[1, 2], [1, 2], [3, 4], [5, 6]])
    assert_allclose(profile.per_round(), [[1, 2], [1, 2], [1, 2], [3, 4], [5, 6]])
    with pytest.raises(ValueError, match="round 6 is outside the terms' rounds 1 … 5"):
        profile.at(6)
    with pytest.raises(ValueError, match="round 0 is outside"):
        Price.constant(1.0).at(0)


def test_allowances_per_block():
    value = Terms(
        Price(((1.0,), (2.0,)), (1, 3), rounds=4),
        members=("a", "b"),
        allowances=((1.0, -1.0), (5.0, -5.0)),
    )
    assert_allclose([value.allowances_at(t) for t in (2, 3)], [[1, -1], [5, -5]])
    assert Terms(Price.constant(1.0)).allowances_at(1) is None


GOOD = 'rule = "squared-norm"\nmembers = ["a", "b"]\n[price]\nvalues = [[1.0, 2.0]]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "price is missing"),
        ("price = 3", "price must be a table"),
        ("[price]", "price.values is missing"),
        ("[price]\nvalues = -1", "price.values holds -1, must be a finite number ≥ 0"),
        ("[price]\nvalues = nan", "price.values holds nan"),
        ('[price]\nvalues = "1"', "price.values must be a list of numbers"),
        ("[price]\nvalues = true", "price.values must be a list of numbers"),
        ("[price]\nvalues = []", "has 0 rows for 1 block"),
        ("[price]\nvalues = [1, 2]", "has 2 rows for 1 block"),
        ("[price]\nvalues = [[1, 2]]", "2 numbers for 0 members; list `members`"),
        ("[price]\nvalues = [1, 2]\nstarts = [1, 5]", "price.rounds is missing"),
        ("[price]\nvalues = [1, 2]\nstarts = [2, 5]\nrounds = 9", "start at round 1"),
        ("[price]\nvalues = [1, 2]\nstarts = [1, 1]\nrounds = 9", "must rise"),
        ("[price]\nvalues = [1, 2]\nstarts = [1, 10]\nrounds = 9", "after the last round"),
        ("[price]\nvalues = [1, [2, 3]]\nstarts = [1, 2]\nrounds = 9", "rows of the same length"),
        ("[price]\nvalues = 1\ndiscount = 1.0", r"price.discount is 1, must be in \[0, 1\)"),
        ("[price]\nvalues = 1\nrounds = 1.5", "price.rounds must be a whole number, is 1.5"),
        ("[price]\nvalues = 1\nvalue = 2", "unknown field price.value"),
        ("colour = 1\n[price]\nvalues = 1", "unknown field colour"),
        ("scale = 19\n[price]\nvalues = 1", "scale is 19, must be 0 … 18"),
        ('rule = "vcg"\n[price]\nvalues = 1', "rule is 'vcg', must be one of squared-norm"),
        ('currency = " "\n[price]\nvalues = 1', "currency is ' '"),
        ("worth = [1, 2]\n[price]\nvalues = 1", "worth has 2 numbers for 0 members"),
        ("worth = [0]\n[price]\nvalues = 1", r"worth is \[0.0\], must be finite numbers > 0"),
        ("worth = 5\n[price]\nvalues = 1", "worth must be a list of numbers, is 5"),
        ('members = ["a", "a"]\n[price]\nvalues = 1', "members must be different"),
        ("members = [1]\n[price]\nvalues = 1", "members must be a list of texts"),
        ('[price]\nvalues = 1\n[weights]\nkind = "vote"', "weights.kind is 'vote', must be one of"),
        ('[price]\nvalues = 1\n[weights]\nkind = "fixed"', "weights.values belong"),
        (GOOD + '[weights]\nkind = "fixed"\nvalues = [1, 0]', "weights.values holds 0"),
        (GOOD + '[weights]\nkind = "fixed"\nvalues = [1, 1, 1]', "3 numbers for 2 members"),
        ('[price]\nvalues = 1\n[policy]\nmissing = "flat-fee"', "policy.fee is missing"),
        ('[price]\nvalues = 1\n[policy]\nmissing = "jail"', "policy.missing is 'jail'"),
        ("[price]\nvalues = 1\n[policy]\nfee = -1", "policy.fee is -1"),
        (
            '[price]\nvalues = 1\n[policy]\noutside = "pray"',
            "policy.outside is 'pray'",
        ),
        ('[price]\nvalues = 1\n[arrays]\nuncharged = [""]', "arrays.uncharged holds an empty text"),
        ("[price]\nvalues = 1\n[audited]\nrounds = 3", "audited.message is missing"),
        ("allowances = [1, -1]\n" + GOOD, "allowances has 2 rows for 1 block"),
        ("allowances = [[1, 1]]\n" + GOOD, "must sum to zero"),
        ("allowances = [[1, -1, 0]]\n" + GOOD, "3 numbers for 2 members"),
        ("[price", "not TOML"),
    ],
)
def test_wrong_terms_are_refused_by_name(text, message):
    with pytest.raises(ValueError, match=message):
        Terms.from_toml(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"message": "model"}, "audited.message is 'model', must be one of gradient, model diff"),
        ({"weights": "vote"}, "audited.weights is 'vote', must be one of equal, reported, fixed"),
        ({"rounds": 0}, "audited.rounds is 0, must be ≥ 1"),
        ({"members": 1}, "audited.members is 1, must be ≥ 2"),
        ({"starts": (2, 11, 20)}, "audited.starts: the first block must start at round 1"),
        ({"starts": (1, 20, 11)}, "audited.starts: block starts must rise"),
        ({"starts": (1, 11, 21)}, "audited.starts: block start 21 is after the last round 20"),
        ({"lowest": (0.5,)}, "have 3, 1 and 3 numbers, must have one per block each"),
        ({"lowest": (3.0, 0.25, 0.0)}, "lowest holds 3 and audited.highest 2 for one block"),
        ({"lowest": (-1.0, 0.25, 0.0)}, "lowest holds -1"),
        ({"highest": (float("inf"), 2.0, 1.0)}, "audited.highest inf"),
        ({"highest": (float("nan"), 2.0, 1.0)}, "audited.highest nan"),
        ({"digest": "abc"}, "audited.digest is 'abc', must be 64 hexadecimal digits"),
    ],
)
def test_wrong_audits_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        replace(AUDITED, **change)


def test_the_band_is_that_of_the_rounds_block():
    assert AUDITED.band(1) == AUDITED.band(10) == (0.5, 2.0)
    assert AUDITED.band(11) == AUDITED.band(19) == (0.25, 1e-7 + 1)
    assert AUDITED.band(20) == AUDITED.band(99) == (0.0, 0.125)
    with pytest.raises(ValueError, match="round is 0, must be ≥ 1"):
        AUDITED.band(0)


def test_terms_are_uniform_if_no_number_differs_by_member():
    both, price = ("a", "b"), Price.constant(1.0)
    assert Terms(price, members=both, weights=Weights("fixed", (2.0, 2.0))).are_uniform
    assert Terms(Price.constant((1.0, 1.0)), members=both).are_uniform
    assert Terms(Price(((1.0,), (2.0,)), (1, 2), rounds=3)).are_uniform
    assert not Terms(Price.constant((1.0, 2.0)), members=both).are_uniform
    assert not Terms(price, members=both, weights=Weights("fixed", (2.0, 1.0))).are_uniform
    assert not Terms(price, members=both, allowances=((1.0, -1.0),)).are_uniform


def test_load_names_the_file(tmp_path):
    path = tmp_path / "terms.toml"
    path.write_text(Terms(Price.constant(1.0)).to_toml(), encoding="utf-8")
    assert Terms.load(path) == Terms(Price.constant(1.0))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"terms\.toml"):
        Terms.load(path)
    with pytest.raises(ValueError, match=r"absent\.toml.*No such file"):
        Terms.load(tmp_path / "absent.toml")
