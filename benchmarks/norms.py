"""Squared norms beside the speed at which `np.add.reduce` reads the same numbers.

Both run alternately, and the best of several runs counts: the ratio is meaningful even on a noisy
machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from verax.mechanism import squared_norm


def fastest(call: Callable[[], Any], repeats: int = 9) -> float:
    times: list[float] = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    print("squared norms, GB/s             add.reduce  squared_norm  ratio")
    for dtype in (np.float32, np.float64, ml_dtypes.bfloat16):
        for size in (10**6, 10**7, 5 * 10**7):
            data = np.random.default_rng(0).standard_normal(size).astype(dtype)
            limit = data.nbytes / fastest(lambda d=data: np.add.reduce(d)) / 1e9
            ours = data.nbytes / fastest(lambda d=data: squared_norm(d)) / 1e9
            name = f"{np.dtype(dtype).name}, {size:.0e} numbers"
            print(f"{name:30} {limit:11.1f} {ours:13.1f} {ours / limit:6.2f}")


if __name__ == "__main__":
    main()
