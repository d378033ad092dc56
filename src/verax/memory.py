"""How much memory this machine has free, and amounts of memory from texts such as 2G."""

from __future__ import annotations

from pathlib import Path


def free_memory() -> int:
    """Bytes that this machine has free."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        known = dict(line.split(":", 1) for line in lines)
        return int(known["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 4 * 2**30


def memory_of(text: str) -> int:
    """Bytes from a text such as 2G or 500M."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    digits_, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in units else (text, "")
    try:
        value = float(digits_) * units.get(unit, 1)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"memory is {text!r}, must be a number of bytes > 0 such as 2G or 500M")
    return int(value)
