"""The whole federation in this process: `python in_process.py BOOK [KEY=VALUE …]`."""

import sys
import tomllib
from pathlib import Path

APP = Path(__file__).resolve().parent


def main() -> None:
    """Run with the app's own configuration, changed by the command line."""
    config = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    given = tomllib.loads("\n".join(toml(pair) for pair in sys.argv[2:]))
    if unknown := given.keys() - config.keys():
        raise SystemExit(f"{sorted(unknown)[0]!r} is not in [tool.flwr.app.config]")
    # Importing Flower and JAX takes long, so the command line is checked first.
    from flower_digits.client_app import app as client_app
    from flower_digits.server_app import app as server_app

    from verax.flower import run_in_process

    settings = config | {"book": sys.argv[1]} | given
    run_in_process(server_app, client_app, 3, settings, run_id=1)


def toml(pair: str) -> str:
    """KEY=VALUE as TOML; a value that is not valid TOML becomes a string."""
    key, _, value = pair.partition("=")
    try:
        tomllib.loads(pair)
    except tomllib.TOMLDecodeError:
        return f"{key} = '{value}'"
    return pair


if __name__ == "__main__":
    main()
