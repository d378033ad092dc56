"""The record of an audit: two Parquet tables that any program can read.

`runs.parquet` has a row per training run, `rounds.parquet` a row per run and round. Rounds up to a
run's `branched_after` are those of the honest run of its seed, and only stand there. The columns
are described in `docs/reference/record.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from verax.audit.run.runs import Run, RunBatch
from verax.files import write_with
from verax.game import reporting_of
from verax.learning import Evaluation
from verax.mechanism import Statistics

Array = NDArray[np.float64]


class RunResults(Protocol):
    """What an engine returns for R runs of one batch, from round `first` (0-based) on."""

    @property
    def first(self) -> int:
        """Rounds that were done before."""
        ...

    @property
    def statistics(self) -> Statistics[Any]:
        """(R, T', N) or (R, T', N, N) each."""
        ...

    @property
    def loss(self) -> NDArray[Any]:
        """Training losses, (R, T', N)."""
        ...

    @property
    def present(self) -> NDArray[np.bool_]:
        """Who took part, (R, T', N)."""
        ...

    @property
    def evaluations(self) -> list[Evaluation]:
        """In order; the last is after the last round."""
        ...

    @property
    def diverged(self) -> NDArray[np.intp]:
        """The first round whose numbers are not finite, per run; 0 where all are."""
        ...


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """One run as it was recorded.

    Attributes:
        run: which run.
        loss: every client's test loss at the end, (N,).
        accuracy: (N,), NaN where the task has none.
        diverged: the round at which numbers stopped being finite, or 0.
        statistics: of the rounds after the branch, (T − branch, N) or (T − branch, N, N) each.
        present: who took part in them, (T − branch, N).
    """

    run: Run
    loss: Array
    accuracy: Array
    diverged: int
    statistics: Statistics[NDArray[np.float32]]
    present: NDArray[np.bool_]


_FLOATS = pa.list_(pa.float64())
_RUN_COLUMNS = pa.schema(
    [
        ("run", pa.int32()),
        ("seed", pa.int64()),
        ("role", pa.string()),
        ("deviating_client", pa.int32()),
        ("reporting", pa.string()),
        ("branched_after", pa.int32()),
        ("aggregator", pa.string()),
        ("diverged_in_round", pa.int32()),
        ("test_loss", _FLOATS),
        ("test_accuracy", _FLOATS),
        (
            "evaluations",
            pa.list_(
                pa.struct(
                    [("round", pa.int32()), ("test_loss", _FLOATS), ("test_accuracy", _FLOATS)]
                )
            ),
        ),
    ]
)
#: Columns of `rounds.parquet` that hold a list of numbers per row; the statistics by their names in
#: `verax.mechanism.Statistics`, those that were not recorded are left out.
_STATISTICS = {
    "norms": "squared_norm",
    "gram": "gram_matrix",
    "distances": "squared_distance_to_mean",
    "misreport": "squared_misreport",
    "smoothed": "squared_smoothed_norm",
}


def batch_tables(batch: RunBatch, outcome: RunResults) -> tuple[Any, Any]:
    """The rows of a finished batch: runs, and rounds."""
    final = outcome.evaluations[-1]
    diverged = outcome.diverged
    runs = pa.Table.from_pylist(
        [
            {
                "run": run.number,
                "seed": run.seed,
                "role": run.role,
                "deviating_client": run.client,
                "reporting": run.reporting.text,
                "branched_after": run.branch,
                "aggregator": run.aggregator,
                "diverged_in_round": int(diverged[k]),
                "test_loss": final.loss[k].tolist(),
                "test_accuracy": final.accuracy[k].tolist(),
                "evaluations": [
                    {
                        "round": e.round,
                        "test_loss": e.loss[k].tolist(),
                        "test_accuracy": e.accuracy[k].tolist(),
                    }
                    for e in outcome.evaluations
                ],
            }
            for k, run in enumerate(batch.runs)
        ],
        schema=_RUN_COLUMNS,
    )
    R, T = len(batch.runs), outcome.loss.shape[1]
    columns = {
        "run": pa.array(np.repeat([run.number for run in batch.runs], T), pa.int32()),
        "round": pa.array(np.tile(np.arange(T) + outcome.first + 1, R), pa.int32()),
        "took_part": _lists(outcome.present[:R].reshape(R * T, -1)),
        "training_loss": _lists(outcome.loss[:R].reshape(R * T, -1)),
    }
    for name, values in outcome.statistics._asdict().items():
        if values is not None:
            columns[_STATISTICS[name]] = _lists(values[:R].reshape(R * T, -1))
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
            f"{path} is not a table of an audit ({reason}); run the audit again with --again"
        ) from None


def load_runs(folder: Path) -> list[RecordedRun]:
    """All runs of a finished audit, in order."""
    runs, rounds = read_table(folder / "runs.parquet"), read_table(folder / "rounds.parquet")
    for name, table, wanted in (
        ("runs", runs, _RUN_COLUMNS.names),
        ("rounds", rounds, ["run", "round", "took_part", "training_loss", "squared_norm"]),
    ):
        missing = [column for column in wanted if column not in table.schema.names]
        if missing:
            raise ValueError(
                f"{folder / name}.parquet is not a table of an audit: it has no column "
                f"{missing[0]}; its columns are {', '.join(table.schema.names)}"
            )
    number = rounds["run"].to_numpy()
    order = np.argsort(number, kind="stable")
    ends = np.searchsorted(number[order], np.arange(runs.num_rows + 1))
    known = {
        name: _matrix(rounds[column])[order]
        for name, column in _STATISTICS.items()
        if column in rounds.schema.names
    }
    present = _matrix(rounds["took_part"])[order].astype(np.bool_)
    result: list[RecordedRun] = []
    for row in sorted(runs.to_pylist(), key=lambda row: row["run"]):
        run = Run(
            row["run"],
            row["seed"],
            row["role"],
            row["deviating_client"],
            reporting_of(row["reporting"]),
            row["branched_after"],
            row["aggregator"],
        )
        part = slice(ends[run.number], ends[run.number + 1])
        own = {name: values[part] for name, values in known.items()}
        if "gram" in own:
            clients = len(row["test_loss"])
            own["gram"] = own["gram"].reshape(-1, clients, clients)
        result.append(
            RecordedRun(
                run,
                np.array(row["test_loss"]),
                np.array(row["test_accuracy"], dtype=float),
                row["diverged_in_round"],
                Statistics(**own),
                present[part],
            )
        )
    return result


def _lists(rows: NDArray[Any]) -> Any:
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def _matrix(column: Any) -> NDArray[Any]:
    whole = column.combine_chunks()
    flat = whole.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(whole), -1)
