"""LEAF's folders as compact tables: read once in a stream, then from a cache in seconds.

A cache is one Parquet file per part (train, test) with columns user, x, y, named by what the
sources are: their names, sizes and times. Its metadata hold their SHA-256, the users, and what was
skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from verax.files import cache_folder, write_with
from verax.tasks.leaf.kinds import KINDS, Kind
from verax.tasks.leaf.stream import Source, read_file

Progress = Callable[[int], None]

_FORMAT = 1
_FLUSH = 20_000  # samples held before they are written


@dataclass(frozen=True, eq=False)
class Part:
    """Training or test data, sorted by user.

    Attributes:
        samples: (samples, …) of uint8, or of texts.
        labels: (samples,).
        ends: where each user's samples end, (users,).
    """

    samples: NDArray[Any]
    labels: NDArray[np.uint8]
    ends: NDArray[np.intp]

    def of(self, users: NDArray[np.intp]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """The samples and labels of some users, one after the other."""
        starts = self.ends - self.sizes
        spans = zip(starts[users].tolist(), self.ends[users].tolist(), strict=True)
        rows = np.concatenate([np.arange(start, end) for start, end in spans])
        return self.samples[rows], self.labels[rows]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Samples per user."""
        return np.diff(self.ends, prepend=0)

    def label_shares(self, classes: int) -> NDArray[np.float64]:
        """The share of each label among each user's samples, (users, classes)."""
        user = np.repeat(np.arange(len(self.ends)), self.sizes)
        counts = np.zeros((len(self.ends), classes))
        np.add.at(counts, (user, self.labels), 1)
        return counts / np.maximum(self.sizes, 1)[:, None]


@dataclass(frozen=True, eq=False)
class Leaf:
    """One of LEAF's data sets.

    Attributes:
        kind: which.
        users: in the order of the files.
        train: per user at least one sample.
        test: of the same users; some may have none.
        skipped: how many users or samples were left out, by reason.
        checksum: of all sources.
    """

    kind: Kind
    users: tuple[str, ...]
    train: Part
    test: Part
    skipped: dict[str, int]
    checksum: str


def load_leaf(
    path: str | Path,
    name: str = "",
    *,
    cache: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Leaf:
    """Read a LEAF folder with `train/` and `test/`, from the cache if it is there.

    Args:
        path: the folder.
        name: femnist, shakespeare or sent140; default: by the folder's name or its data.
        cache: where caches are kept; default: `cache_folder()`.
        progress: called with (bytes just read, bytes in all).
    """
    folder = Path(path)
    files = {part: _json_files(folder, part) for part in ("train", "test")}
    kind = kind_of(folder, name)
    total = sum(file.stat().st_size for part in files.values() for file in part)

    def tick(size: int) -> None:
        if progress is not None:
            progress(size, total)

    kept = cache_folder() if cache is None else cache
    train, test = (_table(kind, files[part], kept, tick) for part in ("train", "test"))
    return _joined(folder, kind, train, test)


def kind_of(folder: Path, name: str = "") -> Kind:
    """The data set by its name, else by that of the folder."""
    known = name or next((k for k in KINDS if k in folder.resolve().name.lower()), "")
    if known not in KINDS:
        wanted = f"{known!r} is not" if known else f"{folder} does not name"
        raise ValueError(f"{wanted} one of {', '.join(KINDS)}; say which with --task")
    return KINDS[known]


def _json_files(folder: Path, part: str) -> list[Path]:
    files = sorted((folder / part).glob("*.json"))
    if not files:
        raise ValueError(
            f"{folder / part} holds no .json file; LEAF's preprocess.sh writes train/ and test/"
        )
    return files


def _table(
    kind: Kind, files: list[Path], cache: Path, progress: Progress
) -> tuple[Any, dict[str, Any]]:
    """Columns and facts of one part."""
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    key = hashlib.sha256(
        json.dumps([_FORMAT, kind.name, str(files[0].parent.resolve()), stats]).encode()
    )
    kept = cache / f"{kind.name}-{files[0].parent.name}-{key.hexdigest()[:16]}.parquet"
    if kept.exists():
        try:
            return _read(kept)
        except (pa.ArrowInvalid, OSError, KeyError):
            kept.unlink()  # a damaged cache is written again
    write_with(kept, lambda file: _convert(kind, files, file, progress))
    return _read(kept)


def _read(path: Path) -> tuple[Any, dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        return file.read(), json.loads(file.metadata.metadata[b"verax"])


def _convert(kind: Kind, files: list[Path], out: IO[bytes], progress: Progress) -> None:
    """Stream the files into one Parquet file; memory holds a user and an unwritten group."""
    schema = pa.schema([("user", pa.int32()), ("x", kind.type), ("y", pa.uint8())])
    users: list[str] = []
    skipped: dict[str, int] = {}
    sources: list[Source] = []
    group: list[Any] = []
    held = 0
    with pq.ParquetWriter(out, schema, compression="zstd", use_dictionary=False) as writer:
        for user, rows in _rows(kind, files, progress, sources, users, skipped):
            number = pa.array(np.full(len(rows.y), user, np.int32))
            group.append(pa.record_batch([number, rows.x, pa.array(rows.y)], schema=schema))
            held += len(rows.y)
            if held >= _FLUSH:
                writer.write_table(pa.Table.from_batches(group))
                group, held = [], 0
        writer.write_table(pa.Table.from_batches(group, schema))
        checksum = hashlib.sha256("".join(s.checksum for s in sources).encode()).hexdigest()
        facts = {"users": users, "skipped": skipped, "checksum": checksum}
        writer.add_key_value_metadata({"verax": json.dumps(facts)})


def _rows(
    kind: Kind,
    files: list[Path],
    progress: Progress,
    sources: list[Source],
    users: list[str],
    skipped: dict[str, int],
) -> Iterator[tuple[int, Any]]:
    """(user's number, rows) of all files; `users` and `skipped` grow on the way."""
    number: dict[str, int] = {}
    for path in files:
        sizes: dict[str, int] = {}
        for user in read_file(path, progress, sources):
            if user.name in number or user.name in sizes:
                raise ValueError(f"{path}: user {user.name!r} stands there twice")
            sizes[user.name] = len(user.y)
            if not user.y:
                skipped["users without samples"] = skipped.get("users without samples", 0) + 1
                continue
            try:
                rows = kind.encode(user.x, user.y)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}: user {user.name!r}: {error}") from None
            for reason, count in rows.skipped.items():
                skipped[reason] = skipped.get(reason, 0) + count
            if len(rows.y):
                number[user.name] = len(users)
                users.append(user.name)
                yield number[user.name], rows
        said = dict(zip(sources[-1].users, sources[-1].counts, strict=True))
        for name, count in said.items():
            if sizes.get(name) != count:
                raise ValueError(
                    f"{path}: user {name!r} should have {count} samples, has "
                    f"{sizes.get(name, 'none')}"
                )


def _joined(folder: Path, kind: Kind, *tables: tuple[Any, dict[str, Any]]) -> Leaf:
    (train, test), facts = zip(*tables, strict=True)
    users: list[str] = facts[0]["users"]
    if not users:
        raise ValueError(f"{folder / 'train'} has no user with samples")
    place = {name: k for k, name in enumerate(users)}
    of_test = np.array([place.get(name, -1) for name in facts[1]["users"]], dtype=np.intp)
    if np.all(of_test < 0):
        raise ValueError(
            f"{folder}: no user of test/ is in train/; split within users, as LEAF's "
            "preprocess.sh -t sample does"
        )
    skipped: dict[str, int] = {}
    for fact in facts:
        for reason, count in fact["skipped"].items():
            skipped[reason] = skipped.get(reason, 0) + count
    strangers = int(np.count_nonzero(of_test < 0))
    if strangers:
        skipped["users in test/ but not in train/"] = strangers
    checksum = hashlib.sha256((facts[0]["checksum"] + facts[1]["checksum"]).encode()).hexdigest()
    return Leaf(
        kind,
        tuple(users),
        _part(kind, train, np.arange(len(users)), len(users)),
        _part(kind, test, of_test, len(users)),
        skipped,
        checksum,
    )


def _part(kind: Kind, table: Any, number: NDArray[np.intp], users: int) -> Part:
    """Samples sorted by the users' numbers in the training data; users without one are left out."""
    user = number[table["user"].to_numpy()]
    column = table["x"].combine_chunks()
    if kind.shape:
        width = int(np.prod(kind.shape))
        flat = np.frombuffer(column.buffers()[1], dtype=np.uint8)[: len(column) * width]
        samples = flat.reshape(len(column), *kind.shape)
    else:
        samples = np.array(column.to_pylist(), dtype=object)
    labels = table["y"].to_numpy()
    order = np.argsort(user, kind="stable")[np.count_nonzero(user < 0) :]
    if not np.array_equal(order, np.arange(len(user))):
        user, samples, labels = user[order], samples[order], labels[order]
    ends = np.searchsorted(user, np.arange(users), side="right")
    return Part(samples, labels, ends)
