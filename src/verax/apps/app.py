"""A Flower app from its folder: both sides, and its configuration as `flwr run` would give it."""

from __future__ import annotations

import hashlib
import importlib
import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flwr.clientapp import ClientApp
from flwr.common.config import flatten_dict, fuse_dicts, parse_config_args
from flwr.serverapp import ServerApp

from verax.apps.clients import LocalClients
from verax.flower.local import LocalGrid

#: Folders that are not part of an app.
_NOT_THE_APP = {"__pycache__", "node_modules", "dist", "build"}


@dataclass(frozen=True, eq=False)
class FlowerApp:
    """An app that is loaded.

    Attributes:
        folder: where it is.
        name: from its `pyproject.toml`.
        server: its ServerApp.
        client: its ClientApp.
        run_config: its configuration, with what the user overrides.
    """

    folder: Path
    name: str
    server: ServerApp
    client: ClientApp
    run_config: dict[str, Any]

    def of_replica(self, replica: int, seed_key: str) -> FlowerApp:
        """The app with the replica's number as its own seed, if it has one."""
        if not seed_key:
            return self
        if seed_key not in self.run_config:
            known = ", ".join(self.run_config) or "nothing"
            raise ValueError(f"seed-key {seed_key!r} is not in the app's configuration: {known}")
        return replace(self, run_config={**self.run_config, seed_key: replica})

    def clients(self, number: int, replica: int) -> LocalClients:
        """Fresh clients in this process, for one run."""
        return LocalClients(LocalGrid(self.client, number, self.run_config, seed=replica))


def load_app(folder: str | Path, run_config: str = "") -> FlowerApp:
    """Import an app's two sides.

    Args:
        folder: with a `pyproject.toml` that names `serverapp` and `clientapp`.
        run_config: overrides as `flwr run --run-config` takes them, such as `"lr=0.01 epochs=2"`.
    """
    root = Path(folder).resolve()
    project = read_project(root)
    tool = project["tool"]["flwr"]["app"]
    try:
        overrides = parse_config_args([run_config] if run_config else None)
        config = fuse_dicts(flatten_dict(tool.get("config", {})), overrides)
    except Exception as error:  # Flower raises an exception of its command line, or ValueError
        words = str(getattr(error, "message", error))
        raise ValueError(f"run-config {run_config!r} does not fit the app: {words}") from None
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    sides: dict[str, Any] = {}
    for side, kind in (("serverapp", ServerApp), ("clientapp", ClientApp)):
        reference = tool["components"][side]
        module, _, attribute = str(reference).partition(":")
        try:
            sides[side] = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"{side} = {reference!r} of {root} cannot be loaded: {error}; install what the app "
                "needs into this environment"
            ) from error
        if not isinstance(sides[side], kind):
            raise ValueError(f"{side} = {reference!r} of {root} is not a {kind.__name__}")
    if not getattr(sides["serverapp"], "_main", None):
        raise ValueError(
            f"the ServerApp of {root} has no `main`: apps of Flower's legacy API cannot be "
            "audited; use `@app.main()` and a strategy of flwr.serverapp"
        )
    name = str(project.get("project", {}).get("name", root.name))
    return FlowerApp(root, name, sides["serverapp"], sides["clientapp"], config)


def read_project(folder: Path) -> dict[str, Any]:
    """The app's `pyproject.toml`; refuses a folder without a Flower app."""
    path = folder / "pyproject.toml"
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} holds no Flower app: {error}") from None
    components = project.get("tool", {}).get("flwr", {}).get("app", {}).get("components", {})
    if not {"serverapp", "clientapp"} <= components.keys():
        raise ValueError(
            f"{path} names no serverapp and clientapp under [tool.flwr.app.components]; "
            "give the folder of a Flower app"
        )
    return project


def nodes_of(folder: Path) -> int | None:
    """How many nodes the app's own federation configuration has, if it names exactly one number."""
    federations = read_project(folder)["tool"]["flwr"].get("federations", {})
    numbers = {
        table["options"]["num-supernodes"]
        for table in federations.values()
        if isinstance(table, dict) and "num-supernodes" in table.get("options", {})
    }
    return int(numbers.pop()) if len(numbers) == 1 else None


def app_digest(folder: Path) -> str:
    """SHA-256 of the app's Python and configuration files, by name and content."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") or part in _NOT_THE_APP for part in inside.parts)
        if not hidden and path.suffix in (".py", ".toml") and path.is_file():
            digest.update(f"{inside.as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
