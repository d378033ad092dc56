"""The record of an audit: Parquet tables `runs` and `rounds`, readable by anything.

`runs` has a row per training run, `rounds` a row per run and round with the Gram matrix of the
messages (row by row), each client's ‖m − g‖² and training loss. Rounds before a run's `branch` are
those of the honest run of its seed and stand there only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from verax.audit.work import Batch, Run
from verax.files import write_with
from verax.game.reporting import from_json
from verax.learning import Outcome

__all__ = [
    "Recorded",
    "batch_tables",
    "load",
    "read_part",
    "read_table",
    "write_part",
    "write_table",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Recorded:
    """One run as it was recorded.

    Attributes:
        run: which run.
        loss: every client's test loss at the end, (N,).
        accuracy: (N,), NaN where the task has none.
        diverged: the round at which numbers stopped being finite, or 0.
        gram: (T − branch, N, N), or (…, N, 2) for many clients.
        misreport: (T − branch, N).
        present: (T − branch, N).
    """

    run: Run
    loss: Array
    accuracy: Array
    diverged: int
    gram: NDArray[np.float32]
    misreport: NDArray[np.float32]
    present: NDArray[np.bool_]


def batch_tables(batch: Batch, outcome: Outcome) -> tuple[Any, Any]:
    """The rows of a finished batch."""
    final = outcome.evaluations[-1]
    diverged = outcome.diverged
    runs = pa.Table.from_pylist(
        [
            {
                "run": run.number,
                "seed": run.seed,
                "role": run.role,
                "client": run.client,
                "reporting": run.reporting.to_json(),
                "branch": run.branch,
                "aggregator": run.aggregator,
                "diverged": int(diverged[k]),
                "loss": final.loss[k].tolist(),
                "accuracy": final.accuracy[k].tolist(),
                "evaluated": [
                    {
                        "round": e.round,
                        "loss": e.loss[k].tolist(),
                        "accuracy": e.accuracy[k].tolist(),
                    }
                    for e in outcome.evaluations
                ],
            }
            for k, run in enumerate(batch.runs)
        ],
        schema=_RUNS,
    )
    R, T = len(batch.runs), outcome.loss.shape[1]
    numbers = np.repeat([run.number for run in batch.runs], T)
    columns = {
        "run": pa.array(numbers, pa.int32()),
        "round": pa.array(np.tile(np.arange(T) + outcome.first + 1, R), pa.int32()),
        "gram": _lists(outcome.gram[:R].reshape(R * T, -1)),
        "misreport": _lists(outcome.misreport[:R].reshape(R * T, -1)),
        "loss": _lists(outcome.loss[:R].reshape(R * T, -1)),
        "present": _lists(np.tile(outcome.present, (R, 1))),
    }
    return runs, pa.table(columns)


def write_table(path: Path, tables: Iterable[Any]) -> None:
    """Write tables one after the other into one Parquet file, whole or not at all."""

    def write(file: Any) -> None:
        writer = None
        for table in tables:
            if writer is None:
                # Statistics hardly repeat: a dictionary would take more time and space.
                writer = pq.ParquetWriter(
                    file, table.schema, compression="zstd", use_dictionary=False
                )
            writer.write_table(table)
        if writer is not None:
            writer.close()

    write_with(path, write)


def write_part(path: Path, table: Any) -> None:
    """Write the table of one batch, whole or not at all, in a form that is quick to read again."""

    def write(file: Any) -> None:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    write_with(path, write)


def read_part(path: Path) -> Any:
    """Read what `write_part` wrote."""
    return _read(path, lambda: pa.ipc.open_file(pa.memory_map(str(path))).read_all())


def read_table(path: Path) -> Any:
    """Read a Parquet file; a broken or foreign one is named."""
    return _read(path, lambda: pq.read_table(path))


def _read(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{path} is not a table of an audit ({reason}); remove it and run the audit again"
        ) from None


def load(folder: Path) -> list[Recorded]:
    """All runs of a finished audit, in order."""
    runs, rounds = read_table(folder / "runs.parquet"), read_table(folder / "rounds.parquet")
    for name, table, wanted in (("runs", runs, _RUNS.names), ("rounds", rounds, _ROUNDS)):
        if list(table.schema.names) != list(wanted):
            raise ValueError(
                f"{folder / name}.parquet is not a table of an audit: its columns are "
                f"{', '.join(table.schema.names)}"
            )
    number = rounds["run"].to_numpy()
    order = np.argsort(number, kind="stable")
    ends = np.searchsorted(number[order], np.arange(runs.num_rows + 1))
    column = {name: _matrix(rounds[name])[order] for name in ("gram", "misreport", "present")}
    result: list[Recorded] = []
    for row in sorted(runs.to_pylist(), key=lambda row: row["run"]):
        run = Run(
            row["run"],
            row["seed"],
            row["role"],
            row["client"],
            from_json(row["reporting"]),
            row["branch"],
            row["aggregator"],
        )
        part = slice(ends[run.number], ends[run.number + 1])
        n = len(row["loss"])
        gram = column["gram"][part]
        result.append(
            Recorded(
                run,
                np.array(row["loss"]),
                np.array(row["accuracy"], dtype=float),
                row["diverged"],
                gram.reshape(len(gram), n, -1),
                column["misreport"][part],
                column["present"][part].astype(bool),
            )
        )
    return result


_FLOATS = pa.list_(pa.float64())
_RUNS = pa.schema(
    [
        ("run", pa.int32()),
        ("seed", pa.int64()),
        ("role", pa.string()),
        ("client", pa.int32()),
        ("reporting", pa.string()),
        ("branch", pa.int32()),
        ("aggregator", pa.string()),
        ("diverged", pa.int32()),
        ("loss", _FLOATS),
        ("accuracy", _FLOATS),
        (
            "evaluated",
            pa.list_(pa.struct([("round", pa.int32()), ("loss", _FLOATS), ("accuracy", _FLOATS)])),
        ),
    ]
)
_ROUNDS = ("run", "round", "gram", "misreport", "loss", "present")


def _lists(rows: NDArray[Any]) -> Any:
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def _matrix(column: Any) -> NDArray[Any]:
    whole = column.combine_chunks()
    flat = whole.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(whole), -1)
