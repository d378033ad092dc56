"""LEAF's files as they are, broken ones, large ones, and how users become clients."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.tasks import leaf_files
from verax.tasks.leaf import GROUPINGS, group_users, load_leaf
from verax.tasks.leaf.kinds import CHARACTERS


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def femnist(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "femnist"
    train = {f"f{k}": leaf_files.images(rng, 3 + k) for k in range(5)}
    first = {name: train[name] for name in ("f3", "f0")}
    second = {name: train[name] for name in ("f4", "f1", "f2")}
    leaf_files.write(folder, "train", first, "all_data_0")
    leaf_files.write(folder, "train", second, "all_data_1")
    test = {f"f{k}": leaf_files.images(rng, 2) for k in (4, 2, 0, 1, 3)}
    leaf_files.write(folder, "test", test)
    return folder, train, test


def test_every_pixel_label_and_user_arrives(femnist, cache):
    folder, train, test = femnist
    leaf = load_leaf(folder, cache=cache)
    assert leaf.users == ("f3", "f0", "f4", "f1", "f2")  # files by name, users as they stand
    for part, said in ((leaf.train, train), (leaf.test, test)):
        for place, user in enumerate(leaf.users):
            x, y = part.of(np.array([place]))
            np.testing.assert_array_equal(x.reshape(-1, 784) / 255, said[user][0])
            np.testing.assert_array_equal(y, said[user][1])
    assert leaf.skipped == {}


def test_the_cache_gives_the_same_and_reads_no_json(femnist, cache):
    folder, *_ = femnist
    read = []
    first = load_leaf(folder, cache=cache, progress=lambda done, total: read.append(done))
    assert sum(read) == sum(f.stat().st_size for f in folder.glob("*/*.json"))
    read.clear()
    second = load_leaf(folder, cache=cache, progress=lambda done, total: read.append(done))
    assert read == []
    assert (first.users, first.checksum) == (second.users, second.checksum)
    np.testing.assert_array_equal(first.train.samples, second.train.samples)
    np.testing.assert_array_equal(first.test.labels, second.test.labels)


def test_new_sources_and_damaged_caches_are_read_again(femnist, cache):
    folder, train, _ = femnist
    before = load_leaf(folder, cache=cache)
    for kept in cache.glob("*.parquet"):
        kept.write_bytes(kept.read_bytes()[:100])
    assert load_leaf(folder, cache=cache).checksum == before.checksum
    train["f3"][1][0] = 61 - train["f3"][1][0]
    leaf_files.write(folder, "train", {n: train[n] for n in ("f3", "f0")}, "all_data_0")
    after = load_leaf(folder, cache=cache)
    assert after.checksum != before.checksum
    assert after.train.labels[0] == train["f3"][1][0]


def test_shakespeare_is_spelt_in_leafs_alphabet(tmp_path, cache):
    folder = tmp_path / "shakespeare"
    window = ("To be, or not to be: that is the question:\nWhether 'tis nobler in the mind to su")[
        :80
    ]
    users = {"HAMLET": ([window, "@" * 80], ["u", "s"]), "GHOST": ([window], ["\n"])}
    leaf_files.write(folder, "train", users)
    leaf_files.write(folder, "test", users)
    leaf = load_leaf(folder, cache=cache)
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 80
    assert "".join(CHARACTERS[k] for k in leaf.train.samples[0]) == window
    assert [CHARACTERS[k] for k in leaf.train.labels] == ["u", "\n"]
    assert leaf.skipped == {"a character outside LEAF's 80": 2}  # one in each part


def test_sent140_keeps_the_text(tmp_path, cache):
    folder = tmp_path / "sent140"
    tweet = ["7", "Mon", "NO_QUERY", "ada", "gute Nacht ☕ \u202e!"]
    users = {"ada": ([tweet], [1]), "bob": ([tweet, tweet], ["0", "1"])}
    leaf_files.write(folder, "train", users)
    leaf_files.write(folder, "test", users)
    leaf = load_leaf(folder, cache=cache)
    assert list(leaf.train.samples) == [tweet[4]] * 3
    assert leaf.train.labels.tolist() == [1, 0, 1]


def test_leafs_own_oddities_are_counted(tmp_path, cache):
    rng = np.random.default_rng(1)
    folder = tmp_path / "femnist"
    some = leaf_files.images(rng, 2)
    leaf_files.write(folder, "train", {"a": some, "b": some, "empty": ([], [])})
    leaf_files.write(folder, "test", {"stranger": some, "b": some})
    leaf = load_leaf(folder, cache=cache)
    assert leaf.users == ("a", "b")
    assert leaf.test.sizes.tolist() == [0, 2]
    assert leaf.skipped == {"users without samples": 1, "users in test/ but not in train/": 1}


def broken(tmp_path, change, kind="femnist"):
    """A folder whose training file was changed as text."""
    rng = np.random.default_rng(2)
    folder = tmp_path / kind
    users = {"ann": leaf_files.images(rng, 2), "ben": leaf_files.images(rng, 2)}
    path = leaf_files.write(folder, "train", users)
    leaf_files.write(folder, "test", users)
    path.write_text(change(path.read_text()))
    return folder


def changed(change):
    """The same, changed as a document."""

    def apply(text):
        document = json.loads(text)
        change(document["user_data"])
        return json.dumps(document)

    return apply


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 2], r"broken JSON at user '(ann|ben)'"),
        (lambda text: text[:-1], "broken JSON at user 'ben'"),
        (lambda text: text + "x", "nothing more expected"),
        (lambda text: "[1, 2]", "broken JSON before the first user"),
        (lambda text: "", "broken JSON before the first user"),
        (lambda text: text.replace('"num_samples": [2, 2]', '"num_samples": [2, 3]'), "'ben'.*3"),
        (lambda text: text.replace('"users"', '"members"'), "not LEAF's file"),
        (lambda text: text.replace("1.0", "NaN", 1) if "1.0" in text else text, "NaN|nan|pixel"),
        (changed(lambda d: d["ben"]["x"][1].pop()), "user 'ben': image 1 has 783 pixels"),
        (changed(lambda d: d["ben"]["x"][0].__setitem__(5, 1.5)), "user 'ben': a pixel is 1.5"),
        (changed(lambda d: d["ann"]["y"].__setitem__(0, 62)), "user 'ann': label 0 is 62"),
        (changed(lambda d: d["ann"]["y"].__setitem__(0, -1)), "user 'ann': label 0 is -1"),
        (changed(lambda d: d["ann"]["y"].append(1)), "user 'ann' has no lists x and y"),
        (changed(lambda d: d["ann"].pop("x")), "user 'ann' has no lists x and y"),
        (changed(lambda d: d["ben"]["x"].__setitem__(0, "text")), "user 'ben': image 0 has 4"),
    ],
)
def test_what_does_not_fit_names_file_and_user(tmp_path, cache, change, words):
    folder = broken(tmp_path, change)
    with pytest.raises(ValueError, match=words) as error:
        load_leaf(folder, cache=cache)
    assert "all_data_0" in str(error.value)
    assert not list(cache.glob("*train*"))  # nothing half-read is kept


def test_a_user_twice_is_refused(tmp_path, cache):
    rng = np.random.default_rng(3)
    folder = tmp_path / "femnist"
    one = {"ann": leaf_files.images(rng, 1)}
    leaf_files.write(folder, "train", one, "all_data_0")
    leaf_files.write(folder, "train", one, "all_data_1")
    leaf_files.write(folder, "test", one)
    with pytest.raises(ValueError, match=r"all_data_1.*'ann' stands there twice"):
        load_leaf(folder, cache=cache)


def test_folders_that_are_not_leafs(tmp_path, cache):
    with pytest.raises(ValueError, match=r"train holds no \.json file"):
        load_leaf(tmp_path, "femnist", cache=cache)
    folder = broken(tmp_path, lambda text: text, kind="letters")
    with pytest.raises(ValueError, match="does not name one of femnist"):
        load_leaf(folder, cache=cache)
    rng = np.random.default_rng(4)
    leaf_files.write(tmp_path / "apart", "train", {"a": leaf_files.images(rng, 1)})
    leaf_files.write(tmp_path / "apart", "test", {"b": leaf_files.images(rng, 1)})
    with pytest.raises(ValueError, match="no user of test/ is in train/"):
        load_leaf(tmp_path / "apart", "femnist", cache=cache)


class TestGroups:
    @pytest.fixture
    def leaf(self, tmp_path, cache):
        """Thirty writers: ten of digits, ten of letters, ten of both, mixed up."""
        rng = np.random.default_rng(5)
        folder = tmp_path / "femnist"
        users = {}
        for k in range(30):
            x, _ = leaf_files.images(rng, 8)
            share = (0, 1, 0.5)[k % 3]
            y = [int(rng.integers(0, 10) if rng.random() > share else 40) for _ in range(8)]
            users[f"w{k:02d}"] = (x, y)
        leaf_files.write(folder, "train", users)
        leaf_files.write(folder, "test", users)
        return load_leaf(folder, cache=cache)

    @pytest.mark.parametrize("grouping", GROUPINGS[:3])
    @pytest.mark.parametrize("clients", [2, 3, 7])
    def test_everybody_is_in_one_group_of_equal_size(self, leaf, grouping, clients):
        groups = group_users(leaf, clients, grouping, 0)
        assert sorted(np.concatenate(groups)) == list(range(30))
        assert max(map(len, groups)) - min(map(len, groups)) <= 1

    def test_shuffles_differ_by_seed_and_not_otherwise(self, leaf):
        first, again, other = (group_users(leaf, 3, "shuffled", s) for s in (0, 0, 1))
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))

    def test_similar_users_come_together(self, leaf):
        groups = group_users(leaf, 3, "by-similarity", 0)
        letters = [np.mean(leaf.train.of(g)[1] == 40) for g in groups]
        assert max(letters) == pytest.approx(1.0)
        assert min(letters) < 0.05

    def test_each_user_a_client(self, leaf):
        assert [g.tolist() for g in group_users(leaf, 0, "users", 0)] == [[k] for k in range(30)]
        assert len(group_users(leaf, 4, "users", 0)) == 4
        with pytest.raises(ValueError, match="clients is 31, must be 0 … 30"):
            group_users(leaf, 31, "users", 0)

    def test_too_many_groups_or_an_unknown_way(self, leaf):
        with pytest.raises(ValueError, match="clients is 31, must be 2 … 30"):
            group_users(leaf, 31, "shuffled", 0)
        with pytest.raises(ValueError, match="split is 'astrology'"):
            group_users(leaf, 3, "astrology", 0)


MEASURE = """
import resource, sys, time
from pathlib import Path
from verax.tasks.leaf import load_leaf
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
leaf = load_leaf(Path(sys.argv[1]), "femnist", cache=Path(sys.argv[2]))
print(len(leaf.train.labels), before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_a_hundred_thousand_images_in_bounded_memory(tmp_path):
    """400 MB of JSON: what is held is the images (78 MB) and about one user, not the text."""
    leaf_files.write_large(tmp_path / "femnist" / "train" / "big.json", 500, 200)
    leaf_files.write_large(tmp_path / "femnist" / "test" / "big.json", 500, 1)
    size = (tmp_path / "femnist" / "train" / "big.json").stat().st_size
    assert size > 350e6
    command = [sys.executable, "-c", MEASURE, tmp_path / "femnist", tmp_path / "cache"]
    count, before, peak = map(int, subprocess.check_output(command, text=True).split())
    assert count == 100_000
    assert (peak - before) * 1024 < 400e6
