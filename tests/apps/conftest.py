"""The app that most tests audit, loaded once."""

from pathlib import Path

import pytest

from verax.apps.app import load_app

CLINICS = Path(__file__).parent / "clinics"


@pytest.fixture(scope="session")
def clinics():
    return load_app(CLINICS)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """The app writes its model into the working directory."""
    monkeypatch.chdir(tmp_path)
