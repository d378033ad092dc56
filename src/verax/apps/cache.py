"""Replies of honest runs, kept on disk, so that no honest call is computed twice.

A run in which one member deviates from round t on is honest before. Its calls up to there are those
of the honest run of the same replica: the same member is sent the same content in the same state.
Replies are therefore stored under (replica, member, what was sent, the member's state).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from flwr.app import RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from google.protobuf.message import DecodeError

#: Bytes that replies may take by default.
DEFAULT_LIMIT = 4 * 2**30

_LENGTH = 8  # bytes that hold the length of the reply in front of it


class ReplyCache:
    """A folder of replies with a limit on its size.

    Args:
        folder: where the replies are; created when the first is stored.
        limit: bytes that this process may add to what is there; beyond it nothing is stored.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._left = folder, limit

    @staticmethod
    def key(replica: int, member: int, kind: str, sent: RecordDict, state: RecordDict) -> str:
        """Under what a reply is stored."""
        digest = hashlib.blake2b(f"{replica} {member} {kind}".encode(), digest_size=20)
        for records in (sent, state):
            digest.update(b"\0content")
            for name, record in records.items():
                digest.update(f"\0{name}\0{type(record).__name__}".encode())
                if name in records.array_records:
                    for label, array in records.array_records[name].items():
                        digest.update(f"\0{label}\0{array.dtype}\0{array.shape}\0".encode())
                        digest.update(array.data)
                else:
                    digest.update(repr(sorted(record.items())).encode())
        return digest.hexdigest()

    def load(self, key: str) -> tuple[RecordDict, RecordDict] | None:
        """The reply's content and the member's state after it, or None."""
        try:
            data = (self._folder / key).read_bytes()
            length = int.from_bytes(data[:_LENGTH], "big")
            parts = data[_LENGTH : _LENGTH + length], data[_LENGTH + length :]
            reply, state = (
                recorddict_from_proto(ProtoRecordDict.FromString(part)) for part in parts
            )
        except (FileNotFoundError, DecodeError):  # a crash of the machine may leave a broken file
            return None
        return reply, state

    def store(self, key: str, reply: RecordDict, state: RecordDict) -> None:
        """Keep a reply while there is room; a reader sees all of it or nothing."""
        first, second = (
            recorddict_to_proto(part).SerializeToString(deterministic=True)
            for part in (reply, state)
        )
        data = len(first).to_bytes(_LENGTH, "big") + first + second
        if len(data) > self._left:
            return
        self._left -= len(data)
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f"{key}.{os.getpid()}"
        unfinished.write_bytes(data)
        unfinished.replace(self._folder / key)
