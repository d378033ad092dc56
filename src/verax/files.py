"""Files that are whole or not there (written beside, synced, then renamed); the cache folder.

A new name is safe from a power failure only when its folder is synced too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_with(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file; a crash or a full disk leaves what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        rename(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def rename(old: Path, new: Path) -> None:
    """Give a file another name in its folder, for good: the folder is synced."""
    old.replace(new)
    sync_folder(new.parent)


def sync_folder(folder: Path) -> None:
    """Write a folder's names to the disk, where the system can do that."""
    if os.name != "posix":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes, whole or not at all."""
    write_with(path, lambda file: file.write(content))


def write_text(path: Path, content: str) -> None:
    """Write text, whole or not at all."""
    write_bytes(path, content.encode())


def cache_folder() -> Path:
    """$VERAX_CACHE, else a folder in the user's cache; whatever is in it can be made again."""
    chosen = os.environ.get("VERAX_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "verax"
