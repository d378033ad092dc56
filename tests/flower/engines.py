"""The example's federation as real processes, for the tests that need them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from verax.ledger import Book
from verax.verifier import verify

APP = Path(__file__).parents[2] / "examples" / "flower-digits"
SCRIPT = APP.parent / "federation.py"


class Federation:
    """`federation.py` in a folder; everything that it started ends with the `with` block."""

    def __init__(self, folder, *options, prefix=(), app=APP):
        self.folder, self.prefix = Path(folder), prefix
        self.options = ("--app", app, *options)

    def __enter__(self):
        self.script("up", *self.options)
        return self

    def __exit__(self, *_):
        self.script("down")

    def script(self, command, *rest, check=True, patience=300):
        done = subprocess.run(
            [*self.prefix, sys.executable, SCRIPT, command, self.folder, *rest],
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr + self.logs()
        return done.stdout + done.stderr

    def run(self, *, patience=300, **config):
        pairs = [f"{name.replace('_', '-')}={value}" for name, value in config.items()]
        return self.script("run", *pairs, patience=patience)

    def begin(self, **config):
        """The same in the background."""
        pairs = [f"{name.replace('_', '-')}={value}" for name, value in config.items()]
        with (self.folder / "run.log").open("ab") as log:
            return subprocess.Popen(
                [*self.prefix, sys.executable, SCRIPT, "run", self.folder, *pairs],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def logs(self):
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def book(self):
        return Book.open(self.folder / "book.db", read_only=True)

    def rounds(self):
        """(run, round) of all rounds in the book so far."""
        if not (self.folder / "book.db").exists():
            return []
        try:
            with self.book() as book:
                return [(run, t) for run, t, _, _ in book.rounds("digits")]
        except (ValueError, OSError):
            return []

    def verified(self):
        found = verify(self.folder / "book.db")
        assert found.ok, found.findings
        assert sum(found.balances.values()) == 0
        return found

    def contents(self):
        with self.book() as book:
            labels = {account.number: account.label for account in book.members("digits")}
            return labels, [
                r.content for r in book.records("digits") if r.content["kind"] == "round"
            ]

    def pid(self, name):
        return int((self.folder / f"{name}.pid").read_text())

    def until(self, happens, seconds=120):
        begin = time.monotonic()
        while not happens():
            assert time.monotonic() - begin < seconds, self.logs()
            time.sleep(0.2)


def descendants(pid):
    """The ids of all processes below one, with their command lines."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = (
                    int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]),
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(),
                )
            except OSError:
                continue
    found, below = {}, {pid}
    while below:
        below = {child for child, (parent, _) in parents.items() if parent in below}
        found |= {child: parents[child][1] for child in below}
    return found


def settings(folder):
    return json.loads((Path(folder) / "settings.json").read_text())


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
