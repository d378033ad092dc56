"""`verax audit --from-ledger` on books of federations in this process."""

import json

import numpy as np
import pytest

from verax.audit.judge.live import CANNOT_TELL, judge_live

from ..command import verax
from .grid import Honest


def audit(*words):
    done = verax(["audit", "--from-ledger", *words])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_audit_from_the_ledger(jumping_run):
    ran, path = jumping_run
    said = json.loads(audit(path, "--json"))
    assert said["cannot_tell"] == list(CANNOT_TELL)
    assert (said["rounds"], said["charged"]) == (9, 9)
    members = {member["name"]: member for member in said["members"]}
    norms = np.array(
        [[ran.column("statistics", t)[f"client-{i}"] for i in range(3)] for t in range(1, 10)]
    )
    for i in range(3):
        own = members[f"client-{i}"]
        others = np.delete(norms, i, axis=1).mean(axis=1)
        assert own["margin"] == pytest.approx(float((norms[:, i] - others).sum()), rel=1e-9)
        assert own["paid"] == pytest.approx(0.5 * own["margin"], abs=1e-4)
        assert own["tax"] == pytest.approx(own["paid"] / 9, rel=1e-9)
    text = audit(path)
    assert "Norms alone cannot tell" in text
    assert "nothing is said" in " ".join(text.split())


def test_audit_from_the_ledger_beside_a_matching_audit(jumping_run, tmp_path):
    _, path = jumping_run
    folder = tmp_path / "audit"
    folder.mkdir()
    ends = [(0.4, 0.6), (0.6, None), (None, None)]
    clients = [
        {"name": f"client {i}", "windows": [{"schedule": "constant", "low": low, "high": high}]}
        for i, (low, high) in enumerate(ends)
    ]
    known = {"message": "model difference", "clients": clients}
    (folder / "audit.json").write_text(json.dumps(known))
    said = json.loads(audit(path, "--matching", folder, "--json"))
    assert [m["inside"] for m in sorted(said["members"], key=lambda m: m["name"])] == [
        True, False, False,
    ]  # fmt: skip
    (folder / "audit.json").write_text(json.dumps({**known, "clients": clients[:2]}))
    refused = verax(["audit", "--from-ledger", path, "--matching", folder])
    assert refused.returncode == 2
    assert "matching task" in refused.stderr
    (folder / "audit.json").write_text(json.dumps({**known, "message": "gradient"}))
    refused = verax(["audit", "--from-ledger", path, "--matching", folder])
    assert "the audit is of gradients, and the book holds" in refused.stderr


def test_a_drift_is_seen_and_its_size_is_right():
    rng = np.random.default_rng(0)
    rounds = []
    for t in range(60):
        level = np.exp(-0.03 * t) * np.array([1.0, 2.0, 3.0]) * np.exp(0.05 * rng.normal(size=3))
        level[2] *= 1.02**t
        rounds.append(
            {
                "accounts": [1, 2, 3], "statuses": {}, "gram": None, "price": [0.1],
                "statistics": level.tolist(), "amounts": [0, 0, 0],
            }
        )  # fmt: skip
    live = judge_live("f", "r", rounds, {1: "a", 2: "b", 3: "c"}, "EUR", 2)
    low, high = live.members[2].drift_interval
    assert low < np.log(1.02) < high
    assert low > 0
    assert "drifts" in " ".join(live.sentences())


def test_honest_rounds_only(run, tmp_path):
    run(Honest(), rounds=2)
    assert "2 rounds, 2 charged" in " ".join(audit(tmp_path / "book.db").split())
