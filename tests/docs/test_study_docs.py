"""The tables of docs/study/*.md follow from the committed results beside them."""

import csv
import re
from pathlib import Path

import pandas
import pytest

from trl_ces.forks.table import MOSTLY_WRONG
from trl_ces.study.cells import load_study
from trl_ces.study.comparison import comparison, estimate
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
    lines = re.findall(r"^\|.*±.*", table, flags=re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
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


ALONE = "CES, correct answers only"


@pytest.mark.parametrize(
    ("name", "method", "measure", "pages"),
    [
        ("arithmetic_long", "CES", "length_tokens", ["README.md", "docs/study.md"]),
        ("arithmetic_long", "CES", "accuracy", ["README.md", "docs/study.md"]),
        ("arithmetic_carry", "CES", "accuracy", ["docs/study.md"]),
        ("smollm2_135m", "CES", "accuracy", ["README.md", "docs/study.md"]),
        ("smollm2_135m", "CES + ALP", "accuracy", ["docs/study.md"]),
        ("smollm2_135m", ALONE, "accuracy", ["README.md", "docs/study.md"]),
    ],
)
def test_a_difference_to_dapo_in_the_text_is_that_of_the_results(name, method, measure, pages):
    runs = pandas.read_csv(DOCS / "study" / f"{name}.csv").pivot(index="seed", columns="method", values=measure)
    factor = 100 if measure == "accuracy" else 1
    difference = estimate(list((runs[method] - runs["DAPO"]).dropna())).text(factor, 1).lstrip("-")
    for page in pages:
        assert difference in (DOCS.parent / page).read_text(encoding="utf-8")


def test_what_is_said_of_correct_answers_only_is_so():
    runs = pandas.read_csv(DOCS / "study" / "mostly_wrong.csv").set_index(["variant", "seed", "method"])
    accuracy, length = (100 * runs["accuracy"]).unstack(), runs["length_tokens"].unstack()
    assert ((accuracy[ALONE] > accuracy["DAPO"]).sum(), (accuracy[ALONE] > accuracy["CES"]).sum()) == (9, 9)
    assert ((accuracy.idxmax(axis=1) == ALONE).sum(), (length.idxmin(axis=1) == ALONE).sum()) == (8, 8)
    gain = (accuracy[ALONE] - accuracy["DAPO"]).groupby("variant").mean()
    assert [round(value, 1) for value in (gain.min(), gain.max())] == [4.0, 7.8]
    shorter = (length["DAPO"] - length[ALONE]).groupby("variant").mean()
    assert [round(value) for value in (shorter.min(), shorter.max())] == [3, 6]
    before = accuracy["Before training"].groupby("variant").mean()
    assert [round(value) for value in before] == [54, 47, 38]


def test_what_is_said_of_accuracy_on_the_thirty_worlds_is_so():
    worlds = pandas.read_csv(DOCS / "study" / "forecast" / "worlds.csv").pivot(index="number", columns="method")
    before, after, verdict = worlds["accuracy_before"]["CES"], worlds["accuracy_after"], worlds["verdict"]["CES"]
    wrong = before < MOSTLY_WRONG
    assert (wrong.sum(), (after["CES"][wrong] < 0.01).sum(), (verdict[wrong] == "shortens").sum()) == (14, 13, 9)
    assert round(after["CES"][wrong].max(), 2) == 0.06
    assert [round(value, 2) for value in (after["DAPO"][wrong].min(), after["DAPO"][wrong].max())] == [0.01, 0.51]
    assert (after["CES"] > after["DAPO"])[~wrong].sum() == 6
    assert [round(value, 2) for value in (before[~wrong].min(), before.max())] == [0.46, 0.72]
    assert after["CES"][~wrong].min() > 0.35
    page = (DOCS / "study" / "forecast.md").read_text(encoding="utf-8")
    for chosen in (wrong, ~wrong):
        difference = list((after["CES"] - after["DAPO"])[chosen])
        assert f"{estimate(difference).text(100, 1, signed=True)} points" in page


def test_the_pages_own_study_is_one(tmp_path):
    block = re.search(r"```yaml\n(.*?)```", (DOCS / "study.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    (tmp_path / "mine.yaml").write_text(block, encoding="utf-8")
    study = load_study(tmp_path / "mine.yaml")
    assert len(study.cells) == (3 * 3 + 1) * 2  # methods and seeds, the untrained model once, variants
    assert study.cells[-1].recipe["max_completion_length"] == 64
    for cell in study.cells:
        make_recipe(cell.recipe, cell.name).check_training(2)
