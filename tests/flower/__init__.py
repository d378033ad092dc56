"""Flower is imported here once: its own imports raise warnings, which are not ours to fail on."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import flwr.serverapp.strategy
    import flwr.simulation  # noqa: F401
