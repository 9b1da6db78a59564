"""docs/methods.md: its worked rows are what the functions give, its table has every recipe and every file."""

import re
from pathlib import Path

import pytest
import torch

from trl_ces import rewards
from trl_ces.methods.groups import Groups

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
RECIPES = ROOT / "recipes"
FOLDERS = ("arithmetic", "DeepSeek-R1-Distill-Qwen-1.5B", "DeepSeek-R1-Distill-Qwen-7B")


def tables():
    """Each table of the page as lists of cells, without its ruler."""
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, flags=re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


TABLES = list(tables())
OVERVIEW = next(table for table in TABLES if table[0][-1] == "recipe")
EXAMPLE = next(table for table in TABLES if table[0][0] == "completion")
WORKED = {table[0][0].strip("`"): {row[0]: row[1:] for row in table[1:]} for table in TABLES if "get_" in table[0][0]}


def example():
    lengths = torch.tensor([[int(cell) for cell in EXAMPLE[1][1:]]])
    correct = torch.tensor([[cell == "yes" for cell in EXAMPLE[2][1:]]])
    nothing = torch.zeros_like(correct)
    return Groups(correct, ~nothing, nothing, lengths, correct.float(), None)


@pytest.mark.parametrize("call", WORKED)
def test_a_worked_row_is_what_the_function_gives(call):
    reward = eval(call, vars(rewards))
    expected = reward.of_groups(example())[0].tolist()
    written = WORKED[call]["reward"]
    assert [float(cell) for cell in written] == pytest.approx(expected, abs=5e-5)
    digits = [len(cell.partition(".")[2]) for cell in written]
    assert [round(value, places) for value, places in zip(expected, digits, strict=True)] == [
        float(cell) for cell in written
    ]


def test_every_length_reward_has_a_worked_row():
    assert {call.partition("(")[0] for call in WORKED} == {
        name for name in rewards.__all__ if name.endswith("_length_reward")
    }


def test_the_table_has_every_recipe_of_the_three_models():
    named = re.findall(r"`(\w+)`", " ".join(row[-1] for row in OVERVIEW[1:]))
    assert len(named) == len(set(named))
    assert set(named) == {file.stem for folder in FOLDERS for file in (RECIPES / folder).glob("*.yaml")}


def test_the_table_has_every_file_with_a_method():
    files = {file for row in OVERVIEW[1:] for file in re.findall(r"`trl_ces/methods/(\w+)\.py`", row[3])}
    shared = {"__init__", "covariance", "groups", "group_reward", "lengths", "metrics", "shaped"}
    assert files == {file.stem for file in (ROOT / "trl_ces" / "methods").glob("*.py")} - shared


def test_a_row_names_the_source_that_its_file_names():
    for row in OVERVIEW[1:]:
        text = "".join((ROOT / file).read_text() for file in re.findall(r"`(trl_ces/methods/\w+\.py)`", row[3]))
        for paper in re.findall(r"arxiv\.org/abs/([\d.]+\d)", row[2]):
            assert not text or paper in text, row[0]
