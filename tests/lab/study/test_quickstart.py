"""The quickstart reports its measurements and trains with `trl-ces train`."""

import ast
import json
import math
import os
import sys
import tomllib
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path

import pandas
import psutil
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scipy import stats

from trl_ces.cli import quickstart as command
from trl_ces.lab.study import quickstart
from trl_ces.support.errors import UserError
from trl_ces.train.arguments import read_words
from trl_ces.train.recipe import load_recipe

ROOT = Path(__file__).parents[3]
MEASURES = {
    "before": {"accuracy": 0.81, "length_tokens": 23.5, "entropy_bits": 0.127},
    "DAPO": {"accuracy": 0.9, "length_tokens": 20.0, "entropy_bits": 0.08},
    "CES": {"accuracy": 0.95, "length_tokens": 18.0, "entropy_bits": 0.02},
    "ces_correct_only": {"accuracy": 0.96, "length_tokens": 19.0, "entropy_bits": 0.04},
}


def test_the_table_shows_units_and_the_bands_of_each_model(monkeypatch):
    bands = {"DAPO": ((83, 100), (17.14, 21), (0.03, 0.1)), "CES": ((84.4, 99), (17, 18), (0.01, 0.06))}
    monkeypatch.setattr(quickstart, "BANDS", {"before": ((73, 87), (22, 24), (0.1, 0.2)), **bands})
    assert quickstart.table(MEASURES).splitlines() == [
        "|                           |         before |           DAPO |            CES | ces_correct_only |",
        "|---------------------------|---------------:|---------------:|---------------:|-----------------:|",
        "| accuracy, %               |           81.0 |           90.0 |           95.0 |             96.0 |",
        "| 95 % of runs              |   73.0 to 87.0 |  83.0 to 100.0 |   84.4 to 99.0 |                  |",
        "| completion length, tokens |           23.5 |           20.0 |           18.0 |             19.0 |",
        "| 95 % of runs              |   22.0 to 24.0 |   17.1 to 21.0 |   17.0 to 18.0 |                  |",
        "| entropy, bits per token   |          0.127 |          0.080 |          0.020 |            0.040 |",
        "| 95 % of runs              | 0.100 to 0.200 | 0.030 to 0.100 | 0.010 to 0.060 |                  |",
    ]


def test_rounded_results_outside_their_band_are_listed(monkeypatch):
    wide = ((0.0, 100.0), (0.0, 99.0), (0.0, 1.0))
    monkeypatch.setattr(quickstart, "BANDS", {"before": wide, "DAPO": wide, "CES": ((95.1, 96.0), *wide[1:])})
    results_inside = MEASURES | {"CES": {**MEASURES["CES"], "accuracy": 0.95051}}
    assert quickstart.outside_bands(results_inside) == "All results lie within the expected 95 % range."
    results_outside = MEASURES | {"DAPO": {**MEASURES["DAPO"], "length_tokens": 99.2}}
    assert "range: completion length of DAPO, accuracy of CES." in quickstart.outside_bands(results_outside)


def test_the_bands_are_prediction_intervals_over_the_seeds_of_the_study():
    rows = pandas.read_csv(ROOT / "experiments/arithmetic/results.csv")
    for name, method in (("before", "Before training"), ("DAPO", "DAPO"), ("CES", "CES")):
        runs = rows[rows["method"] == method]
        expected = []
        for column, (_, factor, digits) in quickstart.TABLE_ROWS.items():
            values = factor * runs[column].to_numpy()
            mean, spread = values.mean(), values.std(ddof=1) * (1 + 1 / len(values)) ** 0.5
            half_width = stats.t.ppf(0.975, len(values) - 1) * spread
            unit = 10**digits  # the ends are rounded outward
            ends = math.floor((mean - half_width) * unit) / unit, math.ceil((mean + half_width) * unit) / unit
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


def test_failed_training_error_shows_the_last_log_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "METHODS", {"DAPO": ["arithmetic", "dapo"]})
    monkeypatch.setattr(quickstart, "WORKER", "no_worker")
    monkeypatch.setattr("trl_ces.lab.tasks.arithmetic_model.make_base_model", lambda *args, **settings: None)
    monkeypatch.setattr("trl_ces.lab.tasks.arithmetic_evaluation.measure", lambda *args: ({}, []))
    (tmp_path / "dapo.log").write_text("log of an earlier run\n")
    assert command.run(["--output_dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"DAPO stopped with exit code 1. The last line of {tmp_path}/dapo.log: ")
    assert error.endswith("No module named no_worker")
    assert len((tmp_path / "dapo.log").read_text().splitlines()) == 1


def test_all_methods_train_at_once_and_a_failed_run_stops_the_others(tmp_path, monkeypatch, capsys):
    (tmp_path / "worker.py").write_text(
        "import os, sys, time\nfrom pathlib import Path\nfile = Path(__file__).with_name('pid')\n"
        "if 'correct_only' in sys.argv[-1]:\n    file.with_suffix('.new').write_text(str(os.getpid()))\n"
        "    file.with_suffix('.new').rename(file)\nwhile not file.exists():\n    time.sleep(0.1)\n"
        "if sys.argv[-1].endswith('/ces.yaml'):\n    sys.exit('failed')\ntime.sleep(100_000)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(quickstart, "WORKER", "worker")
    monkeypatch.setattr("trl_ces.lab.tasks.arithmetic_model.make_base_model", lambda *args, **settings: None)
    monkeypatch.setattr("trl_ces.lab.tasks.arithmetic_evaluation.measure", lambda *args: ({}, []))
    assert command.run(["--output_dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("\nCES stopped with exit code 1. ")
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_the_progress_line_shows_all_runs_and_fits_the_terminal(tmp_path, monkeypatch, capsys):
    runs = [quickstart.training(method, tmp_path / method, {}) for method in quickstart.METHODS]
    runs[0].steps[0].log.write_text("  1%|  | 1/160 [00:01<01:00]\r 25%|##  | 40/160 [00:40<02:00, 81.0 % correct]")
    assert quickstart.progress(runs, 160) == "DAPO 40, CES 0, ces_correct_only 0 of 160"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 24)))
    command.StageLine("2/3  Train three methods").show("step " * 20)
    assert len(capsys.readouterr().out.removeprefix("\r\x1b[K")) == 79
    # The longest line that the quickstart shows is not truncated.
    assert len("2/3  Train three methods ... DAPO 160, CES 160, ces_correct_only 160 of 160") < 80


def test_the_suggested_commands_are_valid():
    commands = [line.split() for line in command.NEXT.replace("\\\n", "").splitlines() if line.startswith("  trl-ces")]
    assert [words[1] for words in commands] == ["inspect", "train"]
    recipe = load_recipe([], read_words(commands[1][2:]).overrides)
    assert recipe.setting("ces_beta_incorrect") == 0
    assert recipe.script.reward_funcs == ["accuracy_reward"]


def test_the_quickstart_environment_contains_every_imported_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    to_visit = [*project["dependencies"], *extras["quickstart"], *extras["lab"]]
    installed = set()
    while to_visit:
        requirement = Requirement(to_visit.pop())
        name = canonicalize_name(requirement.name)
        if name not in installed and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            installed.add(name)
            with suppress(metadata.PackageNotFoundError):
                to_visit += metadata.requires(name) or []
    imported = set()
    for file in (ROOT / "trl_ces").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            imported |= {name.split(".")[0] for name in names}
    owners = metadata.packages_distributions()
    gpu_packages = {"vllm", "deepspeed"}
    missing = {
        name
        for name in imported - set(sys.stdlib_module_names) - gpu_packages - {"trl_ces"}
        if not installed & {canonicalize_name(owner) for owner in owners.get(name, ())}
    }
    assert {"scipy", "matplotlib", "reasoning-gym"} <= installed
    assert missing == set()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_small_quickstart_completes(tmp_path, capsys, monkeypatch):
    small = partial(quickstart.quickstart, base_steps=300, rl_steps=8, num_problems=10)
    monkeypatch.setattr(quickstart, "quickstart", small)
    assert command.run(["--output_dir", str(tmp_path), "--seed", "3"]) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines() if "/3 " in line] == ["1/3", "2/3", "3/3"]
    assert "| accuracy, %" in printed.out
    assert printed.out.endswith(f"{command.NEXT}\n")
    assert "{'" not in printed.out  # the Trainer prints no log lines
    assert "Warning" not in printed.err
    numbers = json.loads((tmp_path / "quickstart.json").read_text())
    assert (numbers["seed"], set(numbers["CES"])) == (3, {"accuracy", "length_tokens", "entropy_bits"})
    assert (tmp_path / "quickstart.png").stat().st_size > 10_000
    dapo, ces, correct_only = (
        quickstart.read_curves(tmp_path / name, "arithmetic_accuracy_reward")
        for name in ("dapo", "ces", "ces_correct_only")
    )
    assert dapo["step"] == ces["step"] == correct_only["step"] == [4, 8]
    # The runs have the same model, seed and problems, so only later rollouts differ.
    assert (dapo["accuracy"][0], dapo["length"][0]) == (ces["accuracy"][0], ces["length"][0])
    assert dapo["entropy"] != ces["entropy"] != correct_only["entropy"] != dapo["entropy"]
    history = json.loads((tmp_path / "ces" / "trainer_state.json").read_text())["log_history"]
    assert any("ces/selected_tokens" in entry for entry in history)
