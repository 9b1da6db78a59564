"""Accuracy within token budgets, and the area, against loops and by hand."""

import random
import re
import statistics

import pandas as pd
import pytest
from interval_oracle import bootstrap_t, difference

from trl_ces.lab.evaluation.budgets import areas, budgets_up_to, curves, draw_budgets, of_one_run, paired_table, within

T, F = True, False


def table(answers):
    """`answers`: problem -> (verdict, tokens) of each."""
    rows = [(problem, verdict, tokens) for problem, own in answers.items() for verdict, tokens in own]
    return pd.DataFrame(rows, columns=["problem", "correct", "tokens"]).astype({"correct": "boolean"})


FIRST = table({0: [(T, 100), (T, 600)], 3: [(F, 50), (T, 512)], 5: [(None, 10), (None, 20)]})
SECOND = table({0: [(T, 1024), (F, 1024)], 3: [(T, 10), (T, 10)], 5: [(T, 1), (T, 1)]})


@pytest.mark.parametrize(
    ("limit", "budgets"),
    [
        (16384, [512, 1024, 2048, 4096, 8192, 16384]),
        (32768, [512, 1024, 2048, 4096, 8192, 16384, 32768]),
        (12000, [375, 750, 1500, 3000, 6000, 12000]),
        (64, [2, 4, 8, 16, 32, 64]),
        (5, [1, 2, 5]),
        (1, [1]),
    ],
)
def test_budgets_double_up_to_the_limit(limit, budgets):
    assert budgets_up_to(limit) == budgets


def test_a_correct_answer_counts_from_the_budget_in_which_it_ends():
    found = within(FIRST, "correct", [99, 100, 511, 512, 1024])
    assert found.drop(columns="answers").values.tolist() == [[0.0, 0.5, 0.5, 0.5, 1.0], [0.0, 0.0, 0.0, 0.5, 0.5]]
    assert found["answers"].tolist() == [2, 2]
    assert found.index.tolist() == [0, 3]  # the last problem has no verdict


def test_the_area_is_the_mean_over_all_budgets():
    generator = random.Random(0)
    for limit in (7, 64):
        answers = {
            problem: [(generator.random() < 0.6, generator.randint(1, limit)) for _ in range(3)]
            for problem in range(5)
        }
        found = areas(table(answers), "correct", limit)
        for problem, own in answers.items():
            # Between two whole budgets the curve is flat.
            at = [statistics.fmean(right and tokens <= budget for right, tokens in own) for budget in range(limit)]
            assert found[problem] == pytest.approx(statistics.fmean(at))
    assert areas(FIRST, "correct", 1024).tolist() == [(924 + 424) / 2048, 512 / 2048]
    assert areas(table({0: [(T, 80)]}), "correct", 64).tolist() == [0.0]


def test_a_run_has_its_curve_its_area_and_lengths_given_the_verdict():
    found = of_one_run(FIRST, "correct", 1024)
    assert found["budgets"] == [32, 64, 128, 256, 512, 1024]
    assert found["accuracy"] == [0.0, 0.0, 0.25, 0.25, 0.5, 0.75]
    assert found["area"]["mean"] == pytest.approx((924 + 424 + 512) / 4096)
    assert (found["length_correct"], found["length_wrong"]) == (1212 / 3, 50.0)
    never = of_one_run(table({0: [(F, 4)]}), "correct", 8)
    assert (never["length_correct"], never["length_wrong"], never["area"]["mean"]) == (None, 4.0, 0.0)


def test_two_runs_are_compared_question_by_question():
    found = curves([[FIRST], [SECOND]], "correct", 1024, 0)
    assert found["budgets"][-1] == 1024
    # problem 5 counts in neither, since the first run has no verdict on it
    assert [entry["mean"] for entry in found["accuracy"][1]] == [0.5, 0.5, 0.5, 0.5, 0.5, 0.75]
    assert found["accuracy_difference"][0] is None
    last = found["accuracy_difference"][1][2]
    expected = difference([[(0.0, 2), (1.0, 2)]], [[(0.5, 2), (0.0, 2)]])
    assert (last["mean"], last["low"], last["high"]) == pytest.approx(expected)
    gains = [0 - (924 + 424) / 2048, (1014 - 256) / 1024]
    area = found["area_difference"][1]
    assert (area["mean"], area["low"], area["high"]) == pytest.approx(bootstrap_t([gains]))
    other = curves([[FIRST], [SECOND]], "correct", 1024, 1)
    assert other["area_difference"][1] is None
    assert other["area_difference"][0]["mean"] == pytest.approx(-area["mean"])


def test_sets_weigh_the_same():
    found = curves([[FIRST, SECOND]], "correct", 1024)
    alone = [curves([[own]], "correct", 1024) for own in (FIRST, SECOND)]
    means = [[entry["mean"] for entry in each["accuracy"][0]] for each in (found, *alone)]
    assert means[0] == pytest.approx([(one + two) / 2 for one, two in zip(*means[1:], strict=True)])
    assert found["area_difference"] == [None]


def test_the_table_has_a_line_a_budget_and_the_area():
    found = curves([[FIRST], [SECOND]], "correct", 1024, 0)
    table_of_two = paired_table(["A", "B"], 0, "Average", found)
    assert table_of_two.header == ["Tokens", "A", "B", "B − A"]
    cells = [[cell.split(" [")[0] for cell in row] for row in table_of_two.rows]
    assert [row[0] for row in cells] == ["32", "64", "128", "256", "512", "1024", "Area"]
    assert cells[2][1:] == ["25.0", "50.0", "+25.0"]
    assert cells[-1][1:] == ["45.4", "49.5", "+4.1"]
    low, high = (100 * found["area_difference"][1][bound] for bound in ("low", "high"))
    assert table_of_two.rows[-1][3] == f"+4.1 [{low:+.1f}, {high:+.1f}]"
    alone = curves([[table({0: [(T, tokens)]})] for tokens in (1, 3)], "correct", 8, 0)
    assert paired_table(["A", "B"], 0, "Average", alone).rows[-1] == ["Area", "87.5", "62.5", "-25.0"]  # no interval
    nothing = curves([[table({0: [(None, 1)]})]] * 2, "correct", 8, 0)
    assert [row[1:] for row in paired_table(["A", "B"], 0, "Average", nothing).rows] == [["-", "-", "-"]] * 5


def test_the_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    file = draw_budgets({"A": ([1, 2, 4], [0.0, 0.5, 1.0]), "B": ([2, 4], [None, 0.1])}, tmp_path / "budgets.svg")
    assert file.read_text().count("<svg") == 1
    assert list(tmp_path.iterdir()) == [file]
    weak = draw_budgets({"A": ([1, 2], [0.0, 0.03])}, tmp_path / "weak.svg")
    shares = re.findall(r"<!-- ([\d.]+%) -->", weak.read_text())
    assert len(shares) == len(set(shares)) > 2
