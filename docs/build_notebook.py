"""Write docs/examples/tutorial.ipynb from docs/tutorial.md: `python docs/build_notebook.py`."""

import re
from pathlib import Path

import nbformat.v4 as nb
from nbformat import NotebookNode, write

DOCS = Path(__file__).parent
PAGE, NOTEBOOK = DOCS / "tutorial.md", DOCS / "examples" / "tutorial.ipynb"
BLOCK = re.compile(r"^```(python|yaml|bash)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook(page: str) -> NotebookNode:
    """Convert a page to a notebook whose code cells write the files on the page and run its commands."""
    page = re.sub(r"\]\((?!https:)", "](../", page)  # make links relative to docs/examples/
    cells, end = [], 0
    for block in BLOCK.finditer(page):
        cells.append(nb.new_markdown_cell(page[end : block.start()].strip()))
        language, body = block.groups()
        if language == "bash":
            body = re.sub(r"^(?=\S)", "!", body, flags=re.MULTILINE)
        else:
            body = f"%%writefile {body.splitlines()[0].removeprefix('# ')}\n{body}"
        cells.append(nb.new_code_cell(body.strip()))
        end = block.end()
    cells.append(nb.new_markdown_cell(page[end:].strip()))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # nbformat would assign random ids
    return nb.new_notebook(cells=cells)


if __name__ == "__main__":
    write(notebook(PAGE.read_text(encoding="utf-8")), NOTEBOOK)
