"""What is imported when, and what is said if something is not installed."""

import subprocess
import sys

import pytest

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


def python(code, blocked=()):
    return subprocess.run(
        [sys.executable, "-c", BLOCK.format(blocked=set(blocked)) + code],
        capture_output=True,
        text=True,
        check=False,
    )


def test_verax_works_without_flower():
    done = python(
        "import verax, verax.flower, verax.flower.alarm, verax.mechanism", ["flwr", "sqlalchemy"]
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", ["flwr", "sqlalchemy"])
def test_what_is_missing_is_named_with_the_command_that_brings_it(missing):
    done = python("from verax.flower import PaidStrategy", [missing])
    assert done.returncode == 1
    assert f"needs {missing}" in done.stderr
    assert "pip install '.[flower]'" in done.stderr


def test_the_mods_load_no_database():
    done = python("from verax.flower import misreport, record_updates", ["sqlalchemy"])
    assert done.returncode == 0, done.stderr


def test_unknown_names():
    import verax.flower

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        verax.flower.nothing  # noqa: B018


def test_public_names_stay_what_they_are_after_every_module_was_imported():
    """No submodule has the name of a public function: it would take the function's place."""
    import pkgutil

    import verax.flower

    modules = {module.name for module in pkgutil.iter_modules(verax.flower.__path__)}
    assert not modules & set(verax.flower.__all__)
