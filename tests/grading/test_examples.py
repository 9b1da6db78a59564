"""Run the tables of examples in the docstrings of the grading modules."""

import importlib
import pkgutil
import re

import pytest

from trl_ces import grading
from trl_ces.grading import grade, usable_golds

WITHOUT_EXAMPLES = {"grader", "judge", "pool", "worker", "qwen"}
MODULES = sorted({module.name for module in pkgutil.iter_modules(grading.__path__)} - WITHOUT_EXAMPLES)


def read_table(module):
    """Return the rows of the table in a module's docstring, as lists of quoted texts by column."""
    docstring = importlib.import_module(f"{grading.__name__}.{module}").__doc__
    header, _, *rows = [line.strip("| ").split(" | ") for line in docstring.splitlines() if line.startswith("|")]
    return [dict(zip(header, (re.findall("`(.+?)`", cell) for cell in row), strict=True)) for row in rows]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_are_graded_as_stated(module):
    rows = read_table(module)
    assert rows
    for row in rows:
        if "usable" in row:
            assert usable_golds(row["usable"] + row["unusable"]) == [True] * len(row["usable"]) + [False] * len(
                row["unusable"]
            )
            continue
        [question], [gold] = row.get("question", [None]), row["gold"]
        for column, correct in (("equal", True), ("different", False)):
            assert row.get(column) or row.get(f"{column} completions")
            for text in row.get(f"{column} completions", []) + [rf"\boxed{{{text}}}" for text in row.get(column, [])]:
                assert grade(text, gold, question).correct is correct, (question, gold, text)
