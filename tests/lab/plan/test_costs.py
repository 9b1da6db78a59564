"""The table of what recipes cost: as it is shipped and shown, it is what plan computes."""

from pathlib import Path

import pytest

from trl_ces.cli.main import main
from trl_ces.lab.plan.costs import SETUPS, table
from trl_ces.train.recipe import shipped_files

ROOT = Path(__file__).parents[3]
SHIPPED = (ROOT / "recipes" / "costs.md").read_text()


def cells(text):
    """The rows of a table by their first cell, without what aligns them."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[0]: row for row in rows}


@pytest.mark.parametrize("page", ["README.md", "docs/recipes.md"])
def test_the_pages_show_the_shipped_table(page):
    assert SHIPPED.strip() in (ROOT / page).read_text()


def test_every_whole_recipe_has_a_row_and_a_status():
    rows = cells(SHIPPED)
    assert list(SETUPS) == list(rows)[2:]
    assert set(shipped_files("models")) <= {name.split()[0] for name in SETUPS}
    assert all(row[-1] for row in rows.values())


def test_the_rows_of_a_cpu_are_what_plan_computes():
    names = ["smollm2_135m", "arithmetic"]
    assert {name: cells(table(names))[name] for name in names} == {name: cells(SHIPPED)[name] for name in names}


@pytest.mark.slow
def test_all_rows_are_what_plan_computes():
    assert table() == SHIPPED.strip()


def test_recipes_are_listed_with_what_they_cost(capsys):
    assert main(["recipes"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(SHIPPED.strip())
    assert "  alp  " in said
