"""The tables of docs/study/*.md follow from the committed results beside them."""

import csv
import re
from pathlib import Path

import pytest

from trl_ces.study.cells import load_study
from trl_ces.study.comparison import comparison
from trl_ces.study.front import front_text, has_lines
from trl_ces.study.results import read_results
from trl_ces.train.recipe import make_recipe
from trl_ces.train.shipped import find_recipe

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = sorted((DOCS / "study").glob("*.csv"))
NOT_NUMBERS = {"variant", "method", "line", "measured_on", "settings", "packages"}


def read_rows(file):
    with file.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            yield {
                name: value if name in NOT_NUMBERS else int(value) if name == "seed" else float(value)
                for name, value in row.items()
                if value or name in NOT_NUMBERS
            }


def test_there_are_results():
    assert "arithmetic" in {file.stem for file in RESULTS}


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_the_page_shows_what_the_results_give(file):
    study = load_study(find_recipe(file.stem, kind="study"))
    rows = list(read_rows(file))
    assert sorted((row["variant"], row["method"], row["seed"]) for row in rows) == sorted(
        (cell.variant, cell.method, cell.seed) for cell in study.cells
    )
    page = file.with_suffix(".md").read_text(encoding="utf-8")
    frame = read_results(file)
    # Strengths of a method are points of a front, which says more than dozens of lines and columns.
    text = front_text(frame) if has_lines(frame) else comparison(study, rows)
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    assert tables
    for table in tables:
        assert table.strip() in page
    assert f"trl-ces study --config {file.stem}" in page


def cells_of(table):
    """First cell of a row -> the others."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "±" in line]
    return {first: rest for first, *rest in rows}


def test_readme_shows_means_of_the_study_with_their_intervals():
    study = load_study(find_recipe("arithmetic", kind="study"))
    parts = comparison(study, list(read_rows(DOCS / "study" / "arithmetic.csv"))).split("\n\n")
    table = next(part for part in parts if part.startswith("| Method"))
    found = cells_of(table)
    means = {name: cells[1::2] for name, cells in found.items()}  # after the number of runs, means and differences
    shown = cells_of((DOCS.parent / "README.md").read_text(encoding="utf-8"))
    assert shown == {
        "before": means["Before training"],
        "DAPO": means["DAPO"],
        "CES": means["CES"],
        "CES - DAPO, by seed": found["CES"][2::2],
    }


def test_the_pages_own_study_is_one(tmp_path):
    block = re.search(r"```yaml\n(.*?)```", (DOCS / "study.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    (tmp_path / "mine.yaml").write_text(block, encoding="utf-8")
    study = load_study(tmp_path / "mine.yaml")
    assert len(study.cells) == (3 * 3 + 1) * 2  # methods and seeds, the untrained model once, variants
    assert study.cells[-1].recipe["max_completion_length"] == 64
    for cell in study.cells:
        make_recipe(cell.recipe, cell.name).check_training(2)
