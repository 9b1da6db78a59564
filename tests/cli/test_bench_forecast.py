"""`trl-ces bench forecast`: the protocol's worlds, its measure and its table; one world from base model to table."""

import csv
import json
import math
import runpy
from pathlib import Path

import pandas
import pytest

from trl_ces.cli.main import main
from trl_ces.forks.forecast_text import CAME_TRUE, FELL
from trl_ces.toy.arithmetic import World, load_problems

BENCH = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "forecast.py"))


def test_inspect_says_how_often_each_verdict_came_true_in_the_published_test():
    with (Path(__file__).parents[2] / "docs" / "study" / "forecast" / "worlds.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if abs(float(row["change"])) > float(row["error"])]
    for verdict, (true, told) in CAME_TRUE.items():
        signs = [float(row["change"]) < 0 for row in rows if row["verdict"] == verdict]
        assert (signs.count(verdict == "shortens"), len(signs)) == (true, told)
    assert (sum(float(row["change"]) < 0 for row in rows), len(rows)) == FELL


def test_the_worlds_are_the_same_thirty_within_the_ranges_and_have_problems_enough():
    worlds = BENCH["draw_worlds"]()
    assert len(worlds) == 30
    assert BENCH["draw_worlds"](31)[:30] == worlds
    assert worlds[4] == {
        "seed": 5,
        "digits": 3,
        "min_terms": 2,
        "max_terms": 2,
        "check_probability": 0.59,
        "slip_probability": 0.23,
        "forget_probability": 0.86,
    }
    for world in worlds:
        World(**{name: value for name, value in world.items() if name != "seed"})
        assert 0.1 <= world["check_probability"] <= 0.65
        assert 0.05 <= world["slip_probability"] <= 0.4
        assert world["forget_probability"] == 0 or (0.3 <= world["forget_probability"] <= 0.9 and world["digits"] > 1)
    assert sum(world["forget_probability"] > 0 for world in worlds) == 10
    for shape in {tuple(BENCH["problems_of"](world).items()) for world in worlds}:
        assert len(load_problems("held_out", 200, 0, **dict(shape))) == 200
        assert len(load_problems("train", 1280, 0, **dict(shape))) == 1280


def test_the_change_is_paired_by_problem_and_its_error_covers_problems_and_seeds():
    before, after = [10.0, 20.0, 30.0], [[8.0, 20.0, 26.0], [10.0, 18.0, 30.0]]
    # One seed: changes -2, 0, -4; variance 4, over 3 problems.
    assert BENCH["change_of"](before, after[:1]) == (-2.0, pytest.approx(math.sqrt(4 / 3)))
    # Two: per problem -1, -1, -2; variance 1/3 over 3; the seeds' means 18 and 58/3 have variance 8/9, over 2.
    assert BENCH["change_of"](before, after) == (pytest.approx(-4 / 3), pytest.approx(math.sqrt(1 / 9 + 4 / 9)))


def write_world(folder, number, forecast, dapo, ces):
    """A finished world whose ten problems had 20 tokens before, and now have those given, half of them one more."""
    place = folder / f"world-{number:02}"
    place.mkdir(parents=True)

    def lengths(value):
        return {"accuracy": 0.5, "lengths": [value + (row % 2) for row in range(10)]}

    files = {"setup": {"seeds": 1}, "forecast": forecast, "before": {"accuracy": 0.5, "lengths": [20.0] * 10}}
    for name, content in (files | {"dapo-0": lengths(dapo), "ces-0": lengths(ces)}).items():
        (place / f"{name}.json").write_text(json.dumps(content))


def test_a_world_is_a_hit_if_its_sign_is_right_and_is_left_out_if_nothing_changed(tmp_path):
    def said(change, verdict):
        return {"change": change, "error": 0.5, "verdict": verdict}

    write_world(tmp_path, 1, {"DAPO": said(-3, "shortens"), "CES": said(2, "lengthens")}, dapo=15.0, ces=15.0)
    write_world(tmp_path, 3, {"DAPO": said(-0.1, "cannot tell"), "CES": said(-4, "shortens")}, dapo=18.0, ces=19.5)
    rows = BENCH["results"](tmp_path, BENCH["draw_worlds"]())
    assert [(row["number"], row["method"], row["hit"]) for row in rows] == [
        (1, "DAPO", True),
        (1, "CES", False),
        (3, "DAPO", True),
        (3, "CES", None),
    ]
    assert rows[0]["change"] == pytest.approx(-4.5)
    table = BENCH["report"](rows)
    assert "| DAPO | 2 | 2 | 2 | 100 % | 1 | 1 | 2 |" in table
    assert "| CES | 2 | 1 | 0 | 0 % | 1 | 0 | 1 |" in table
    assert "| both | 4 | 3 | 2 | 67 % | 2 | 1 | 3 |" in table
    assert table.count("**miss**") == table.count("no change") == 1


def test_a_world_that_was_run_with_other_settings_is_refused(tmp_path, capsys):
    write_world(tmp_path, 1, {}, dapo=15.0, ces=15.0)
    assert main(["bench", "forecast", "--output_dir", str(tmp_path), "--last", "1"]) == 2
    assert "world-01 was run with other settings: name another --output_dir." in capsys.readouterr().err


@pytest.mark.slow
def test_a_world_runs_from_its_base_model_to_the_table_and_is_not_run_twice(tmp_path, capsys):
    small = ["--base_steps", "20", "--steps", "4", "--prompts", "4", "--samples", "4"]
    words = ["bench", "forecast", "--output_dir", str(tmp_path), "--last", "1", *small]
    assert main(words) == 0
    table = capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "worlds.csv").open()))
    assert [row["method"] for row in rows] == ["DAPO", "CES"]
    assert rows[0]["length_before"] == rows[1]["length_before"]
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.json")}
    assert main(words) == 0
    assert capsys.readouterr().out == table
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.json")} == files


def test_the_documentation_shows_the_table_of_the_thirty_worlds_as_they_were_measured():
    docs = Path(__file__).parents[2] / "docs"
    rows = pandas.read_csv(docs / "study" / "forecast" / "worlds.csv").to_dict("records")
    for row in rows:
        row["hit"] = None if pandas.isna(row["hit"]) else bool(row["hit"])
    worlds = BENCH["draw_worlds"]()
    for method in BENCH["METHODS"]:
        assert [{name: row[name] for name in worlds[0]} for row in rows if row["method"] == method] == worlds
    page = (docs / "study" / "forecast.md").read_text(encoding="utf-8")
    for part in BENCH["report"](rows).split("\n\n"):
        assert part in page
