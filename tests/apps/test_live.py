"""A real rehearsal: on a SuperLink with TLS and three SuperNodes, each with a key."""

import shutil

import numpy as np
import pytest

from tests.apps.conftest import CLINICS, FEW
from tests.flower.engines import Federation
from verax.apps.api import audit_app
from verax.audit.run.record import load_runs

PLAN = {**FEW, "scales": (1.0, 3.0), "surges": ()}


@pytest.mark.slow
def test_a_rehearsal_on_supernodes_is_the_audit_in_process(tmp_path):
    """With the mod all runs are paired, so that the two records are equal up to rounding."""
    app, out = tmp_path / "app", tmp_path / "rehearsal"
    shutil.copytree(CLINICS, app, ignore=shutil.ignore_patterns("__pycache__"))
    server, client = (app / "clinics" / f"{side}_app.py" for side in ("server", "client"))
    line = f"\n\napp = rehearsal(app, Plan.of(clients=3, **{PLAN!r}), out={str(out)!r})\n"
    imports = "from verax.audit import Plan\nfrom verax.flower import rehearsal\n"
    server.write_text(f"{imports}{server.read_text()}{line}")
    text = client.read_text().replace("app = ClientApp()", "app = ClientApp(mods=[paired])")
    client.write_text(f"from verax.flower import paired\n{text}")
    project = app / "pyproject.toml"
    project.write_text(project.read_text() + 'book = ""\n')
    with Federation(tmp_path / "federation", app=app) as federation:
        said = federation.run(patience=3600, num_server_rounds=2)
    assert (out / "report.html").exists(), said[-3000:]
    audit = audit_app(CLINICS, 3, out=tmp_path / "audit", run_config="num-server-rounds=2", **PLAN)
    live, local = load_runs(out), load_runs(audit.folder)
    assert [one.run for one in live] == [one.run for one in local]
    for one, other in zip(live, local, strict=True):
        np.testing.assert_allclose(one.loss, other.loss, rtol=1e-6)
        np.testing.assert_allclose(one.statistics.norms, other.statistics.norms, rtol=1e-6)
