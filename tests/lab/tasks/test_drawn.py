"""Random worlds: those of experiments/forecast come again from their seed, in their ranges, with problems enough."""

import runpy
from pathlib import Path

import pandas
import pytest

from trl_ces.lab.tasks.arithmetic import World, load_problems

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
RESULTS = EXPERIMENTS / "forecast" / "worlds.csv"
draw_worlds = runpy.run_path(str(EXPERIMENTS / "forecast" / "draw_worlds.py"))["draw_worlds"]
OLD = {"count": 30, "seed": 1605}


@pytest.mark.parametrize("method", ["DAPO", "CES"])
def test_the_thirty_worlds_of_the_forecast_are_those_of_its_results(method):
    worlds, rows = draw_worlds(**OLD), pandas.read_csv(RESULTS).query("method == @method")
    assert rows[list(worlds[0])].to_dict("records") == worlds
    assert rows["number"].tolist() == [world["seed"] for world in worlds]


def test_more_worlds_begin_with_the_same_ones_and_another_seed_draws_others():
    assert draw_worlds(31, 1605)[:30] == draw_worlds(30, 1605)
    assert all(one != other for one, other in zip(draw_worlds(30, 1605), draw_worlds(30, 1606), strict=True))


@pytest.mark.parametrize("seed", [1605, 7])
def test_worlds_lie_in_the_ranges_and_have_problems_enough(seed):
    worlds = draw_worlds(40, seed)
    assert [world["digits"] for world in worlds] == [2, 3, 1] * 13 + [2]
    assert [number for number, world in enumerate(worlds, 1) if world["forget_probability"]] == [
        number for number in range(1, 41, 2) if number % 3
    ]
    for world in worlds:
        World(**{name: value for name, value in world.items() if name != "seed"})
        assert 0.1 <= world["check_probability"] <= 0.65
        assert 0.05 <= world["slip_probability"] <= 0.4
        assert world["forget_probability"] == 0 or 0.3 <= world["forget_probability"] <= 0.9
    for digits, least, most in {(world["digits"], world["min_terms"], world["max_terms"]) for world in worlds}:
        shape = {"digits": digits, "min_terms": least, "max_terms": most}
        assert len(load_problems("held_out", 200, 0, **shape)) == 200
        assert len(load_problems("train", 1280, 0, **shape)) == 1280


def test_the_last_worlds_are_easy_where_that_is_asked_and_the_others_stay():
    worlds = draw_worlds(40, 7, easy=10)
    assert draw_worlds(**OLD) != worlds[:30] == draw_worlds(30, 7)
    for world in worlds[30:]:
        assert world["slip_probability"] <= 0.03
        assert world["forget_probability"] == 0
