"""Compiled programs are kept between processes: compiling takes longer than a small audit."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import jax

from verax.files import cache_folder


def remember_compiled() -> None:
    """Keep what this process compiles, and use what other processes on such machines compiled.

    Numbers do not change: everything that goes into compiling a program is part of its key.
    """
    try:
        features = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0]
    except OSError:
        features = platform.processor()
    machine = hashlib.sha256(f"{platform.machine()} {features} {jax.__version__}".encode())
    folder = cache_folder() / f"compiled-{machine.hexdigest()[:12]}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
