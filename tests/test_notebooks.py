"""The notebooks run from beginning to end, and stand in the repository without their outputs."""

import shutil
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="no nbformat: pip install nbformat")
nbclient = pytest.importorskip("nbclient", reason="no nbclient: pip install nbclient ipykernel")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """A copy of the examples, and a kernel of this interpreter that keeps its settings in there."""
    shutil.copytree(
        ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    return tmp_path / "examples"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own event loops
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("member", "text/plain"),
        # Processes of an app start slowly, and test_tutorial takes the same steps.
        pytest.param("operator", "text/html", marks=pytest.mark.slow),
        ("researcher", "text/html"),
    ],
)
def test_a_notebook_runs(name, shown, examples):
    folder = examples / "notebooks"
    notebook = nbformat.read(folder / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    assert any(shown in out.get("data", ()) for out in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_is_valid_and_has_no_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_there_is_a_notebook_for_everybody():
    assert [path.stem for path in NOTEBOOKS] == ["member", "operator", "researcher"]
