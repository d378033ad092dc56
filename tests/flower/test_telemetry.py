"""Nothing that we start sends usage statistics."""

import os
import subprocess
import sys

from verax.quiet import NO_TELEMETRY

ASK = """
import sys
import typer
from verax.cli import main

@main.app.command("ask")
def ask():
    import flwr.supercore.telemetry as telemetry
    from ray._common.usage import usage_lib
    print(telemetry.FLWR_TELEMETRY_ENABLED, usage_lib.usage_stats_enabled())

sys.argv = ["verax", "ask"]
main.main()
"""


def test_the_command_line_turns_them_off_before_flower_and_ray_are_imported():
    asked = os.environ | {"FLWR_TELEMETRY_ENABLED": "1", "RAY_USAGE_STATS_ENABLED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=asked, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["0", "False"], done.stderr


def test_tests_themselves_send_nothing():
    assert {name: os.environ.get(name) for name in NO_TELEMETRY} == NO_TELEMETRY
