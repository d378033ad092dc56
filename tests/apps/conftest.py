"""The app that most tests audit, loaded once."""

from pathlib import Path

import pytest

from verax.apps.app import load_app

#: A few misreports of one member on a few seeds: enough to see every part of an audit.
FEW = {
    "setting_seeds": 1,
    "choosing_seeds": 1,
    "judging_seeds": 2,
    "scales": (0.5, 1.0, 3.0),
    "phases": (),
    "surges": (5.0,),
    "surge_rounds": (1,),
    "block_scales": (),
    "absences": (),
    "noises": (),
    "momenta": (),
    "pushes": (),
    "tilts": (),
    "search": "off",
    "deviating": (0,),
}

CLINICS = Path(__file__).parent / "clinics"


@pytest.fixture(scope="session")
def clinics():
    return load_app(CLINICS)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """The app writes its model into the working directory."""
    monkeypatch.chdir(tmp_path)
