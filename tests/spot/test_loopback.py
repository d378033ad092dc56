"""Spot checks on a real SuperLink: TLS, authenticated nodes, signed statements, kept rounds."""

import json
from dataclasses import replace

import pytest

from tests.command import verax
from tests.flower.engines import APP
from tests.flower.engines import Federation as Processes
from tests.flower.test_member_path import fingerprint
from verax.apps.app import load_app
from verax.ledger import Book
from verax.ledger.evidence import evidence_key
from verax.ledger.notes import OPERATOR, new_key, public_key
from verax.mechanism import Evidence, SpotChecks, Terms
from verax.spot.commitment import commit_app, commit_data, load_samples
from verax.spot.recompute import context_of
from verax.verifier import verify


@pytest.mark.slow
def test_members_of_a_real_federation_are_checked(tmp_path):
    """Member 0 sends 1.05 times its update; both rounds are drawn."""
    folder = tmp_path / "fed"
    folder.mkdir()
    auditor = new_key(folder / "auditor.pem")
    keys = [new_key(folder / f"member{i}.pem") for i in range(3)]
    spot = SpotChecks(str(public_key(auditor, "auditor", OPERATOR)), 10.0, 100, 1e-6)
    terms = replace(Terms.load(APP / "terms.toml"), evidence=Evidence("required"), spot=spot)
    (folder / "terms.toml").write_text(terms.to_toml())
    app = load_app(APP)
    with Processes(folder) as federation:
        with Book.create(folder / "book.db") as book:
            book.create_federation("digits", terms)
            for i, key in enumerate(keys):
                context = context_of(app, {"partition-id": i, "num-partitions": 3})
                samples = load_samples("flower_digits.client_app:samples", app, context)
                own = {"data": commit_data(samples), "app": commit_app(app)}
                id_ = fingerprint(folder / f"node{i}.pub")
                book.join("digits", id_, f"client-{i}", key=evidence_key(key), **own)
        said = federation.run(
            num_server_rounds=2,
            terms=folder / "terms.toml",
            run_name="spring",
            keep_rounds=folder / "kept",
            misreport_scale=1.05,
        )
        assert "rejected" not in said
    verax("ledger close book.db --run spring --beacon dice", cwd=folder)
    drawn = verax("ledger draw book.db --run spring --value 42 --json", cwd=folder)
    assert all(set(rounds) == {1, 2} for rounds in json.loads(drawn.stdout)["drawn"].values())
    for i in range(3):
        words = (
            f"spot-check --book book.db --run spring --member client-{i} --app {APP} --kept kept"
        )
        words += f" --data flower_digits.client_app:samples --key auditor.pem --out {i}.json --json"
        node = ["--node-config", f"partition-id={i} num-partitions=3"]
        done = verax([*words.split(), *node], cwd=folder)
        report = json.loads(done.stdout)
        assert report["outcome"] == "checked", report
        assert done.returncode == (i == 0), report
        for _, distance, norm in report["found"]:
            share = float(distance) / float(norm)
            assert share == pytest.approx(0.05**2, rel=1e-2) if i == 0 else share < 1e-12
        assert verax(f"ledger fine book.db {i}.json", cwd=folder).returncode == 0
    found = verify(folder / "book.db")
    assert found.ok, found.findings
