"""The quickstart reports the numbers that it measures, and trains with `trl-ces train`."""

import json
import math
from functools import partial
from pathlib import Path

import pandas
import pytest
from scipy import stats

from trl_ces.cli import quickstart as command
from trl_ces.lab.study import quickstart
from trl_ces.support.errors import UserError

ROOT = Path(__file__).parents[3]
MEASURES = {
    "before": {"accuracy": 0.81, "length_tokens": 23.5, "entropy_bits": 0.127},
    "DAPO": {"accuracy": 0.9, "length_tokens": 20.0, "entropy_bits": 0.08},
    "CES": {"accuracy": 0.95, "length_tokens": 18.0, "entropy_bits": 0.02},
}


def test_the_table_shows_units_and_the_bands_of_each_model(monkeypatch):
    bands = {"DAPO": ((83, 100), (17.14, 21), (0.03, 0.1)), "CES": ((84.4, 99), (17, 18), (0.01, 0.06))}
    monkeypatch.setattr(quickstart, "BANDS", {"before": ((73, 87), (22, 24), (0.1, 0.2)), **bands})
    assert quickstart.table(MEASURES).splitlines() == [
        "|                           |         before |           DAPO |            CES |",
        "|---------------------------|---------------:|---------------:|---------------:|",
        "| accuracy, %               |           81.0 |           90.0 |           95.0 |",
        "| 95 % of runs              |   73.0 to 87.0 |  83.0 to 100.0 |   84.4 to 99.0 |",
        "| completion length, tokens |           23.5 |           20.0 |           18.0 |",
        "| 95 % of runs              |   22.0 to 24.0 |   17.1 to 21.0 |   17.0 to 18.0 |",
        "| entropy, bits per token   |          0.127 |          0.080 |          0.020 |",
        "| 95 % of runs              | 0.100 to 0.200 | 0.030 to 0.100 | 0.010 to 0.060 |",
    ]


def test_results_outside_their_band_are_listed_after_rounding(monkeypatch):
    wide = ((0.0, 100.0), (0.0, 99.0), (0.0, 1.0))
    monkeypatch.setattr(quickstart, "BANDS", {"before": wide, "DAPO": wide, "CES": ((95.1, 96.0), *wide[1:])})
    inside = MEASURES | {"CES": {**MEASURES["CES"], "accuracy": 0.95051}}
    assert quickstart.outside_bands(inside) == "All results lie within the expected 95 % range."
    outside = MEASURES | {"DAPO": {**MEASURES["DAPO"], "length_tokens": 99.2}}
    assert "range: completion length of DAPO, accuracy of CES." in quickstart.outside_bands(outside)


def test_the_bands_are_prediction_intervals_over_the_seeds_of_the_study():
    rows = pandas.read_csv(ROOT / "experiments/arithmetic/results.csv")
    for name, method in (("before", "Before training"), ("DAPO", "DAPO"), ("CES", "CES")):
        runs = rows[rows["method"] == method]
        expected = []
        for column, (_, factor, digits) in quickstart.SHOWN.items():
            values = factor * runs[column].to_numpy()
            mean, spread = values.mean(), values.std(ddof=1) * (1 + 1 / len(values)) ** 0.5
            half = stats.t.ppf(0.975, len(values) - 1) * spread
            unit = 10**digits  # rounded outwards
            ends = math.floor((mean - half) * unit) / unit, math.ceil((mean + half) * unit) / unit
            expected.append((max(ends[0], 0.0), min(ends[1], 100.0)))
        assert quickstart.BANDS[name] == tuple(expected)


def test_examples_show_the_first_completion_and_count_correct_completions():
    completions = {"before": [["7+8=16#86", "#85", "#84"], ["#1"]], "CES": [["7+8=15#85", "#85", "#84"], ["#1"]]}
    lines = quickstart.examples(["37+48:", "0+1:"], ["85", "2"], completions, count=1).splitlines()[1:]
    assert [line.split(maxsplit=2) for line in lines] == [
        ["37+48:"],
        ["before", "7+8=16#86", "1 of 3 completions correct"],
        ["CES", "7+8=15#85", "2 of 3 completions correct"],
    ]


def test_missing_matplotlib_is_reported_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(quickstart, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"matplotlib: pip install .*\[quickstart\]"):
        command.run(["--output_dir", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_failed_training_is_reported_with_the_last_line_of_its_log(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "METHODS", {"DAPO": ["no_recipe"]})
    monkeypatch.setattr("trl_ces.lab.tasks.arithmetic_model.make_base_model", lambda *args, **settings: None)
    (tmp_path / "dapo.log").write_text("log of an earlier run\n")
    assert command.run(["--output_dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith(
        f"DAPO stopped with exit code 2. The last line of {tmp_path}/dapo.log: trl-ces train: error:"
    )
    assert "no_recipe" in error
    assert len((tmp_path / "dapo.log").read_text().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_small_quickstart_completes(tmp_path, capsys, monkeypatch):
    small = partial(quickstart.quickstart, base_steps=20, rl_steps=8, num_problems=10)
    monkeypatch.setattr(quickstart, "quickstart", small)
    assert command.run(["--output_dir", str(tmp_path), "--seed", "3"]) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines() if "/4 " in line] == ["1/4", "2/4", "3/4", "4/4"]
    assert "| accuracy, %" in printed.out
    assert "trl-ces train --config smollm2_135m" in printed.out
    assert "{'" not in printed.out  # the Trainer prints no log lines
    assert "Warning" not in printed.err
    numbers = json.loads((tmp_path / "quickstart.json").read_text())
    assert (numbers["seed"], set(numbers["CES"])) == (3, {"accuracy", "length_tokens", "entropy_bits"})
    assert (tmp_path / "quickstart.png").stat().st_size > 10_000
    dapo, ces = (quickstart.read_curves(tmp_path / name, "arithmetic_accuracy_reward") for name in ("dapo", "ces"))
    assert dapo["step"] == ces["step"] == [4, 8]
    # Model, seed and problems are the same, so the first rollout is the same. Later rollouts differ.
    assert (dapo["accuracy"][0], dapo["length"][0]) == (ces["accuracy"][0], ces["length"][0])
    assert dapo["entropy"] != ces["entropy"]
    history = json.loads((tmp_path / "ces" / "trainer_state.json").read_text())["log_history"]
    assert any("ces/selected_tokens" in entry for entry in history)
