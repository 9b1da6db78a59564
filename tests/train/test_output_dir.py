"""Test complete training runs in this process: output directory, lock, files and exits."""

import json
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from train_jobs import make_job
from trainers import tiny_trainer

from trl_ces.cli.main import main
from trl_ces.support.locks import TRAINING_LOCK, lock_file, write_pid
from trl_ces.train import launch, worker
from trl_ces.train.callbacks import SaveOnSigterm
from trl_ces.train.checkpoints import find_damage

REWARD = """
import os, signal, sys
calls = 0

def accuracy_reward(completions, **kwargs):
    global calls
    calls += 1
{body}
    return [float(len(text) % 2) for text in map(str, completions)]
"""


class Job:
    """A training job in `folder`. Its reward function runs `body`, and its worker runs in this process."""

    def __init__(self, folder, name):
        self.recipe, self.output = make_job(folder)
        self.module = folder / f"{name}.py"
        text = self.recipe.read_text()
        self.recipe.write_text(text.replace("[accuracy_reward,", f"[{name}.accuracy_reward,"))

    def train(self, *args, body="pass"):
        sys.modules.pop(self.module.stem, None)
        self.module.write_text(REWARD.format(body=textwrap.indent(body, "    ")))
        return main(["train", "--config", str(self.recipe), "--save_steps", "1", *map(str, args)])


@pytest.fixture
def job(tmp_path, monkeypatch, request):
    def train_here(command, env, received=None):
        for name, value in env.items():
            monkeypatch.setenv(name, str(value))
        return worker.main(command[command.index(launch.WORKER) + 1 :])

    monkeypatch.setattr(launch, "run_child", train_here)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return Job(tmp_path, f"reward_{abs(hash(request.node.name))}")


def contents(folder):
    """Map the files of a folder, except the lock, to their bytes."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != TRAINING_LOCK}


def test_a_checkpoint_contains_a_manifest_and_the_recipe(job):
    assert job.train() == 0
    folder = job.output / "checkpoint-1"
    names = set(json.loads((folder / "manifest.json").read_text()))
    assert {file.name for file in folder.iterdir()} == names | {"manifest.json"}
    assert {"recipe.yaml", "run.json", "optimizer.pt", "rng_state.pth", "rollout-0.safetensors"} <= names
    assert find_damage(folder) is None


@pytest.mark.parametrize(("local_rank", "count"), [("0", 1), ("1", 0)])
def test_one_process_per_node_prints_the_error(tmp_path, monkeypatch, capsys, local_rank, count):
    monkeypatch.setenv("RANK", "9")
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert worker.main(["--recipe", str(tmp_path / "missing.yaml")]) == 2
    assert capsys.readouterr().err.count("trl-ces train: error: ") == count


def test_a_failed_start_does_not_change_a_finished_run(job, capsys):
    assert job.train() == 0
    before = contents(job.output)
    assert job.train("--overwrite_output_dir", "true", "--seed", "3", body="raise ValueError('broken')") == 2
    assert job.train("--seed", "3") == 2
    assert "contains checkpoints of another run" in capsys.readouterr().err
    assert contents(job.output) == before


def test_overwriting_deletes_old_checkpoints_but_keeps_other_files(job, capsys):
    assert job.train("--max_steps", "3") == 0
    (job.output / "notes.txt").write_text("mine")
    (job.output / "checkpoint-best").mkdir()
    capsys.readouterr()
    assert job.train("--max_steps", "1", "--overwrite_output_dir", "true") == 0
    assert capsys.readouterr().out.count("Deleting checkpoint-1, checkpoint-2, checkpoint-3 from an earlier run") == 1
    assert sorted(folder.name for folder in job.output.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-best"]
    assert (job.output / "notes.txt").read_text() == "mine"
    assert "overwrite_output_dir" not in (job.output / "recipe.yaml").read_text()


def test_the_card_keeps_the_list_of_settings_changed_on_resume(job):
    assert job.train("--max_steps", "1") == 0
    resume = ("--resume_from_checkpoint", "true", "--seed", "7")
    assert job.train("--max_steps", "2", *resume) == 2
    assert job.train("--max_steps", "2", *resume, "--resume_with_changes", "true") == 0
    sentence = "Resumed at step 1 with changed settings: `seed` 7 instead of 42."
    assert sentence in (job.output / "README.md").read_text()
    assert job.train("--max_steps", "3", *resume) == 0
    assert (job.output / "README.md").read_text().count(sentence) == 1


def test_a_damaged_checkpoint_is_skipped_when_a_run_resumes(job, caplog, capsys):
    assert job.train("--max_steps", "3") == 0
    file = job.output / "checkpoint-3" / "rng_state.pth"
    content = bytearray(file.read_bytes())
    content[-200] ^= 1
    file.write_bytes(content)
    assert job.train("--max_steps", "4", "--resume_from_checkpoint", "true") == 0
    assert "checkpoint-3 is damaged (rng_state.pth has changed since it was saved)" in caplog.text
    state = json.loads((job.output / "trainer_state.json").read_text())
    assert [entry["step"] for entry in state["log_history"] if "loss" in entry] == [1, 2, 3, 4]


def test_two_runs_cannot_share_a_directory(job, capsys):
    job.output.mkdir()
    with lock_file(job.output / TRAINING_LOCK) as lock:
        write_pid(lock, 4711)
        assert job.train() == 2
    assert "Process 4711 is running in" in capsys.readouterr().err
    assert not list(job.output.glob("*.safetensors"))
    assert job.train() == 0


def test_the_lock_is_held_while_a_run_trains(job, tmp_path):
    probe = """
import subprocess
code = "from pathlib import Path; from trl_ces.support.locks import lock_file; lock_file(Path('out/.training.lock'))"
result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
open("probe", "w").write(result.stderr)
"""
    assert job.train("--max_steps", "1", body=probe.strip()) == 0
    assert f"Busy: Process {os.getpid()} is running in out" in (tmp_path / "probe").read_text()


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_error_for_a_reward_that_exits_names_the_reward(job, capsys, code):
    assert job.train(body=f"sys.exit({code})") == 2
    error = capsys.readouterr().err
    assert f"'accuracy_reward' raised SystemExit: {code}" in error
    assert not (job.output / "model.safetensors").exists()


def test_an_exit_outside_the_reward_is_an_error(job, monkeypatch, capsys):
    monkeypatch.setattr("trl_ces.train.run.load_datasets", lambda *_, **__: sys.exit(0))
    assert job.train() == 2
    assert "`sys.exit(0)` was called before the model was saved" in capsys.readouterr().err


def test_a_reward_may_change_the_working_directory_and_the_environment(job, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    environment = dict(os.environ)
    try:
        assert job.train("--output_dir", "out", body="os.chdir('/'); os.environ.clear()") == 0
    finally:
        os.environ.update(environment)
    assert {"model.safetensors", "checkpoint-2", "README.md"} <= {file.name for file in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_saves_a_checkpoint_after_the_current_step(job, capsys, signum):
    body = f"signal.signal({int(signum)}, signal.SIG_IGN) if calls == 1 else os.kill(os.getpid(), {int(signum)})"
    assert job.train("--save_strategy", "no", "--max_steps", "8", body=body) == 0
    printed = capsys.readouterr()
    assert f"Stopped by {signum.name} after step 3. Resume from " in printed.out
    assert "Traceback" not in printed.err
    assert find_damage(job.output / "checkpoint-3") is None
    assert job.train("--max_steps", "4", "--resume_from_checkpoint", "true") == 0


def test_the_signal_callback_does_not_handle_ctrl_c_by_default():
    before = signal.getsignal(signal.SIGINT)
    SaveOnSigterm(None)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_output_directory_of_a_trainer_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer = tiny_trainer("out", max_steps=1, save_strategy="steps", save_steps=1)
    monkeypatch.chdir("/")
    trainer.train()
    assert (tmp_path / "out" / "checkpoint-1" / "model.safetensors").is_file()
    assert Path(trainer.args.output_dir) == tmp_path / "out"
