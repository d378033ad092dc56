"""Mods for a ClientApp: who a client is, a record of its own updates, and misreporting as a test.

They are Flower mods, `ClientApp(mods=[identified, record_updates(), misreport()])`, and affect only
training. The last two read the run's configuration at each call, so that `flwr run --run-config`
controls them; with the default configuration they change nothing. The first mod of the list is the
outermost: in this order the record contains what is really sent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from numpy.typing import NDArray

from verax.flower.randomness import is_training
from verax.game import Reporting, ScaleAndNoise, Sender, reporting_of
from verax.game.reporting import flattened, unflattened
from verax.mechanism import Arrays, squared_norms

_STATE = "verax.misreport"
_IDENTITY = "verax.identity"


def identified(request: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A mod that tells the server the client's `partition-id`, which only the client knows.

    It is meant for simulations: there, nodes have random ids and no names, and terms with a price
    per member need to know who is who. A client can say anything: two nodes that say the same are
    refused, and a node with a registered key or name is always the member of that key or name,
    whatever it says.
    """
    reply = call_next(request, context)
    partition = context.node_config.get("partition-id")
    if partition is not None and is_training(request) and reply.has_content():
        reply.content[_IDENTITY] = ConfigRecord({"partition-id": int(partition)})
    return reply


def take_partition(content: RecordDict) -> str | None:
    """Remove what `identified` added to a reply, and return the partition-id."""
    record = content.pop(_IDENTITY, None)
    value = record.get("partition-id") if isinstance(record, ConfigRecord) else None
    return str(value) if isinstance(value, int) and 0 <= value < 2**63 else None


def misreport(reporting: Reporting | None = None) -> Mod:
    """A mod that turns the true update g into the message m of a reporting.

    Args:
        reporting: what to send instead of the truth; by default, what the run's configuration
            says: `misreport` (a reporting's JSON or `module:name`), or `misreport-scale` and
            `misreport-noise`.

    With `misreport-partition` in the run's configuration, only the client with that `partition-id`
    misreports; with −1 or without it, all clients do. `misreport-seed` is the random seed, and
    `num-server-rounds` is T for reportings that depend on it.
    """

    def mod(request: Message, context: Context, call_next: ClientAppCallable) -> Message:
        chosen = reporting or _chosen(context)
        if chosen is None or not is_training(request) or not _misreports(context):
            return call_next(request, context)
        before = _arrays(request)
        reply = call_next(request, context)
        if before is not None and reply.has_content():
            _apply(chosen, before, reply, _round(request), context)
        return reply

    return mod


def record_updates(folder: str | Path | None = None, arrays: Arrays | None = None) -> Mod:
    r"""A mod that records the squared norm of every update that this client sends.

    Args:
        folder: the folder of `<partition-id or node id>.jsonl`, to which lines are appended; by
            default `record-updates` of the run's configuration. If empty, nothing is recorded.
        arrays: which arrays are charged, as `[arrays]` of the terms says; by default, the default
            of the terms.

    Each line is {"run": …, "round": …, "norm": …}; `verax ledger verify BOOK --mine FILE --member
    NAME` compares the file with the book. The run is `run-name` of the configuration, or Flower's
    run id, as on the server.
    """

    def mod(request: Message, context: Context, call_next: ClientAppCallable) -> Message:
        path = folder or str(context.run_config.get("record-updates", ""))
        before = _arrays(request) if path and is_training(request) else None
        reply = call_next(request, context)
        if before is None or not reply.has_content():
            return reply
        after = _arrays(reply)
        if after is not None and list(after) == list(before):
            charged = [name for name in before if (arrays or Arrays()).is_charged(name)]
            norms = squared_norms([before[k] for k in charged], [[after[k] for k in charged]])
            run = str(context.run_config.get("run-name") or context.run_id)
            line = {"run": run, "round": _round(request), "norm": float(norms[0])}
            name = context.node_config.get("partition-id", context.node_id)
            own = Path(path) / f"{name}.jsonl"
            own.parent.mkdir(parents=True, exist_ok=True)
            with own.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return reply

    return mod


def _chosen(context: Context) -> Reporting | None:
    config = context.run_config
    text = str(config.get("misreport", ""))
    if text:
        return reporting_of(text)
    a, b = float(config.get("misreport-scale", 1.0)), float(config.get("misreport-noise", 0.0))
    return None if (a, b) == (1.0, 0.0) else ScaleAndNoise(a, b)


def _misreports(context: Context) -> bool:
    which = int(context.run_config.get("misreport-partition", -1))
    return which < 0 or context.node_config.get("partition-id") == which


def _arrays(carrier: Message) -> dict[str, NDArray[Any]] | None:
    records = list(carrier.content.array_records.values())
    if len(records) != 1:
        return None
    return {name: array.numpy() for name, array in records[0].items()}


def _round(request: Message) -> int:
    for record in request.content.config_records.values():
        if "server-round" in record:
            return int(record["server-round"])  # pyright: ignore[reportArgumentType]
    raise ValueError('the request has no "server-round"; Flower\'s strategies set it')


def _apply(
    chosen: Reporting, before: dict[str, NDArray[Any]], reply: Message, t: int, context: Context
) -> None:
    """Replace the reply's float arrays by what was received plus the message."""
    if chosen.changes_batch:
        raise ValueError(
            f"{chosen.describe(t)} changes the data, which a mod cannot; it can be audited by the "
            "simulator only"
        )
    name, record = next(iter(reply.content.array_records.items()))
    after = {key: record[key].numpy() for key in record if key in before}
    floats = [key for key in after if before[key].dtype.kind == after[key].dtype.kind == "f"]
    model = [before[key].astype(np.float64) for key in floats]
    update = [after[key] - own for key, own in zip(floats, model, strict=True)]
    config = context.run_config
    rounds = max(int(config.get("num-server-rounds", t)), t)
    client = int(context.node_config.get("partition-id", 0))
    sender = Sender(chosen, rounds, int(config.get("misreport-seed", 0)) * 1_000_003 + client)
    memory, moved = _remembered(chosen, update, model, context)
    sent, memory = sender.send(t, update, memory, moved)
    _remember(memory, model, context)
    arrays = dict(record)
    for key, own, part in zip(floats, model, sent, strict=True):
        arrays[key] = Array(np.asarray(own + part, dtype=after[key].dtype))
    reply.content[name] = ArrayRecord(arrays)


def _remembered(
    chosen: Reporting, update: list[Any], model: list[Any], context: Context
) -> tuple[Any, list[Any] | None]:
    """The client's memory, and by how much the server moved the model since its last reply."""
    stored = context.state.array_records.get(_STATE)
    if stored is None:
        return None, None
    arrays = [array.numpy() for array in stored.values()]
    moved = [now - then for now, then in zip(model, arrays, strict=False)]
    return unflattened(chosen.start(update), iter(arrays[len(model) :])), moved


def _remember(memory: Any, model: list[Any], context: Context) -> None:
    arrays = [*model, *([] if memory is None else flattened(memory))]
    context.state[_STATE] = ArrayRecord(
        {str(k): Array(np.asarray(array)) for k, array in enumerate(arrays)}
    )
