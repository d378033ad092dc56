"""What all tests share: a cache of their own, so that compiled programs are compiled once."""

import os
import shutil
import tempfile


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        os.environ["VERAX_CACHE"] = tempfile.mkdtemp(prefix="verax-cache-")


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["VERAX_CACHE"], ignore_errors=True)
