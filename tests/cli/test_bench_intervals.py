"""`trl-ces bench intervals` runs, small, to its end, and its outcomes have the distributions that it says."""

import re
import runpy
from math import inf
from pathlib import Path

import numpy as np
import pytest

from trl_ces.cli.main import main

BENCH = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "intervals.py"))


def test_the_simulation_runs(capsys):
    assert main(["bench", "intervals", "--repeats", "40"]) == 0
    printed = capsys.readouterr().out
    assert [int(count) for count in re.findall(r", (\d+) data sets a cell", printed)] == [40, 10, 20, 4, 5]
    assert re.search(r"^\| 500 \| 8 \| +[\d.-]+", printed, re.MULTILINE)


@pytest.mark.parametrize("spread", [0.0, 0.5, 10.0, inf])
def test_outcomes_have_the_mean_and_the_correlation_within_problems_of_their_spread(spread):
    random = np.random.default_rng(0)
    right = BENCH["draw"](random, 400, 4, 0.3, spread, 500).right
    assert right.shape == (500, 400)
    assert right.mean() == pytest.approx(0.3, abs=0.005)
    correlation = 1 / (1 + spread)  # of a beta-binomial
    assert right.var() == pytest.approx(0.21 * (correlation + (1 - correlation) / 4), rel=0.02)


def test_a_cell_outside_of_93_to_97_is_marked():
    assert [BENCH["cell"](found) for found in ([95.0], [92.9], [93.0, 97.0], [94.0, 97.1])] == [
        "95.0",
        "92.9 *",
        "93.0-97.0",
        "94.0-97.1 *",
    ]
