"""The cost table of the shipped recipes, and `trl-ces recipes`."""

from pathlib import Path

import pytest

from trl_ces.cli.main import main
from trl_ces.lab.plan.text import SETUPS, costs_table
from trl_ces.train.recipe import shipped_files

SHIPPED = (Path(__file__).parents[3] / "recipes" / "costs.md").read_text()


def cells(text):
    """Map the first cell of each table row to the stripped cells of that row."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[0]: row for row in rows}


def test_every_model_recipe_has_a_row_and_a_status():
    rows = cells(SHIPPED)
    assert list(SETUPS) == list(rows)[2:]
    assert set(shipped_files("models")) <= {name.split()[0] for name in SETUPS}
    assert all(row[-1] for row in rows.values())


@pytest.mark.slow
def test_shipped_cpu_rows_equal_the_computed_rows():
    names = ["smollm2_135m", "arithmetic"]
    assert {name: cells(costs_table(names))[name] for name in names} == {name: cells(SHIPPED)[name] for name in names}


@pytest.mark.slow
def test_the_row_of_a_server_setup_omits_memory_and_hours():
    row = cells(costs_table(["R1-1.5B server"]))["R1-1.5B server"]
    assert row[1:6] == ["8 + 8 x A800", "zero2", "-", "-", "204"]


@pytest.mark.slow
def test_all_shipped_rows_equal_the_computed_rows():
    assert costs_table() == SHIPPED.strip()


def test_recipes_are_listed_with_their_costs(capsys):
    assert main(["recipes"]) == 0
    listing = capsys.readouterr().out
    assert listing.startswith(SHIPPED.strip())
    assert "Overlays (methods):" in listing
    assert "  alp  " in listing
