"""The example app for real: on Ray, and on a SuperLink with three SuperNodes, TLS and keys.

One of each runs in `make test`; what takes longer is marked slow.
"""

import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from verax.mechanism import Terms
from verax.verifier import verify

from .engines import APP, Federation, alive

# One round with partition 0 sending three times its update; both engines must book these norms.
NORMS = {"client-0": 0.0576844, "client-1": 0.00625061, "client-2": 0.00463305}
ONE = {"num_server_rounds": 1, "evaluate": "false", "misreport_scale": 3.0}


def payments(norms):
    return {
        name: own - sum(other for them, other in norms.items() if them != name) / 2
        for name, own in norms.items()
    }


def test_simulation_on_ray(tmp_path):
    """Node ids are random; the clients say which members they are."""
    listed = replace(Terms.load(APP / "terms.toml"), members=tuple(NORMS))
    (tmp_path / "terms.toml").write_text(listed.to_toml())
    with Federation(tmp_path / "fed", "--simulation") as federation:
        said = federation.run(**ONE, terms=tmp_path / "terms.toml")
        assert "Verax: round 1 is in the book" in said
        assert "leave their debts behind" in said
        assert "sorted order" not in said
        labels, (content,) = federation.contents()
        federation.verified()
        pid = federation.pid("superlink")
    for column, wanted in (("statistics", NORMS), ("payments", payments(NORMS))):
        booked = dict(zip([labels[n] for n in content["accounts"]], content[column], strict=True))
        assert booked == pytest.approx(wanted, rel=1e-5)
    assert not alive(pid)


def test_deployment_with_tls_and_authentication(tmp_path):
    with Federation(tmp_path / "fed") as federation:
        said = federation.run(**ONE, record_updates=tmp_path / "norms", run_name="spring")
        assert "debts" not in said, "keys are proven, so there is nothing to warn of"
        labels, (content,) = federation.contents()
        federation.verified()
        with federation.book() as book:
            members = {a.label: a.member for a in book.members("digits")}
        for i in range(3):
            public = federation.folder / f"node{i}.pub"
            if shutil.which("ssh-keygen"):
                listed = subprocess.run(
                    ["ssh-keygen", "-l", "-f", public], capture_output=True, text=True, check=True
                )
                assert members[f"client-{i}"] == listed.stdout.split()[1]
            own = verify(
                federation.folder / "book.db",
                mine=tmp_path / "norms" / f"{i}.jsonl",
                member=f"client-{i}",
            )
            assert own.ok, own.findings
    booked = dict(zip([labels[n] for n in content["accounts"]], content["payments"], strict=True))
    assert booked == pytest.approx(payments(NORMS), rel=1e-5)


_NEW_NETWORK = 0x40000000  # CLONE_NEWNET

_ALONE = f"""
import ctypes, fcntl, os, socket, struct, sys
if ctypes.CDLL(None, use_errno=True).unshare({_NEW_NETWORK}):
    sys.exit(77)
with socket.socket() as s:  # bring the loopback interface up
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14s", b"lo", 0x41, b""))
assert [name for _, name in socket.if_nameindex()] == ["lo"]
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.slow
def test_no_call_leaves_the_machine(tmp_path):
    """Where there is nothing but a loopback interface, everything runs all the same."""
    tried = subprocess.run(
        [sys.executable, "-c", _ALONE, sys.executable, "-c", "pass"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip(f"no network namespace of its own here: {tried.stderr.strip() or 'refused'}")
    code = f"""
import sys
sys.path.insert(0, {str(APP.parents[1])!r})
from tests.flower.engines import Federation
with Federation({str(tmp_path / "fed")!r}, "--simulation") as federation:
    said = federation.run(num_server_rounds=1, evaluate="false")
    assert "Verax: round 1 is in the book" in said, said
with Federation({str(tmp_path / "real")!r}) as federation:
    said = federation.run(num_server_rounds=1, evaluate="false")
    assert "Verax: round 1 is in the book" in said, said
"""
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
