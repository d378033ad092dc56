"""`verax commit`, `ledger close | draw | fine`, `spot-check`, in the order of the documentation."""

import json
import shutil

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.command import verax
from tests.spot.federation import (
    APPS,
    AUDITOR,
    LIES,
    ROUNDS,
    Federation,
    numpy_example,
    terms_of,
)
from verax.ledger import Book

APP = APPS / "clinics"
MEMBER = f"--app {APP} --data clinics.client_app:samples"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation")
    made = Federation(numpy_example(), folder, lie=LIES["scale 1.05"])
    made.book.close()
    pem = AUDITOR.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "auditor.pem").write_bytes(pem)
    return folder


def check(folder, member):
    words = f"spot-check --book book.db --run spring --member client-{member} {MEMBER} --kept kept"
    words += f" --key auditor.pem --out {member}.json --json --node-config"
    return verax([*words.split(), f"partition-id={member} num-partitions=3"], cwd=folder)


def test_a_member_commits_and_the_commitment_stands_in_the_book(federation, tmp_path):
    shutil.copy(federation / "book.db", tmp_path / "book.db")
    node = ["--node-config", "partition-id=0 num-partitions=3"]
    words = f"commit {MEMBER} --out c.json --json"
    done = verax([*words.split(), *node], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["relative_error"] == 0.0
    assert said["run_config"]["lr"] == 0.5
    done = verax("ledger join book.db new --commitment c.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with Book.open(tmp_path / "book.db") as book:
        account = book.members("federation")[-1]
        assert (account.data, account.app) == (said["data"], said["app"])
        assert account.data == book.members("federation")[0].data
    (tmp_path / "c.json").write_text("[]")
    done = verax("ledger join book.db other --commitment c.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "is no commitment; `verax commit --out` writes one" in done.stderr


def test_a_commitment_is_tested_against_the_tolerance_of_the_terms(tmp_path):
    """An app with an error of about 1e-5 passes if the terms allow it, and only then."""
    shutil.copytree(APP, tmp_path / "noisy")
    (tmp_path / "noisy" / "clinics").rename(tmp_path / "noisy" / "noisy_clinics")
    project = tmp_path / "noisy" / "pyproject.toml"
    project.write_text(project.read_text().replace('"clinics.', '"noisy_clinics.'))
    module = tmp_path / "noisy" / "noisy_clinics" / "client_app.py"
    text = module.read_text()
    noise = "w *= 1 + 1e-5 * np.random.default_rng().standard_normal(w.shape)\n    metrics ="
    assert text.count("    metrics = MetricRecord({") == 1
    module.write_text(text.replace("metrics = MetricRecord({", f"{noise} MetricRecord({{"))
    words = "commit --app noisy --data noisy_clinics.client_app:samples --out c.json"
    words = [*words.split(), "--node-config", "partition-id=0 num-partitions=3"]
    for tolerance, code in ((0.0, 1), (1e-3, 0)):
        (tmp_path / "terms.toml").write_text(terms_of(tolerance=tolerance).to_toml())
        done = verax([*words, "--terms", "terms.toml"], cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        assert ("NOT REPRODUCIBLE" in done.stdout) == bool(code)
    done = verax(words, cwd=tmp_path)
    assert "the terms need a spot.tolerance of more than" in done.stdout
    verax("ledger create book.db --federation f --terms terms.toml", cwd=tmp_path)
    assert verax([*words, "--book", "book.db"], cwd=tmp_path).returncode == 0
    verax("ledger create other.db --federation f --price 1", cwd=tmp_path)
    done = verax([*words, "--book", "other.db"], cwd=tmp_path)
    assert "have no [spot]" in done.stderr


def test_a_run_is_closed_drawn_checked_and_fined(federation):
    done = verax("ledger close book.db --run spring --beacon dice", cwd=federation)
    assert done.returncode == 0, done.stderr
    words = f"ledger draw book.db --run spring --value {'36' * 32} --json"
    done = verax(words, cwd=federation)
    assert done.returncode == 0, done.stderr
    drawn = json.loads(done.stdout)["drawn"]
    assert {len(rounds) for rounds in drawn.values()} == {200}

    lying, honest = check(federation, 0), check(federation, 1)
    assert (lying.returncode, honest.returncode) == (1, 0), lying.stderr + honest.stderr
    assert json.loads(lying.stdout)["fine"] > 0
    assert set(json.loads(lying.stdout)["seconds"]) == {"1", "2", "3", "4"}
    words = "spot-check --book book.db --run spring --member client-2 --key auditor.pem"
    refused = verax([*words.split(), "--out", "2.json", "--refused", "it is ill"], cwd=federation)
    assert refused.returncode == 1
    assert "refused: it is ill" in refused.stdout
    for member, fined in ((0, True), (1, False), (2, True)):
        done = verax(f"ledger fine book.db {member}.json --json", cwd=federation)
        assert done.returncode == 0, done.stderr
        assert (json.loads(done.stdout)["amounts"][f"node {100 + member}"] > 0) == fined
    done = verax("ledger fine book.db 0.json", cwd=federation)
    assert "the book had it already" in done.stdout
    done = verax("ledger verify book.db", cwd=federation)
    assert done.returncode == 0
    assert "reports refused on 'client-2': it is ill" in done.stdout
    done = verax("ledger statement book.db client-0", cwd=federation)
    assert "spot-check" in done.stdout


def test_rounds_that_were_not_drawn_are_removed_and_the_others_can_be_checked(tmp_path):
    terms = terms_of(draws=1)
    made = Federation(numpy_example(), tmp_path, terms)
    words = "keep-drawn --book book.db --run spring --member client-0 --kept kept --json"
    done = verax(words, cwd=tmp_path)
    assert "no rounds of run 'spring' are drawn" in done.stderr
    made.draw()
    (round_,) = made.checked.drawn[1]
    done = verax(words, cwd=tmp_path)
    assert json.loads(done.stdout) == {"removed": ROUNDS - 1, "drawn": [round_]}
    left = sorted(path.name for path in (tmp_path / "kept").glob("*/spring/*"))
    others = [f"round-{t:09d}.kept" for t in range(1, ROUNDS + 1)] * 2
    assert left == sorted([f"round-{round_:09d}.kept", *others])
    assert made.check(0).outcome == "checked"


def test_wrong_use_says_what_to_do(federation, tmp_path):
    done = verax(
        "spot-check --book book.db --run spring --member client-0 --key auditor.pem --out x.json",
        cwd=federation,
    )
    assert (done.returncode, "needs --app, --data and --kept" in done.stderr) == (2, True)
    (tmp_path / "x.json").write_text('{"run": 3}')
    done = verax(["ledger", "fine", federation / "book.db", tmp_path / "x.json"])
    assert (done.returncode, "is no report" in done.stderr) == (2, True)
