"""A PyTorch app with BatchNorm, momentum and a shuffling DataLoader, audited as it is."""

from pathlib import Path

import numpy as np
import pytest

from tests.apps.conftest import FEW
from tests.apps.test_run import NOTHING, norms_of, run_app
from verax.apps.api import app_plan, audit_app
from verax.apps.app import load_app
from verax.apps.look import look_at
from verax.game import Scale
from verax.learning import Behaviour

pytest.importorskip("torch", reason="needs PyTorch: pip install torch==2.13.0")

APP = Path(__file__).parent / "torch_clinics"


def test_a_pytorch_app_is_reproducible_and_its_counters_cost_nothing():
    facts = look_at(app_plan(APP, 3))
    assert facts.reproducible
    assert facts.replicas_differ
    app = load_app(APP)
    honest, again, tripled = (
        run_app(app, 3, 0, NOTHING, Behaviour(Scale(3.0), who), 6) for who in ((), (), (1,))
    )
    np.testing.assert_array_equal(norms_of(honest), norms_of(again))
    ratio = norms_of(tripled)[0, 1] / norms_of(honest)[0, 1]
    np.testing.assert_allclose(ratio, 9.0, rtol=1e-4)
    # Each clinic's BatchNorm counts 6 to 12 batches a round; their squares would be 36 and more.
    assert norms_of(honest).max() < 36


@pytest.mark.slow
def test_a_pytorch_app_is_audited(tmp_path):
    audit = audit_app(APP, 3, out=tmp_path / "audit", run_config="num-server-rounds=3", **FEW)
    assert audit.summary["message"] == "model difference"
    assert audit.terms.audited is not None
    assert audit.terms.audited.members == 3
