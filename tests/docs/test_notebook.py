"""docs/examples/quickstart.ipynb runs from first cell to last, with fewer steps, and shows what it promises."""

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from processes import environment

from trl_ces.lab.study import quickstart

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "quickstart.ipynb"
STEPS = re.compile(r"^BASE_STEPS, RL_STEPS, PROBLEMS = (\d+), (\d+), (\d+)$", re.M)


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_is_the_quickstart_and_is_stored_without_output(notebook):
    nbformat.validate(notebook)
    [steps] = [STEPS.search(cell.source) for cell in notebook.cells if STEPS.search(cell.source)]
    assert tuple(map(int, steps.groups())) == (
        quickstart.BASE_STEPS,
        quickstart.RL_STEPS,
        quickstart.HELD_OUT_PROBLEMS,
    )
    assert [cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")] == []


def shown(notebook, start):
    """What the code cell with these words shows: its texts, and its other outputs by type."""
    [cell] = [cell for cell in notebook.cells if cell.cell_type == "code" and start in cell.source]
    texts = "".join(one.text for one in cell.outputs if one.output_type == "stream")
    data = {name: content for one in cell.outputs for name, content in one.get("data", {}).items()}
    return texts, data


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_runs_and_shows_forks_curves_a_table_and_tokens(notebook, tmp_path, monkeypatch):
    for name, value in environment(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}").items():
        monkeypatch.setenv(name, value)
    for cell in notebook.cells:
        cell.source = STEPS.sub("BASE_STEPS, RL_STEPS, PROBLEMS = 20, 4, 6", cell.source)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert re.search(r"% right in \d+\.\d tokens\n\d+\+\d+:", shown(notebook, "build_base_model")[0])
    assert "likelier branch" in shown(notebook, "trl-ces inspect")[0]
    assert shown(notebook, "trl-ces train") == ("", {})
    assert shown(notebook, "plot_curves")[1]["image/png"].startswith("iVBOR")
    table = shown(notebook, "pd.DataFrame")[1]["text/plain"].splitlines()
    assert [line.split()[0] for line in table[1:]] == ["before", "DAPO", "CES"]
    page = shown(notebook, "trl-ces report")[1]["text/html"]
    assert page.startswith('<iframe srcdoc="')
    assert "id=&quot;tokens&quot;" in page
    assert shown(notebook, "GRPOTrainer")[1]["text/plain"].startswith("TrainOutput(global_step=8,")
