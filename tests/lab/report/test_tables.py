"""Every cell of the tables of evaluations, against means and intervals worked out here."""

import math
import random
import re
from statistics import fmean

import interval_oracle as oracle
import pytest
from report_pages import page_of
from report_runs import write_evaluation

TITLES = {
    "gsm8k": "GSM8K", "svamp": "SVAMP", "aime24": "AIME24", "arc_challenge": "ARC", "openbookqa": "OpenBookQA",
    "humaneval": "HumanEval", "humaneval_plus": "HumanEval+", "mbpp": "MBPP", "mbpp_plus": "MBPP+",
}  # fmt: skip
KINDS = {
    1: (["gsm8k", "svamp", "aime24"], "Average"),
    7: (["arc_challenge", "openbookqa"], "Average of multiple choice"),
    8: (["humaneval", "humaneval_plus", "mbpp", "mbpp_plus"], "Average of code"),
}


def numbers(cell):
    """The numbers in a cell: `+12.5 ± 3.0`, `46.9 [34.4, 59.4]`, `308 [235, 378]`."""
    return [float(text) for text in re.findall(r"[+-]?\d+(?:\.\d+)?", cell)]


def rows_of(table):
    return {row[0]: row[1:] for row in table.rows}


def random_answers(seed, chance):
    """Benchmark -> problem -> four answers as (right, tokens)."""
    draw = random.Random(seed)
    names = [name for listed, _ in KINDS.values() for name in listed]
    return {
        name: [
            [(draw.random() < skill, draw.randint(50, 500)) for _ in range(4)]
            for skill in (min(0.95, chance * draw.uniform(0.3, 1.7)) for _ in range(12))
        ]
        for name in names
    }


ANSWERS = {"R1": random_answers(1, 0.5), "DAPO": random_answers(2, 0.6), "CES": random_answers(3, 0.7)}


def by_problem(run, name):
    """Accuracy in % and mean tokens of each problem."""
    problems = ANSWERS[run][name]
    return [100 * fmean(right for right, _ in four) for four in problems], [
        fmean(tokens for _, tokens in four) for four in problems
    ]


def of_four(sets):
    """Accuracies in % of four answers, as (share, answers)."""
    return [[(percent / 100, 4) for percent in values] for values in sets]


def check_accuracy(cell, sets, minus=None):
    """The interval of an average, or of its difference to another run's."""
    found = oracle.accuracy(of_four(sets)) if minus is None else oracle.difference(of_four(sets), of_four(minus))
    assert numbers(cell) == pytest.approx([100 * value for value in found], abs=0.051)


def check_length(cell, sets, minus=None):
    """Mean of the sets' means, and a bootstrap-t over problems of our own: another generator, other draws."""
    least = 0 if minus is None else -math.inf
    if minus is not None:
        sets = [[one - other for one, other in zip(*pair, strict=True)] for pair in zip(sets, minus, strict=True)]
    # Lengths of a hundred tokens or more have no decimals.
    rounded = 0.51 if max(map(abs, numbers(cell))) >= 100 else 0.051
    mean, *bounds = numbers(cell)
    expected, low, high = oracle.bootstrap_t(sets, 2000, least)
    assert mean == pytest.approx(expected, abs=rounded)
    assert len(bounds) == (0 if len(sets[0]) == 1 else 2)
    if bounds:
        # With few problems t has few values, and a draw more or less may move a bound to the next of them.
        near = (0.1 if len(sets[0]) == 12 else 0.5) * (high - low) + rounded
        assert bounds == pytest.approx([low, high], abs=near)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluations")
    places = [write_evaluation(folder / name, answers) for name, answers in ANSWERS.items()]
    return page_of(*places, names=list(ANSWERS)).tables


@pytest.mark.parametrize("number", KINDS)
def test_evaluations_by_benchmark_are_means_over_problems_with_differences_problem_by_problem(evaluated, number):
    names, average = KINDS[number]
    levels, differences, _, budgets = evaluated[f"{average}: R1, DAPO, CES"]
    assert budgets.title == f"{average} within token budgets"
    assert budgets.header == ["Tokens", "R1", "DAPO", "CES", "R1 − DAPO", "CES − DAPO"]
    # Every answer ends within the limit: the last budget's accuracies are those of the table.
    assert budgets.rows[-2][1:4] == [rows_of(levels)[average][2 * run].split()[0].strip("*") for run in range(3)]
    assert list(rows_of(levels)) == list(rows_of(differences)) == [*(TITLES[name] for name in names), average]
    for listed, title in [*(([name], TITLES[name]) for name in names), (names, average)]:
        cells = {}
        for table in (levels, differences):
            cells |= zip(table.header[1:], rows_of(table)[title], strict=True)
        found = {run: list(zip(*(by_problem(run, name) for name in listed), strict=True)) for run in ANSWERS}
        for place, (what, check) in enumerate((("Acc ↑", check_accuracy), ("Len ↓", check_length))):
            for run in ANSWERS:
                check(cells[f"{run} {what}"], found[run][place])
            for run in ("R1", "CES"):
                check(cells[f"{run} − DAPO {what}"], found[run][place], found["DAPO"][place])


def test_questions_are_parted_by_the_reference_and_each_part_averaged_by_itself(evaluated):
    parts = [table for tables in evaluated.values() for table in tables if table.title == "Simple and hard questions"]
    rows = {tuple(row[:2]): dict(zip(each.header[2:], row[2:], strict=True)) for each in parts for row in each.rows}
    assert len(rows) == 2 * len(TITLES)
    for name, title in TITLES.items():
        simple = [accuracy > 50 for accuracy in by_problem("R1", name)[0]]
        for part in ("simple", "hard"):
            chosen = [place for place, easy in enumerate(simple) if easy == (part == "simple")]
            cells = rows[title, part]
            assert cells["Problems"] == str(len(chosen))
            for run in ANSWERS if chosen else ():
                accuracy, length = by_problem(run, name)
                check_accuracy(cells[f"{run} Acc ↑"], [[accuracy[place] for place in chosen]])
                check_length(cells[f"{run} Len ↓"], [[length[place] for place in chosen]])
