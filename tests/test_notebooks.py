"""Every notebook runs from top to bottom, with its large numbers made small."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SMALL = {"UPDATES": 1, "DEMONSTRATIONS": 200, "SFT_UPDATES": 4, "EPISODES": 8, "FINAL_EPISODES": 8}
# Settings that the notebook leaves at their defaults. REINFORCE learns from equal rewards too, and
# so from those of a model that has imitated little.
FURTHER = "final_episodes=FINAL_EPISODES, eval_episodes=8, groups=4, algo='reinforce',"
by_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
# `examples/train_tic_tac_toe.py` does the same, and is run too.
LONGEST = "4_train_tic_tac_toe.ipynb"


def read(path):
    return nbformat.read(path, as_version=4)


# The kernel's own libraries warn and leave sockets to the garbage collector.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.name, marks=[pytest.mark.slow] * (p.name == LONGEST)) for p in NOTEBOOKS],
)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    if "ludic_train" in path.read_text():
        pytest.importorskip("torch", reason="the notebook trains")
    notebook = read(path)
    for cell in notebook.cells:
        for name, value in SMALL.items():
            cell.source = re.sub(rf"^{name} = [\d_]+", f"{name} = {value}", cell.source, flags=re.M)
        cell.source = cell.source.replace("final_episodes=FINAL_EPISODES,", FURTHER)
        cell.source = cell.source.replace("episodes=100)", "episodes=8)")
    resources = {"metadata": {"path": str(tmp_path)}}
    done = NotebookClient(notebook, timeout=300, resources=resources).execute()
    outputs = [out for cell in done.cells for out in cell.get("outputs", [])]
    assert outputs


@by_notebook
def test_a_notebook_is_kept_without_outputs(path):
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)


def test_there_is_a_notebook_for_every_kind_of_user():
    assert [path.stem[2:] for path in NOTEBOOKS] == [
        "first_steps",
        "your_own_environment",
        "benchmark_a_model",
        "train_tic_tac_toe",
    ]
