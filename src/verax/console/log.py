"""The access log: one JSON object a line for every access and every refusal; it only grows.

Paths are logged without their query, and JSON escapes every control character, so that nothing in a
request can add a line or leave a secret.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

_MOST = 300  # characters of a path that are kept


class AccessLog:
    """Appends to a file that only its owner may read.

    Args:
        path: the file.
        clock: returns the current time; for tests.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] | None = None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(path, flags, 0o600)
        self._clock = clock or (lambda: datetime.now(UTC))
        self._lock = threading.Lock()

    def write(
        self, *, who: str, address: str, method: str, path: str, status: int, note: str = ""
    ) -> None:
        """Add a line."""
        row = {
            "time": self._clock().astimezone(UTC).isoformat(timespec="milliseconds"),
            "who": who,
            "address": address,
            "method": method[:20],
            "path": path[:_MOST],
            "status": status,
        }
        line = json.dumps(row | ({"note": note} if note else {})) + "\n"
        with self._lock:
            os.write(self._file, line.encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
