"""Do the best policies that an audit finds lose money under the spot checks that it proposes?

`python benchmarks/spot_checks.py [--replicas 10]` audits the NumPy app of the tests, searches for
each member's best policy at the proposed price, and then runs a federation in one process for each
policy: signed statements, prescribed seeds, kept rounds, the misreport mod. Every round of the
deviating member is recomputed, so that its fine is known for every draw. Prints a table in Markdown
and what a check costs.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from verax.apps.api import audit_app
from verax.apps.app import load_app
from verax.flower import PaidStrategy, misreport, prescribed, signed
from verax.flower.local import LocalGrid
from verax.ledger import Book
from verax.ledger.evidence import evidence_key
from verax.ledger.notes import OPERATOR, new_key, public_key
from verax.mechanism import EvidenceTerms, SpotChecks
from verax.spot.check import MemberFiles, check_member
from verax.spot.commitment import commit
from verax.spot.recompute import first_request

APP = Path(__file__).parents[1] / "tests" / "apps" / "clinics"
MEMBERS, DRAWS = 3, 2000
AUDITOR = Ed25519PrivateKey.generate()


def with_mods(app):
    """The app behind the mods that an operator asks its members to add."""
    client = ClientApp(mods=[signed(), prescribed(), misreport()])
    client.train()(lambda message, context: app.client(message, context))
    client.evaluate()(lambda message, context: app.client(message, context))
    return client


class Run:
    """One run of the federation under the terms, with one member's policy."""

    def __init__(self, app, terms, folder, deviator=None, policy=""):
        folder.mkdir(parents=True)
        config = app.run_config | {"run-name": "spring"}
        if deviator is not None:
            config |= {"misreport": policy, "misreport-partition": deviator}
        self.folder, self.app, self.deviator = folder, replace(app, run_config=config), deviator
        self.book = Book.create(folder / "book.db")
        self.book.create_federation("federation", terms)
        for i in range(MEMBERS):
            files = self.files(i)
            made = commit(files.app, files.data, files.node_config)
            (folder / f"{i}.json").write_text(made.to_json())
            key = evidence_key(new_key(folder / f"{i}.pem"))
            own = {"key": key, "data": made.data, "app": made.app}
            self.book.join("federation", f"client-{i}", **own)
        grid = LocalGrid(with_mods(app), MEMBERS, config)
        for i, context in enumerate(grid.contexts.values()):
            context.node_config |= {
                "verax-key": str(folder / f"{i}.pem"),
                "commitment": str(folder / f"{i}.json"),
                "keep-rounds": str(folder / "kept"),
            }
        paid = PaidStrategy(FedAvg(fraction_evaluate=0.0), ledger=self.book, run="spring")
        start = first_request(app, MEMBERS).content["arrays"]
        begin = time.perf_counter()
        self.model = paid.start(grid, start, int(app.run_config["num-server-rounds"])).arrays
        self.seconds = time.perf_counter() - begin
        self.grid = grid

    def files(self, i):
        node = {"partition-id": i, "num-partitions": MEMBERS}
        return MemberFiles(self.app, "clinics.client_app:samples", self.folder / "kept", node)

    def utilities(self):
        """Rewards less payments of all members, before fines."""
        losses = []
        for node in self.grid.contexts:
            content = RecordDict({"arrays": self.model})
            message = Message(content, dst_node_id=node, message_type="evaluate")
            reply = self.grid.call(message, 0)
            losses.append(reply.content["metrics"]["eval_loss"])
        paid = self.book.balances("federation")
        scale = 10.0 ** self.book.terms("federation").scale
        return -np.array(losses) - np.array([paid[f"client-{i}"] for i in range(MEMBERS)]) / scale

    def levies(self):
        """The deviator's fine for many draws, from all of its rounds recomputed once."""
        self.book.close_run("federation", "spring", "many values")
        rounds = self.book.state("federation").checked["spring"]
        spot, number = rounds.terms, self.deviator + 1
        every = {one.round for one in rounds.drawable[number]}
        # A draw in which every round occurs, for the recomputation alone.
        value = next(
            value
            for value in map(beacon_value, range(10**6))
            if set(rounds.expected_draw(value)[number]) == every
        )
        self.book.draw("federation", "spring", value)
        begin = time.perf_counter()
        name = f"client-{self.deviator}"
        files = self.files(self.deviator)
        report = check_member(self.book, "federation", "spring", name, files, AUDITOR)
        self.check_seconds = (time.perf_counter() - begin) / len(report.found)
        assert report.outcome == "checked", report
        return rounds, number, spot, {t: (float(d), float(n)) for t, d, n in report.found}


def beacon_value(number):
    """What a beacon might say: 64 hexadecimal digits."""
    return sha256(str(number).encode()).hexdigest()


def fines(run, wanted):
    """The fines that `wanted` draws a run would bring, over many values of the beacon."""
    rounds, number, spot, found = run.levies()
    own = {one.round: one for one in rounds.drawable[number]}
    total = sum(one.price for one in own.values())
    rounds.terms = replace(spot, rounds=wanted)
    sums = []
    for value in range(DRAWS):
        drawn = rounds.expected_draw(beacon_value(value))[number]
        parts = [own[t].weight ** 2 * found[t][0] for t in drawn]
        sums.append(spot.fine * total / wanted * sum(parts))
    return np.array(sums)


def mean_and_error(gains, honest):
    """The mean gain over replicas, and its standard error with that of the honest runs."""
    squares = [np.var(values, ddof=1) / len(values) for values in (gains, honest)]
    return np.mean(gains), np.sqrt(sum(squares))


def main() -> None:
    """Audit, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=10)
    replicas = parser.parse_args().replicas
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        audit = audit_app(APP, MEMBERS, out=folder / "audit", search="quick")
        print(audit)
        spot = audit.summary["spot"]
        fine, wanted = spot["chosen"]["fine"], spot["rounds"]
        key = str(public_key(AUDITOR, "auditor", OPERATOR))
        members = tuple(f"client-{i}" for i in range(MEMBERS))
        terms = replace(
            audit.terms,
            members=members,
            evidence=EvidenceTerms("required"),
            spot=SpotChecks(key, fine, 100, 1e-6),  # so many that all rounds are recomputed
        )
        app = load_app(APP)
        honest = [Run(app, terms, folder / f"honest-{r}") for r in range(replicas)]
        utilities = np.array([run.utilities() for run in honest])
        base = utilities.mean(axis=0)
        print(f"\nproposed: fine {fine:g}, {wanted} rounds of each member\n")
        print("| member | policy | price alone | expected fine | price and spot checks | draws |")
        print("|---|---|---|---|---|---|")
        for one in audit.summary["search"]:
            if one["price"] != "proposed":
                continue
            i, text = one["client"], json.dumps(one["policy"])
            gains, levies = [], []
            for r in range(replicas):
                run = Run(app, terms, folder / f"lie-{i}-{r}", i, text)
                gains.append((run.utilities() - base)[i])
                levies.append(fines(run, wanted))
            size = abs(base[i])
            levy = np.mean(levies)
            mean, spread = mean_and_error(gains, utilities[:, i])
            left, left_spread = mean_and_error(
                np.array(gains) - np.mean(levies, axis=1), utilities[:, i]
            )
            losing = np.mean(np.array(gains)[:, None] < np.array(levies))
            print(
                f"| clinic {i} | {one['words']} | {mean / size:+.2%} ± {spread / size:.2%} | "
                f"{levy / size:.2%} | {left / size:+.2%} ± {left_spread / size:.2%} | "
                f"loses in {losing:.0%} |"
            )
        rounds = int(app.run_config["num-server-rounds"])
        training = np.mean([run.seconds for run in honest]) / rounds / MEMBERS
        size = (honest[0].folder / "book.db").stat().st_size
        with Book.open(honest[0].folder / "book.db", read_only=True) as book:
            records = sum(len(record.data) for record in book.records("federation"))
        print(f"\na check takes {1e3 * run.check_seconds:.1f} ms a round,")
        print(f"a member's round of training with booking {1e3 * training:.1f} ms;")
        print(f"the book has {records} bytes of records, {size} in all")


if __name__ == "__main__":
    main()
