"""Check that docs/examples/tutorial.ipynb matches docs/tutorial.md. test_docs_run.py runs the tutorial's commands."""

import re

import nbformat
from docs_blocks import DOCS, load_script


def test_the_notebook_matches_the_tutorial():
    builder = load_script(DOCS / "build_notebook.py")
    notebook = nbformat.read(builder.NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    expected = builder.notebook(builder.PAGE.read_text(encoding="utf-8"))
    assert notebook == nbformat.from_dict(expected), "run `python docs/build_notebook.py`"
    files = [cell.source.split()[1] for cell in notebook.cells if cell.source.startswith("%%writefile")]
    assert files == ["make_problems.py", "my_reward.py", "mine.yaml", "cpu.yaml", "my_study.yaml"]
    links = re.findall(r"\]\(([^)#]+)", "".join(cell.source for cell in notebook.cells))
    assert [link for link in links if not (builder.NOTEBOOK.parent / link).is_file()] == []
    lines = [line for cell in notebook.cells if cell.cell_type == "code" for line in cell.source.splitlines()]
    assert "!python make_problems.py" in lines
