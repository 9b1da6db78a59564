"""The quickstart's numbers come from the right places, and the whole of it runs through `trl-ces train`."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from functools import partial

import pytest

from trl_ces.cli import quickstart as command
from trl_ces.study import quickstart
from trl_ces.support.errors import UserError
from trl_ces.toy.arithmetic_evaluation import Measurement


def found(accuracy, length, entropy_bits, text="7+8=15,3+4+1=8#85"):
    return Measurement(accuracy, length, entropy_bits, ["37+48:"] * 3, [[text, "#85", "#84"]] * 3)


MEASURED = {
    "before": found(0.81, 23.5, 0.127, "7+8=16,3+4+1=8#86"),
    "DAPO": found(0.9, 20.0, 0.08),
    "CES": found(0.95, 18.0, 0.02),
}


def test_the_table_has_a_row_for_each_model_with_its_units():
    rows = [line.split() for line in quickstart.table(MEASURED).splitlines()]
    assert rows == [
        ["accuracy", "answer", "length", "entropy"],
        ["%", "tokens", "bits", "per", "token"],
        ["before", "81.0", "23.5", "0.127"],
        ["DAPO", "90.0", "20.0", "0.080"],
        ["CES", "95.0", "18.0", "0.020"],
    ]


def test_the_gain_says_it_whichever_way_it_is():
    assert "accuracy +5.0 points, answer length -10 %, entropy -75 %" in quickstart.gain(MEASURED)
    worse = MEASURED | {"CES": found(0.8, 22.0, 0.1)}
    assert "accuracy -10.0 points, answer length +10 %, entropy +25 %" in quickstart.gain(worse)


def test_examples_show_the_first_answer_and_how_many_of_all_are_right():
    lines = [line.split(maxsplit=2) for line in quickstart.examples(MEASURED).splitlines()[1:]]
    problem = [
        ["37+48:"],
        ["before", "7+8=16,3+4+1=8#86", "1 of 3 answers right"],
        ["DAPO", "7+8=15,3+4+1=8#85", "2 of 3 answers right"],
        ["CES", "7+8=15,3+4+1=8#85", "2 of 3 answers right"],
    ]
    assert lines == 3 * problem


def test_missing_matplotlib_is_one_sentence_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(quickstart, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install \"trl_ces\[quickstart\]\""):
        command.run(["--output_dir", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_failed_training_is_told_with_its_log(tmp_path, monkeypatch, capsys):
    def fail(recipe, overrides, log, steps, stage):
        log.write_text("one\nthe reason\n")
        return 3

    monkeypatch.setattr(quickstart, "run_training", fail)
    monkeypatch.setattr(quickstart, "make_base", lambda folder, *rest: folder.mkdir(parents=True))
    assert command.run(["--output_dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.strip() == f"DAPO stopped with exit code 3. The last line of {tmp_path}/dapo.log: the reason"


@pytest.mark.slow
def test_the_whole_quickstart_runs_in_small(tmp_path, capsys, monkeypatch):
    assert importlib.util.find_spec("matplotlib") is not None
    whole = quickstart.quickstart

    def run(rl_steps):
        small = partial(whole, base_steps=20, rl_steps=rl_steps, num_problems=10)
        monkeypatch.setattr(quickstart, "quickstart", small)
        return command.run(["--output_dir", str(tmp_path), "--seed", "3"])

    assert run(rl_steps=8) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines() if "/4 " in line] == ["1/4", "2/4", "3/4", "4/4"]
    assert "{'" not in printed.out  # none of the trainer's own lines
    assert "Warning" not in printed.err
    numbers = json.loads((tmp_path / "quickstart.json").read_text())
    assert numbers["seed"] == 3
    assert (tmp_path / "quickstart.png").stat().st_size > 10_000
    for name in ("dapo", "ces"):
        assert quickstart.read_curves(tmp_path / name, "arithmetic_accuracy_reward")["step"] == [4, 8]
    dapo, ces = (quickstart.read_curves(tmp_path / name, "arithmetic_accuracy_reward") for name in ("dapo", "ces"))
    # the same start, seed and problems: the first rollout is the same, and only then do the two part
    assert (dapo["accuracy"][0], dapo["length"][0]) == (ces["accuracy"][0], ces["length"][0])
    assert dapo["entropy"] != ces["entropy"]
    history = json.loads((tmp_path / "ces" / "trainer_state.json").read_text())["log_history"]
    assert any("ces/selected_tokens" in entry for entry in history)
    assert run(rl_steps=4) == 0
    assert "(kept from before)" in capsys.readouterr().out


def test_a_terminated_quickstart_takes_its_training_with_it(tmp_path):
    """The child stands in for `trl-ces train`: it writes its number and would live for ten minutes."""
    script = f"""
import subprocess, sys
from pathlib import Path
from trl_ces.cli.quickstart import StageLine
from trl_ces.study import quickstart
start = subprocess.Popen
def sleeper(command, **options):
    child = start([sys.executable, "-c", "import time; time.sleep(600)"], **options)
    Path({str(tmp_path)!r}, "pid").write_text(str(child.pid))
    return child
subprocess.Popen = sleeper
quickstart.run_training("recipe", [], Path({str(tmp_path)!r}, "log"), 10, StageLine("1/1", "it"))
"""
    quickstart = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert quickstart.poll() is None
        time.sleep(0.1)
    time.sleep(0.5)  # the handler is in place right after the start
    quickstart.terminate()
    assert quickstart.wait(timeout=60) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
