"""A mod that makes a member's update a function of model, data and a public seed, and keeps it.

In a federation with spot checks the server sends with each request for training the record that
opened the round. The seed follows from its hash, run, round and member, so that no member could
choose it. The mod seeds the app's global generators by it, refuses a request whose configuration
is not the one of the record, and keeps request and reply in a folder of the member's, so that an
auditor can compute the update again.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from google.protobuf.message import DecodeError

from verax.files import write_bytes
from verax.flower.pairing import paired
from verax.flower.randomness import SEED_RECORD, is_training

if TYPE_CHECKING:  # a client needs no database
    from verax.flower.identity import Member
    from verax.ledger import Record

_LENGTH = 8  # bytes that hold the length of the request in front of it
_TYPE = "verax.type"
_OWN = "verax."  # records of this layer, which are no part of an app's configuration


def seed_of(opening: str, run: str, round_: int, member: str) -> tuple[int, ...]:
    """The prescribed seed of a member's update: eight words of 32 bits.

    Args:
        opening: the hash of the record that opened the round.
        run: which training run.
        round_: t.
        member: the member's id in the book.
    """
    text = json.dumps([opening, run, round_, member], ensure_ascii=False)
    digest = sha256(f"verax/seed/v1\n{text}\n".encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "big") for i in range(0, 32, 4))


def config_digest(content: RecordDict) -> str:
    """SHA-256 of the configuration in a request, by which the app trains."""
    tables = {
        name: sorted((key, repr(value)) for key, value in record.items())
        for name, record in sorted(content.config_records.items())
        if not name.startswith(_OWN)
    }
    return sha256(json.dumps(tables, ensure_ascii=False).encode()).hexdigest()


def common_config(messages: Sequence[Message]) -> str:
    """The digest of the configuration in requests; refuses requests that differ."""
    digests = {config_digest(message.content) for message in messages}
    if len(digests) != 1:
        raise ValueError(
            "the strategy sends different configurations to members, so that no spot check could "
            "say what was asked of whom; leave [spot] out of the terms"
        )
    return digests.pop()


def with_seeds(
    messages: Sequence[Message], members: Mapping[int, Member], opening: Record
) -> list[Message]:
    """Copies of requests that carry each member's seed, and the record that it follows from."""
    result: list[Message] = []
    for message in messages:
        member = members[message.metadata.dst_node_id]
        if not member.is_known:
            raise ValueError(
                f"{member.label!r} has neither a key nor a name, and a seed is prescribed to a "
                "member: register SuperNodes by key and --name"
            )
        body = opening.content
        seed = seed_of(opening.hash, body["run"], body["round"], member.id)
        told = ConfigRecord({"seed": [*seed], "opening": opening.data, "member": member.id})
        copied = copy.copy(message)  # strategies share one content among messages
        copied.content = RecordDict({**message.content, SEED_RECORD: told})
        result.append(copied)
    return result


def prescribed(folder: str = "", commitment: str = "") -> Mod:
    """A mod that seeds the app's generators as the book prescribes, and keeps the round.

    Args:
        folder: where requests and replies are kept, about two models a round; by default
            `keep-rounds` of the node's or the run's configuration. If empty, nothing is kept.
        commitment: the file that `verax commit` wrote; by default `commitment` of the node's
            configuration. A run with another configuration than the one in it is refused.

    It stands before mods that change the update, and after the one that signs it:
    `ClientApp(mods=[signed(), identified, prescribed(), misreport()])`.
    """

    def mod(request: Message, context: Context, call_next: ClientAppCallable) -> Message:
        told = request.content.get(SEED_RECORD) if request.has_content() else None
        if not is_training(request) or told is None or "opening" not in told:
            return paired(request, context, call_next)
        of = _check_told(request)
        own = commitment or str(context.node_config.get("commitment", ""))
        _check_committed(own, context.run_config)
        kind = ConfigRecord({"type": request.metadata.message_type})
        received = _to_bytes(RecordDict({**request.content, _TYPE: kind}))
        reply = paired(request, context, call_next)
        path = folder or str(
            context.node_config.get("keep-rounds") or context.run_config.get("keep-rounds", "")
        )
        if path and reply.has_content():
            sent = _to_bytes(RecordDict({**reply.content.array_records}))
            data = len(received).to_bytes(_LENGTH, "big") + received + sent
            write_bytes(kept_file(Path(path), *of), data)
        return reply

    return mod


def _check_told(request: Message) -> tuple[str, str, int]:
    """Member, run and round of a request whose seed and configuration the opening record gives."""
    told: Any = request.content[SEED_RECORD]
    opening = json.loads(told["opening"])
    member, run, round_ = str(told["member"]), str(opening["run"]), int(opening["round"])
    seed = seed_of(sha256(told["opening"]).hexdigest(), run, round_, member)
    if told["seed"] != [*seed] or opening["config"] != config_digest(request.content):
        raise ValueError(
            "the server asks for another seed or configuration than the record that opened the "
            "round: the update would fail a spot check, and is not computed"
        )
    return member, run, round_


def _check_committed(path: str, run_config: Mapping[str, Any]) -> None:
    """The run has the configuration with which the member tested its app and committed to it."""
    if not path:
        raise ValueError(
            "the terms have spot checks, and nothing says what this member committed to: put the "
            "file of `verax commit --out` into the node's configuration, commitment='north.json'"
        )
    try:
        committed: dict[str, Any] = json.loads(Path(path).read_bytes())["run_config"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is no commitment; `verax commit --out` writes one") from None
    pairs = [
        f"{name} is {run_config.get(name)!r}, committed to {committed.get(name)!r}"
        for name in sorted({*committed, *run_config})
        if repr(run_config.get(name)) != repr(committed.get(name))
    ]
    if pairs:
        raise ValueError(
            f"the run has another configuration than this member committed to ({'; '.join(pairs)}):"
            " the update would fail a spot check, and is not computed. Start the run with the "
            "agreed --run-config, or commit and join again with this one before the run"
        )


def kept_file(folder: Path, member: str, run: str, round_: int) -> Path:
    """Where a round is kept; a member's id may be too long for the name of a folder."""
    own = sha256(member.encode()).hexdigest()[:16]
    return folder / own / quote(run, safe=" ") / f"round-{round_:09d}.kept"


def remove_kept(folder: Path, member: str, run: str, drawn: Collection[int]) -> list[Path]:
    """Remove a run's kept rounds but those that are drawn; returns what was removed."""
    wanted = {kept_file(folder, member, run, round_) for round_ in drawn}
    own = kept_file(folder, member, run, 1).parent
    removed = sorted(set(own.glob("round-*.kept")) - wanted)
    for path in removed:
        path.unlink()
    return removed


def read_kept(path: Path) -> tuple[RecordDict, RecordDict, str]:
    """The content of a kept request and of its reply, and the type of the message."""
    data = path.read_bytes()
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    try:
        request, reply = (
            recorddict_from_proto(ProtoRecordDict.FromString(part))
            for part in (data[_LENGTH:end], data[end:])
        )
        kind = str(request.config_records.pop(_TYPE)["type"])
    except (DecodeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is no kept round ({error})") from None
    return request, reply, kind


def _to_bytes(content: RecordDict) -> bytes:
    return recorddict_to_proto(content).SerializeToString(deterministic=True)
