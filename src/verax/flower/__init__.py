"""The payment layer on Flower: a wrapped strategy measures, charges and books every round.

Needs the extra `flower`, which includes the ledger. Submodules are imported on first use: `verax`
works without Flower, and a ClientApp whose mods do not sign loads no database.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verax.apps import rehearsal
    from verax.flower.local import run_in_process
    from verax.flower.mods import identified, misreport, record_updates
    from verax.flower.pairing import paired
    from verax.flower.prescribing import prescribed
    from verax.flower.signing import signed
    from verax.flower.strategy import PaidStrategy
    from verax.flower.trackers import MLflowTracker, TensorBoardTracker, Tracker, WandbTracker

__all__ = [
    "MLflowTracker",
    "PaidStrategy",
    "TensorBoardTracker",
    "Tracker",
    "WandbTracker",
    "identified",
    "misreport",
    "paired",
    "prescribed",
    "record_updates",
    "rehearsal",
    "run_in_process",
    "signed",
]

_MODULES = {
    "MLflowTracker": "verax.flower.trackers",
    "PaidStrategy": "verax.flower.strategy",
    "TensorBoardTracker": "verax.flower.trackers",
    "Tracker": "verax.flower.trackers",
    "WandbTracker": "verax.flower.trackers",
    "identified": "verax.flower.mods",
    "misreport": "verax.flower.mods",
    "paired": "verax.flower.pairing",
    "prescribed": "verax.flower.prescribing",
    "record_updates": "verax.flower.mods",
    # An app's `server_app.py` needs one import for whatever it does with payments.
    "rehearsal": "verax.apps",
    "run_in_process": "verax.flower.local",
    "signed": "verax.flower.signing",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("verax"):
            raise
        raise ModuleNotFoundError(
            f"verax.flower needs {error.name}, which is not installed: pip install '.[flower]' in "
            "a clone of Verax",
            name=error.name,
        ) from None
