"""Memory: what is reckoned by hand, and what processes really use."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from verax.audit import Plan
from verax.audit.room import check_memory, needed, run_bytes, share, tangents_together

MB, GB = 2**20, 2**30
LEAF = Path(__file__).resolve().parents[3] / "shared" / "data"


def test_by_hand():
    """3 clients of a million: 15 updates and 6 models, 84 MB; 8 blocks × 3 clients, thrice, 288."""
    plan, million = Plan(rounds=100), 10**6
    assert run_bytes(3, million) == 84 * million
    assert share(4 * GB, 2) == (4 * GB - 3 * 600 * MB) // 2
    assert share(GB, 2) == 0
    each = 2 * 84 * million + 288 * million
    assert needed(plan, 3, million, 2) == 3 * 600 * MB + 2 * each
    assert needed(plan, 3, million, 2, width=10) == 3 * 600 * MB + 2 * 840 * million
    assert tangents_together(plan, 3, million, each) == 1
    assert tangents_together(plan, 3, million, each + 84 * million) == 2
    assert tangents_together(plan, 3, million, 0) == 1


def test_streamed_clients_need_no_more_than_a_chunk():
    cnn = 6_603_710
    assert run_bytes(1000, cnn) == run_bytes(64, cnn)
    assert run_bytes(10_000, 650) == 4 * 650 * (5 * 10_000 + 6)


def test_least_that_is_asked_for_is_enough():
    plan = Plan(rounds=100)
    with pytest.raises(ValueError, match=r"memory is 0\.5G, .* at least (\S+)G") as refused:
        check_memory(GB // 2, plan, 3, 10**6, 2)
    least = float(str(refused.value).split("at least ")[1].split("G")[0])
    check_memory(int(least * GB), plan, 3, 10**6, 2)
    with pytest.raises(ValueError, match="fewer workers"):
        check_memory(int((least - 0.1) * GB), plan, 3, 10**6, 2)


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
