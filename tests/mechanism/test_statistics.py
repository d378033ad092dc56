"""The statistics of a round: what is known, distances from a Gram matrix, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from verax.mechanism import Statistics
from verax.mechanism.statistics import checked, distances_to_mean

NAMES = ("norms", "gram", "distances", "misreport")


@pytest.mark.parametrize("name", NAMES)
def test_a_statistic_is_known_if_it_was_recorded(name):
    found = Statistics(**{name: np.zeros(3)})
    expected = {"gram", "distances"} if name == "gram" else {name}
    assert {each for each in NAMES if found.has(each)} == expected
    assert not any(Statistics().has(each) for each in NAMES)


def test_a_gram_matrix_holds_the_norms():
    messages = np.random.default_rng(0).standard_normal((4, 5, 3))
    found = Statistics.of_gram(messages @ np.swapaxes(messages, -1, -2))
    assert_allclose(found.norms, np.sum(messages**2, axis=-1))
    assert found.has("norms")
    assert found.has("distances")
    assert not found.has("misreport")
    for shape in ((3,), (2, 3)):
        with pytest.raises(ValueError, match=r"a Gram matrix is square, got shape \("):
            Statistics.of_gram(np.ones(shape))


@given(
    seed=st.integers(0, 2**32),
    clients=st.integers(1, 12),
    rounds=st.integers(1, 3),
    exponent=st.integers(-70, 70),
)
def test_distances_equal_those_computed_from_the_messages(seed, clients, rounds, exponent):
    rng = np.random.default_rng(seed)
    messages = rng.standard_normal((rounds, clients, 4)) * 10.0**exponent
    present = rng.random((rounds, clients)) < 0.7
    gram = messages @ np.swapaxes(messages, -1, -2)
    found = distances_to_mean(gram, present)
    for t in range(rounds):
        if not present[t].any():
            assert_array_equal(found[t], 0.0)
            continue
        here = messages[t, present[t]]
        direct = np.sum((here - here.mean(axis=0)) ** 2, axis=1)
        size = np.max(np.sum(here**2, axis=1))
        assert_allclose(found[t, present[t]], direct, rtol=1e-9, atol=1e-12 * size)
        assert_array_equal(found[t, ~present[t]], 0.0)


def test_equal_messages_have_no_negative_distance():
    message = np.random.default_rng(1).standard_normal(7)
    gram = np.full((5, 5), message @ message)
    assert np.all(distances_to_mean(gram, np.ones(5, dtype=np.bool_)) >= 0)


def test_recorded_distances_are_used_without_a_gram_matrix():
    found, present = checked(Statistics(distances=[1.0, 4.0]), "distances", "a rule", None)
    assert_array_equal(found.distances, [1.0, 4.0])
    assert_array_equal(present, [True, True])


def test_entries_of_absent_clients_are_zero_whatever_they_hold():
    present = np.array([True, False, True])
    found, mask = checked(Statistics([1.0, np.nan, 2.0]), "norms", "a rule", present)
    assert_array_equal(found.norms, [1.0, 0.0, 2.0])
    assert_array_equal(mask, present)
    gram = np.array([[1.0, np.inf, 0.5], [np.nan, -3.0, 7.0], [0.5, 1.0, 2.0]])
    found, _ = checked(Statistics(gram=gram), "gram", "a rule", present)
    assert_array_equal(found.gram, [[1.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.5, 0.0, 2.0]])


@pytest.mark.parametrize(
    ("statistics", "reads", "message"),
    [
        (Statistics([1.0]), "gram", "a rule reads gram, which were not recorded; known: norms"),
        (Statistics([1.0]), "misreport", "reads misreport, which were not recorded"),
        (Statistics(3.0), "norms", r"a rule needs \(…, N\) norms with N ≥ 1, got shape \(\)"),
        (Statistics([]), "norms", r"N ≥ 1, got shape \(0,\)"),
        (Statistics([1.0, -2.0]), "norms", "norms of client 1 is -2, must be ≥ 0"),
        (Statistics(misreport=[np.nan]), "misreport", "misreport of client 0 is nan"),
        (Statistics(gram=np.ones((2, 3))), "gram", r"square with N ≥ 1, got shape \(2, 3\)"),
        (Statistics(gram=np.ones((0, 0))), "gram", "square with N ≥ 1"),
        (Statistics(gram=[[1.0, 0.5], [0.0, 1.0]]), "distances", "must be symmetric"),
        (Statistics(gram=[[1.0, 0.0], [0.0, -1.0]]), "gram", "squared norm of client 1 is -1"),
    ],
)
def test_what_cannot_be_priced_is_refused(statistics, reads, message):
    with pytest.raises(ValueError, match=message):
        checked(statistics, reads, "a rule", None)


def test_masks_of_another_type_or_shape_are_refused():
    with pytest.raises(ValueError, match="mask of booleans, not int64"):
        checked(Statistics([1.0, 2.0]), "norms", "a rule", np.array([1, 0]))
    with pytest.raises(ValueError, match=r"present \(3,\) does not fit statistics \(2,\)"):
        checked(Statistics([1.0, 2.0]), "norms", "a rule", np.ones(3, dtype=np.bool_))
