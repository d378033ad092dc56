"""Arrays of strangers: whatever their bytes are, a reply with them is decoded or rejected."""

import warnings

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from tests.mutation import mutated
from verax.flower.decoding import decode
from verax.flower.replies import SentModel, check_reply
from verax.mechanism import Arrays

from .grid import LocalGrid, nodes
from .hostile import MALFORMED, PIECES, array_of, good_bytes

GOOD = [
    good_bytes(np.arange(37, dtype=np.float32)),
    good_bytes(np.asfortranarray(np.arange(12.0).reshape(3, 4))),
    good_bytes(np.array(5, dtype=np.int64)),
    good_bytes(np.array([True, False])),
    good_bytes(np.zeros((2, 0, 3), dtype=">i2")),
]


def decoded_or_refused(array):
    """The array, or None if it is refused; any other error fails the test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return decode(array)
    except ValueError:
        return None


@given(
    numpy_strategies.arrays(
        st.one_of(
            numpy_strategies.floating_dtypes(),
            numpy_strategies.integer_dtypes(),
            numpy_strategies.boolean_dtypes(),
        ),
        numpy_strategies.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
    ),
    st.booleans(),
)
def test_what_numpy_writes_is_read_bit_for_bit(array, fortran):
    array = np.asfortranarray(array) if fortran else array
    found = decode(Array(array))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


def test_versions_2_and_3_of_the_format_are_read():
    import io

    for version in ((2, 0), (3, 0)):
        file = io.BytesIO()
        np.lib.format.write_array(file, np.arange(3.0), version=version)
        assert decode(array_of(file.getvalue())).tolist() == [0.0, 1.0, 2.0]


@given(st.binary(max_size=300))
@example(b"\x93NUMPY\x01\x00")
def test_any_bytes_are_refused_or_read(data):
    decoded_or_refused(array_of(data))


@given(st.text(max_size=200), st.binary(max_size=40), st.sampled_from([1, 2, 3]))
def test_any_header_is_refused_or_read(text, body, version):
    from .hostile import npy

    decoded_or_refused(array_of(npy(text.encode("utf-8").decode("latin-1"), body, version)))


def fuzz(count, seed):
    rng = np.random.default_rng(seed)
    read = 0
    for k in range(count):
        read += decoded_or_refused(array_of(mutated(GOOD[k % len(GOOD)], rng, PIECES))) is not None
    return read


def test_ten_thousand_mutated_arrays_are_refused_or_read():
    assert 0 < fuzz(10_000, seed=1) < 10_000


@pytest.mark.slow
def test_half_a_million_mutated_arrays_are_refused_or_read():
    assert 0 < fuzz(500_000, seed=2) < 500_000


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_arrays_are_refused(name):
    with pytest.raises(ValueError, match=r"\w"):
        decode(array_of(MALFORMED[name]))


VALUES = st.one_of(
    st.integers(),
    st.floats(),
    st.lists(st.floats(), max_size=3),
    st.lists(st.integers(), max_size=3),
)


@given(
    st.dictionaries(st.text(max_size=5), st.sampled_from([*GOOD, *MALFORMED.values()]), max_size=3),
    st.dictionaries(st.one_of(st.just("num-examples"), st.text(max_size=5)), VALUES, max_size=4),
    st.sampled_from(["arrays", "other", ""]),
    st.sampled_from(["float32", "float64", "int64", "\x1b[31m"]),
    st.sampled_from([(37,), (), (-1,), (10**30,)]),
    st.booleans(),
)
def test_any_reply_is_accepted_or_rejected(arrays, metrics, name, dtype, shape, has_metrics):
    """`check_reply` never raises, and its reasons can be shown in a terminal."""
    LocalGrid(nodes(1), None)
    sent = SentModel.of("arrays", ArrayRecord({"a": Array(np.zeros(37, np.float32))}), Arrays())
    content = RecordDict(
        {name: ArrayRecord({k: array_of(v, dtype, shape) for k, v in arrays.items()})}
    )
    if has_metrics:
        content["metrics"] = MetricRecord(metrics)
    request = Message(RecordDict(), dst_node_id=11, message_type="train")
    request.metadata.__dict__["_message_id"] = "1"
    checked = check_reply(Message(content, reply_to=request), sent, "num-examples")
    assert checked.status in ("ok", "rejected")
    assert checked.reason.isprintable()
    assert len(checked.reason) <= 300
