"""The whole federation in this process: `python in_process.py BOOK [KEY=VALUE …]`."""

import sys
import tomllib
from pathlib import Path

from flower_digits.client_app import app as client_app
from flower_digits.server_app import app as server_app

from verax.flower import run_in_process

APP = Path(__file__).resolve().parent


def main() -> None:
    """Run with the app's own configuration, changed by the command line."""
    config = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    given = tomllib.loads("\n".join(toml(pair) for pair in sys.argv[2:]))
    if unknown := given.keys() - config.keys():
        raise SystemExit(f"{sorted(unknown)[0]!r} is not in [tool.flwr.app.config]")
    settings = config | {"book": sys.argv[1]} | given
    run_in_process(server_app, client_app, 3, settings, run_id=1)


def toml(pair: str) -> str:
    """KEY=VALUE as TOML: what is no number and no truth value is text."""
    key, _, value = pair.partition("=")
    try:
        tomllib.loads(pair)
    except tomllib.TOMLDecodeError:
        return f"{key} = '{value}'"
    return pair


if __name__ == "__main__":
    main()
