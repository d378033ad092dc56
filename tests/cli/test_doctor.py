"""`verax doctor` says what is there and which command brings the rest."""

import json
import os
import subprocess
import sys
from importlib.metadata import version

DOCTOR = """
import sys

sys.argv = ["verax", "doctor", "--json"]
{}
from verax.cli.main import main

main()
"""


def doctor(before="pass", **environment):
    done = subprocess.run(
        [sys.executable, "-c", DOCTOR.format(before)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    return done.returncode, {row["name"]: row for row in json.loads(done.stdout)}


def test_what_is_there_is_named_with_its_version():
    code, findings = doctor()
    assert code == 0
    assert findings["extra ledger"]["version"].startswith(f"sqlalchemy {version('sqlalchemy')}")
    assert version("jax") in findings["JAX"]["version"]
    assert findings["JAX"]["remedy"] == ""


def test_what_is_missing_is_named_with_the_command_that_brings_it():
    code, findings = doctor(PATH="")
    assert code == 0  # an audit needs no browser
    assert findings["chromium"]["version"] is None
    assert "apt-get install chromium" in findings["chromium"]["remedy"]


def test_without_jax_no_audit_is_possible_and_the_exit_code_says_so():
    code, findings = doctor("sys.modules['jax'] = None")
    assert code == 1
    assert findings["JAX"]["remedy"].startswith("pip install")
