"""Memory: what is computed by hand, and what processes really use."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from verax.audit.run.budget import check_memory, memory_for_runs, needed, run_bytes

MB, GB = 2**20, 2**30
LEAF = Path(__file__).resolve().parents[3] / "shared" / "data"


def test_by_hand():
    """3 clients of a million parameters: 15 updates and 6 models, 84 MB a run."""
    million = 10**6
    assert run_bytes(3, million) == 84 * million
    assert memory_for_runs(4 * GB, 2) == (4 * GB - 3 * 600 * MB) // 2
    assert memory_for_runs(GB, 2) == 0
    assert needed(3, million, 2) == 3 * 600 * MB + 2 * 84 * million
    assert needed(3, million, 2, width=10) == 3 * 600 * MB + 2 * 840 * million


def test_streamed_clients_need_no_more_than_a_chunk():
    cnn = 6_603_710
    assert run_bytes(1000, cnn) == run_bytes(64, cnn)
    assert run_bytes(10_000, 650) == 4 * 650 * (5 * 10_000 + 6)


def test_least_that_is_asked_for_is_enough():
    with pytest.raises(ValueError, match=r"memory is 0\.5G, .* at least (\S+)G") as refused:
        check_memory(GB // 2, 3, 10**6, 2)
    least = float(str(refused.value).split("at least ")[1].split("G")[0])
    check_memory(int(least * GB), 3, 10**6, 2)
    with pytest.raises(ValueError, match="fewer workers"):
        check_memory(int((least - 0.1) * GB), 3, 10**6, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "memory"),
    [
        ("audit --rounds 60 --out out", "1.8"),
        ("reproduce fedsgd-femnist --out out", "4.2"),
        ("reproduce fedavg-shakespeare --out out", "2.6"),
    ],
)
def test_all_processes_stay_within_it(command, memory, tmp_path):
    """Two workers and the command itself, resident memory summed, nothing compiled before."""
    if "reproduce" in command:
        if not LEAF.is_dir():
            pytest.skip(f"needs LEAF's samples in {LEAF}")
        command += f" --data {LEAF}"
    verax = Path(sys.executable).with_name("verax")
    words = [verax, *command.split(), "--memory", f"{memory}G", "--workers", "2"]
    environment = os.environ | {"VERAX_CACHE": str(tmp_path / "cache")}
    started = psutil.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    peak = 0
    while started.poll() is None:
        used = 0
        for process in (started, *started.children(recursive=True)):
            try:
                used += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        peak = max(peak, used)
        time.sleep(0.05)
    assert started.returncode == 0
    assert 0.2 * float(memory) * GB < peak < float(memory) * GB
