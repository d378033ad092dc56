"""One virtual environment per peer, built on first use under `.bench/`.

The peers contradict each other's requirements and ours, so none of them is a dependency of this
project. `environment("pfl")` returns the Python that has pfl, or raises `NotAvailable` with a
reason fit for a sentence: "pfl: not measured, because …".

A stamp holds the requirements that an environment was built from: change them and it is rebuilt;
break off a build and there is no stamp.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benchmarks" / "peers"

_TORCH = ("torch==2.13.0", "numpy==2.4.6")

# Each inner tuple is one `pip install`, in this order: torch comes first, so that a peer which
# asks for any torch finds this one.
REQUIREMENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "plain_torch": (_TORCH,),
    "pfl": (_TORCH, ("pfl[pytorch]==0.6.0",)),
    "flower": (_TORCH, ("flwr[simulation]==1.41.0", "psutil==7.2.2")),
    "fedjax": (
        (
            "fedjax==0.0.17",
            "jax==0.4.30",
            "jaxlib==0.4.30",
            "numpy==1.26.4",
            "dm-haiku==0.0.13",
            "optax==0.2.3",
        ),
    ),
}

SCRIPTS = {
    "plain_torch": PEERS / "plain_torch.py",
    "pfl": PEERS / "pfl_peer.py",
    "flower": PEERS / "flower_peer.py",
    "fedjax": PEERS / "fedjax_peer.py",
}


class NotAvailable(RuntimeError):  # noqa: N818 - it is a finding about a peer, not an error of ours
    """The peer cannot be installed here; the message says why."""


def environment(peer: str) -> Path:
    """Build the peer's environment if need be and return its Python."""
    if peer not in REQUIREMENTS:
        raise NotAvailable(f"there is no peer {peer!r}; there are {', '.join(REQUIREMENTS)}")
    home = ROOT / ".bench" / peer
    python, stamp = home / "bin" / "python", home / "stamp"
    recipe = "\n".join(" ".join(group) for group in REQUIREMENTS[peer])
    if stamp.exists() and stamp.read_text() == recipe:
        return python
    stamp.unlink(missing_ok=True)
    _run("making a virtual environment", sys.executable, "-m", "venv", "--clear", str(home))
    for group in REQUIREMENTS[peer]:
        # pip, never uv: that is how the pinned torch comes as its CPU build here.
        pip = (str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check")
        _run(f"pip install {' '.join(group)}", *pip, *group)
    stamp.write_text(recipe)
    return python


def _run(what: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise NotAvailable(f"{what} failed: {errors[-1]}")


if __name__ == "__main__":
    for name in sys.argv[1:] or REQUIREMENTS:
        try:
            print(f"{name}: {environment(name).relative_to(ROOT)}")
        except NotAvailable as reason:
            print(f"{name}: not measured, because {reason}")
