"""Spot checks on a real SuperLink: TLS, authenticated nodes, signed statements, kept rounds."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.command import verax
from tests.flower.engines import APP
from tests.flower.engines import Federation as Processes
from tests.flower.test_member_path import fingerprint
from verax.apps.app import load_app
from verax.ledger import Book
from verax.ledger.evidence import evidence_key
from verax.ledger.notes import OPERATOR, new_key, public_key
from verax.mechanism import EvidenceTerms, SpotChecks, Terms
from verax.spot.check import MemberFiles
from verax.spot.commitment import commit
from verax.verifier import verify

from . import by_hand
from .federation import APPS, AUDITOR, FIRST_IS_HONEST, terms_of

LIARS = Path(__file__).parent / "liars"
NODE = "partition-id={} num-partitions=3"


def configuration(folder, **config):
    """What the run is started with, as `federation.py` writes it for `flwr run`."""
    pairs = [f"{name.replace('_', '-')}={value!r}" for name, value in config.items()]
    return " ".join([f'book="{folder / "book.db"}"', *pairs])


@pytest.mark.slow
def test_members_of_a_real_federation_are_checked(tmp_path):
    """Member 0 sends 1.05 times its update; both rounds are drawn."""
    folder = tmp_path / "fed"
    folder.mkdir()
    auditor = new_key(folder / "auditor.pem")
    keys = [new_key(folder / f"member{i}.pem") for i in range(3)]
    spot = SpotChecks(str(public_key(auditor, "auditor", OPERATOR)), 10.0, 100, 1e-6)
    terms = replace(Terms.load(APP / "terms.toml"), evidence=EvidenceTerms("required"), spot=spot)
    (folder / "terms.toml").write_text(terms.to_toml())
    config = {
        "num_server_rounds": 2,
        "terms": str(folder / "terms.toml"),
        "run_name": "spring",
        "keep_rounds": str(folder / "kept"),
        "misreport_scale": 1.05,
    }
    app = load_app(APP, configuration(folder, **config))
    made = []
    for i in range(3):
        node = {"partition-id": i, "num-partitions": 3}
        made.append(commit(app, "flower_digits.client_app:samples", node))
        (folder / f"member{i}.json").write_text(made[i].to_json())
    with Processes(folder) as federation:
        with Book.create(folder / "book.db") as book:
            book.create_federation("digits", terms)
            for i, key in enumerate(keys):
                own = {"data": made[i].data, "app": made[i].app, "key": evidence_key(key)}
                book.join("digits", fingerprint(folder / f"node{i}.pub"), f"client-{i}", **own)
        said = federation.run(**config)
        assert "rejected" not in said
    verax("ledger close book.db --run spring --beacon dice", cwd=folder)
    drawn = verax(f"ledger draw book.db --run spring --value {'42' * 32} --json", cwd=folder)
    assert all(set(rounds) == {1, 2} for rounds in json.loads(drawn.stdout)["drawn"].values())
    for i in range(3):
        words = (
            f"spot-check --book book.db --run spring --member client-{i} --app {APP} --kept kept"
        )
        words += f" --data flower_digits.client_app:samples --key auditor.pem --out {i}.json --json"
        own = ["--node-config", NODE.format(i), "--run-config", configuration(folder, **config)]
        done = verax([*words.split(), *own], cwd=folder)
        report = json.loads(done.stdout)
        assert report["outcome"] == "checked", report
        assert done.returncode == (i == 0), report
        for _, distance, norm in report["found"]:
            share = float(distance) / float(norm)
            assert share == pytest.approx(0.05**2, rel=1e-2) if i == 0 else share < 1e-12
        assert verax(f"ledger fine book.db {i}.json", cwd=folder).returncode == 0
    found = verify(folder / "book.db")
    assert found.ok, found.findings


@pytest.mark.slow
@pytest.mark.parametrize(
    "lies", [("scale 1.05", "another seed", ""), ("own momentum", "a replayed update", "")]
)
@pytest.mark.parametrize("clinics", ["clinics", "torch_clinics"])
def test_liars_of_a_real_federation_pay_what_is_predicted_and_the_honest_nothing(
    tmp_path, monkeypatch, clinics, lies
):
    """Two members lie; all rounds are drawn. Commands run as processes, without the lies."""
    if clinics == "torch_clinics":
        pytest.importorskip("torch")
    monkeypatch.setenv("CLINICS", clinics)
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (root, APPS / clinics))))
    folder, data = tmp_path / "fed", "liars.client_app:samples"
    folder.mkdir()
    keys = [new_key(folder / f"member{i}.pem") for i in range(3)]
    terms = terms_of(fine=1e4, tolerance=1e-5)  # so high that no fine is lost in rounding
    (folder / "terms.toml").write_text(terms.to_toml())
    key = AUDITOR.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "auditor.pem").write_bytes(key)
    kept = str(folder / "kept")
    app = ["--app", LIARS, "--data", data]
    app += ["--run-config", configuration(folder, keep_rounds=kept)]
    for i in range(3):
        words = ["commit", *app, "--node-config", NODE.format(i), "--out", f"member{i}.json"]
        assert command([*words, "--terms", "terms.toml"], folder).returncode == 0
    with Book.create(folder / "book.db") as book:
        book.create_federation("federation", terms)
    with monkeypatch.context() as lying:
        lying.setenv("LIES", json.dumps(lies))
        with Processes(folder, app=LIARS) as federation:
            ids = [fingerprint(folder / f"node{i}.pub") for i in range(3)]
            with Book.open(folder / "book.db") as book:
                for i, key in enumerate(keys):
                    made = json.loads((folder / f"member{i}.json").read_text())
                    own = {"data": made["data"], "app": made["app"], "key": evidence_key(key)}
                    book.join("federation", ids[i], f"client-{i}", **own)
            federation.run(keep_rounds=kept)
    with Book.open(folder / "book.db") as book:
        assert len(book.rounds("federation")) == 2
        book.close_run("federation", "spring", "a die")
        book.draw("federation", "spring", "7" * 64)
        honest = load_app(APPS / clinics, "lr=0.05 batch=20")  # the training behind the mods
        for i, lie in enumerate(lies):
            words = ["spot-check", "--book", "book.db", "--run", "spring", *app, "--kept", "kept"]
            words += ["--member", f"client-{i}", "--key", "auditor.pem", "--out", f"{i}.json"]
            done = command([*words, "--node-config", NODE.format(i)], folder)
            assert done.returncode == bool(lie), done.stdout + done.stderr
            report = json.loads((folder / f"{i}.json").read_text())
            assert report["outcome"] == "checked", report
            node = {"partition-id": i, "num-partitions": 3}
            files = MemberFiles(honest, data, folder / "kept", node)
            plain = by_hand.distances(book, files, ids[i], 2)
            for t, distance, norm in report["found"]:
                assert float(distance) == pytest.approx(plain[t][0], rel=1e-5)
                lied = bool(lie) and (t > 1 or lie not in FIRST_IS_HONEST)
                assert (float(distance) > 1e-10 * float(norm)) == lied
            fine = command(["ledger", "fine", "book.db", f"{i}.json", "--json"], folder)
            amounts = json.loads(fine.stdout)["amounts"]
            expected = 1e6 * by_hand.fine(book, plain, i + 1)
            assert amounts[ids[i]] == pytest.approx(expected, rel=1e-5, abs=1)
            assert (amounts[ids[i]] > 0) == bool(lie)
            if lie == "scale 1.05":
                for _, distance, norm in report["found"]:
                    share = float(distance) / float(norm)
                    assert share == pytest.approx(0.05**2, rel=1e-3)
    found = verify(folder / "book.db")
    assert found.ok, found.findings


def command(words, folder):
    """`verax WORDS` as a process of its own."""
    program = Path(sys.executable).with_name("verax")
    return subprocess.run(
        [program, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False
    )
