"""Flower and Ray send usage statistics unless they are told not to; what we start is told."""

from __future__ import annotations

#: Environment variables, which both read when they are imported. Flower also looks for no newer
#: version of itself.
NO_TELEMETRY = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
