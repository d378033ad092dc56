"""What all tests share: a cache of their own, so that compiled programs are compiled once."""

import os
import shutil
import tempfile


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        cache = tempfile.mkdtemp(prefix="verax-cache-")
        os.environ["VERAX_CACHE"] = cache
        # The tests' own processes share what they compile, too.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{cache}/tests"
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.5"


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["VERAX_CACHE"], ignore_errors=True)
