"""What a member commits to before it takes part: its samples and its app.

The data are committed to by the root of a Merkle tree (RFC 6962) over the member's samples, in the
order in which its app reads them: adding, dropping, changing or moving a sample changes the root,
and the root says nothing about the samples to whoever does not have them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context

from verax.apps.app import FlowerApp, app_digest
from verax.flower.randomness import seeded
from verax.ledger.tree import leaf_hash, root
from verax.plugins import is_reference
from verax.spot.recompute import UnrepeatableError, context_of


@dataclass(frozen=True)
class Commitment:
    """What a member commits to; data and app stand in the book.

    Attributes:
        data: the root over the samples, in hexadecimal digits.
        app: the digest of the app and its configuration.
        run_config: that configuration, with which the mod compares the one of each round.
    """

    data: str
    app: str
    run_config: dict[str, Any]

    def to_json(self) -> str:
        """The file that `verax commit` writes."""
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"


def commit(app: FlowerApp, source: str, node_config: Mapping[str, Any]) -> Commitment:
    """The commitment of a member; refuses samples that are others when they are read again.

    Args:
        app: with the configuration of the run.
        source: the member's samples, as `load_samples` takes them.
        node_config: the configuration of the member's node.
    """
    roots: set[str] = set()
    for seed in (1, 2):
        with seeded(seed):
            context = context_of(app, node_config)
            roots.add(commit_data(load_samples(source, app, context)))
    if len(roots) > 1:
        raise UnrepeatableError(
            f"the samples of {source} are others each time they are read, so that an auditor "
            "would not find those that were committed to: return them before anything random, "
            "such as augmentation, and do what is random in training, where it is seeded; split "
            "and shuffle data by a generator with a seed of its own"
        )
    return Commitment(roots.pop(), commit_app(app), dict(app.run_config))


def commit_app(app: FlowerApp) -> str:
    """SHA-256 of an app's files and of the configuration that it runs with."""
    config = json.dumps(app.run_config, sort_keys=True, ensure_ascii=False)
    return sha256(f"{app_digest(app.folder)}\n{config}\n".encode()).hexdigest()


def load_samples(source: str, app: FlowerApp, context: Context) -> Any:
    """A member's samples: a path, or what a function of the app, `module:name`, returns.

    The function is called with the context that the app is called with: it should read the data as
    the app does.
    """
    if not is_reference(source):
        return Path(source)
    module, _, name = source.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)  # the app's folder is searched
    except (ImportError, AttributeError) as error:
        raise ValueError(f"data {source!r} of {app.folder} cannot be loaded: {error}") from None
    return function(context)


def commit_data(samples: Any) -> str:
    """The root over samples, in hexadecimal digits.

    Args:
        samples: an array (its rows are the samples); a tuple of arrays of one length, such as
            inputs and labels; a data set of PyTorch or Hugging Face, or any sequence; a path, where
            a `.npy` or `.npz` file stands for its arrays, another file for its lines, and a folder
            for its files, by name.

    Example:
        >>> commit_data((np.zeros((2, 3)), np.array([0, 1])))[:16]
        'ce0734fd91a9271c'
    """
    leaves = [leaf_hash(encode(sample)) for sample in _samples(samples)]
    if not leaves:
        raise ValueError("there are no samples to commit to")
    return root(leaves).hex()


def _samples(source: Any) -> Iterator[Any]:
    if isinstance(source, Path):
        yield from _of_path(source)
    elif isinstance(source, tuple):
        columns: Any = source
        lengths = {len(column) for column in columns}
        if len(lengths) != 1:
            raise ValueError(f"the columns have {sorted(lengths)} samples, must have one length")
        for i in range(lengths.pop()):
            yield tuple(column[i] for column in columns)
    elif hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        for i in range(len(source)):
            yield source[i]
    else:
        raise ValueError(
            f"samples are a {type(source).__name__}, must be a path, an array, a tuple of arrays, "
            "or a data set with a length"
        )


def _of_path(path: Path) -> Iterator[Any]:
    if path.is_dir():
        for file in sorted(each for each in path.rglob("*") if each.is_file()):
            yield file.relative_to(path).as_posix(), file.read_bytes()
    elif path.suffix == ".npy":
        yield from np.load(path, allow_pickle=False)
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as stored:
            yield from _samples(tuple(stored[name] for name in sorted(stored.files)))
    else:
        with path.open("rb") as file:
            yield from file


def encode(value: Any) -> bytes:
    """A sample as bytes, in one form: kind, length and content of each of its parts.

    Numbers and tensors count as arrays. The type of an array is part of it, the byte order of the
    machine is not.
    """
    if isinstance(value, bytes):
        return _part(b"b", value)
    if isinstance(value, str):
        return _part(b"s", value.encode())
    if value is None:
        return _part(b"n", b"")
    if isinstance(value, Mapping):
        table: Any = value
        pairs = sorted((encode(key), encode(each)) for key, each in table.items())
        return _part(b"m", b"".join(key + each for key, each in pairs))
    if isinstance(value, list | tuple):
        items: Any = value
        return _part(b"l", b"".join(map(encode, items)))
    array = np.asarray(value)
    if array.dtype.kind not in "biufcU":
        raise ValueError(
            f"a sample holds {type(value).__name__}, must be numbers, text, bytes, arrays, or "
            "lists and tables of them"
        )
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    head = f"{array.dtype.str}{np.asarray(value).shape}".encode()
    return _part(b"a", _part(b"t", head) + array.tobytes())


def _part(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(8, "big") + content
