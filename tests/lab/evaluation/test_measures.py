"""Accuracy within token budgets and its mean over all budgets, checked against loops and hand-computed values."""

import random
import statistics

import pandas as pd
import pytest
from interval_oracle import bootstrap_t, difference

from trl_ces.lab.evaluation.measures import accuracies, areas, budgets_up_to, measure

T, F = True, False


def table(completions):
    """Make a table of samples from a dictionary that maps problems to (correct, tokens) pairs."""
    rows = [(problem, correct, tokens) for problem, pairs in completions.items() for correct, tokens in pairs]
    return pd.DataFrame(rows, columns=["problem", "correct", "tokens"]).astype({"correct": "boolean"})


FIRST = table({0: [(T, 100), (T, 600)], 3: [(F, 50), (T, 512)], 5: [(None, 10), (None, 20)]})
SECOND = table({0: [(T, 1024), (F, 1024)], 3: [(T, 10), (T, 10)], 5: [(T, 1), (T, 1)]})


@pytest.mark.parametrize(
    ("limit", "budgets"),
    [
        (16384, [512, 1024, 2048, 4096, 8192, 16384]),
        (12000, [375, 750, 1500, 3000, 6000, 12000]),
        (64, [2, 4, 8, 16, 32, 64]),
        (5, [1, 2, 5]),
        (1, [1]),
    ],
)
def test_budgets_double_up_to_the_limit(limit, budgets):
    assert budgets_up_to(limit) == budgets


def test_correct_completion_counts_only_if_it_fits_the_budget():
    tables = [accuracies(FIRST, "correct", budget) for budget in (99, 100, 511, 512, 1024)]
    assert [rows["correct"].tolist() for rows in tables] == [[0, 0], [0.5, 0], [0.5, 0], [0.5, 0.5], [1, 0.5]]
    assert tables[0]["completions"].tolist() == [2, 2]
    assert tables[0].index.tolist() == [0, 3]  # the last problem is unscored


def test_area_is_the_mean_accuracy_over_all_budgets():
    generator = random.Random(0)
    for limit in (7, 64):
        completions = {
            problem: [(generator.random() < 0.6, generator.randint(1, limit)) for _ in range(3)]
            for problem in range(5)
        }
        computed_areas = areas(table(completions), "correct", limit)
        for problem, pairs in completions.items():
            # Accuracy is constant between two integer budgets.
            accuracies_at = [
                statistics.fmean(correct and tokens <= budget for correct, tokens in pairs) for budget in range(limit)
            ]
            assert computed_areas[problem] == pytest.approx(statistics.fmean(accuracies_at))
    assert areas(FIRST, "correct", 1024).tolist() == [(924 + 424) / 2048, 512 / 2048]
    assert areas(table({0: [(T, 80)]}), "correct", 64).tolist() == [0.0]


def test_runs_are_compared_problem_by_problem():
    results = measure([[FIRST], [SECOND]], "correct", limit=1024)
    assert (results["problems"], results["scored"]) == (3, 2)  # problem 5 is excluded in both runs
    assert [row["budget"] for row in results["budgets"]] == [32, 64, 128, 256, 512, 1024]
    assert [row["accuracy"][1]["mean"] for row in results["budgets"]] == [0.5, 0.5, 0.5, 0.5, 0.5, 0.75]
    assert results["accuracy_difference"][0] is None
    last = results["budgets"][2]["accuracy_difference"][1]
    expected = difference([[(0.0, 2), (1.0, 2)]], [[(0.5, 2), (0.0, 2)]])
    assert (last["mean"], last["low"], last["high"]) == pytest.approx(expected)
    gains = [0 - (924 + 424) / 2048, (1014 - 256) / 1024]
    area = results["area_difference"][1]
    assert (area["mean"], area["low"], area["high"]) == pytest.approx(bootstrap_t([gains]))
    swapped = measure([[FIRST], [SECOND]], "correct", baseline=1, limit=1024)
    assert swapped["area_difference"][1] is None
    assert swapped["area_difference"][0]["mean"] == pytest.approx(-area["mean"])


def test_all_sets_have_equal_weights():
    combined = measure([[FIRST, SECOND]], "correct", limit=1024)
    separate = [measure([[samples]], "correct", limit=1024) for samples in (FIRST, SECOND)]
    means = [[row["accuracy"][0]["mean"] for row in results["budgets"]] for results in (combined, *separate)]
    assert means[0] == pytest.approx([(first + second) / 2 for first, second in zip(*means[1:], strict=True)])
    assert combined["area_difference"] == [None]
