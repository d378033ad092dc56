"""Commitments: one root for the same samples however they are held, another for any change."""

import hashlib
import json
import sys

import numpy as np
import pytest

from tests.apps.conftest import CLINICS
from verax.apps.app import load_app
from verax.spot.commitment import commit, commit_app, commit_data, encode
from verax.spot.recompute import UnrepeatableError

X, Y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 1, 0])


def test_the_root_is_that_of_rfc_6962():
    """Three samples by hand: H(1 ‖ H(1 ‖ a ‖ b) ‖ c)."""

    def sha(data):
        return hashlib.sha256(data).digest()

    a, b, c = (sha(b"\x00" + b"s" + (1).to_bytes(8, "big") + text) for text in (b"a", b"b", b"c"))
    assert commit_data(["a", "b", "c"]) == sha(b"\x01" + sha(b"\x01" + a + b) + c).hex()


def test_arrays_files_and_datasets_of_the_same_samples_have_one_root(tmp_path):
    torch = pytest.importorskip("torch")
    np.savez(tmp_path / "data.npz", a=X, b=Y)
    dataset = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    roots = {commit_data((X, Y)), commit_data(tmp_path / "data.npz"), commit_data(dataset)}
    assert len(roots) == 1
    np.save(tmp_path / "x.npy", X)
    assert commit_data(tmp_path / "x.npy") == commit_data(X)
    rows = [{"x": x, "label": int(y)} for x, y in zip(X, Y, strict=True)]  # as Hugging Face's
    assert commit_data(rows) == commit_data([dict(reversed(row.items())) for row in rows])


def test_lines_of_a_file_and_files_of_a_folder_are_samples(tmp_path):
    (tmp_path / "one.csv").write_text("1,2\n3,4\n")
    assert commit_data(tmp_path / "one.csv") == commit_data([b"1,2\n", b"3,4\n"])
    assert commit_data(tmp_path) == commit_data([("one.csv", b"1,2\n3,4\n")])


def test_every_change_of_the_samples_changes_the_root():
    changed = X.copy()
    changed[2, 1] += 1e-9
    flipped = 1 - Y
    different = [
        (X, Y),
        (changed, Y),
        (X, flipped),
        (X[::-1], Y[::-1]),
        (X[:3], Y[:3]),
        (np.vstack([X, X[:1]]), np.append(Y, Y[0])),
        (X.astype(np.float32), Y),
        X,
    ]
    assert len({commit_data(each) for each in different}) == len(different)


def test_parts_of_a_sample_cannot_be_moved_into_each_other():
    pairs = [
        ("a", "bc"),
        ("ab", "c"),
        ["a", ("bc",)],
        "abc",
        b"abc",
        {"a": "bc"},
        ("a", "bc", None),
    ]
    # A list and a tuple hold the same; everything else is different.
    assert len({encode(each) for each in pairs}) == len(pairs)
    assert encode(["a"]) == encode(("a",))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "no samples"),
        ((X, Y[:2]), r"\[2, 4\] samples, must have one length"),
        (3, "must be a path"),
        ([object()], "a sample holds object"),
    ],
)
def test_what_cannot_be_committed_to_is_refused(samples, message):
    with pytest.raises(ValueError, match=message):
        commit_data(samples)


def test_the_app_is_committed_to_with_its_configuration(clinics):
    faster = load_app(CLINICS, "lr=0.25")
    assert commit_app(clinics) == commit_app(load_app(CLINICS))
    assert commit_app(faster) != commit_app(clinics)
    assert json.dumps(faster.run_config) != json.dumps(clinics.run_config)


def test_samples_that_are_others_each_time_they_are_read_cannot_be_committed_to(
    clinics, monkeypatch
):
    """Random augmentation: an honest member would be charged for a mismatch later."""
    node = {"partition-id": 0, "num-partitions": 3}
    source = "clinics.client_app:samples"
    assert commit(clinics, source, node) == commit(clinics, source, node)
    module = sys.modules["clinics.client_app"]
    own = np.random.default_rng(5)
    for noise in (np.random.standard_normal, own.standard_normal):
        monkeypatch.setattr(module, "samples", lambda _, noise=noise: X + noise(X.shape))
        with pytest.raises(UnrepeatableError, match="others each time they are read"):
            commit(clinics, source, node)
