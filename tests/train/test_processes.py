"""Test how `trl-ces train` handles signals and exits of its processes."""

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
from processes import environment
from train_jobs import make_job

from trl_ces.train.checkpoints import find_damage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

REWARD = """
import os, sys, time

def accuracy_reward(completions, **kwargs):
    {body}
    return [float(len(str(text)) % 2) for text in completions]
"""


class Run:
    """Run `trl-ces train` as the leader of a process group, as a terminal does."""

    def __init__(self, folder, processes, body, *args):
        self.recipe, self.output = make_job(folder)
        (folder / "job_reward.py").write_text(REWARD.format(body=body))
        text = self.recipe.read_text().replace("[accuracy_reward,", "[job_reward.accuracy_reward,")
        self.recipe.write_text(text)
        self.log_file = (folder / "log").open("w+")
        args = ["--max_steps", "500", "--save_steps", "2", "--num_processes", str(processes), *args]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trl_ces.cli.main", "train", "--config", str(self.recipe), *args],
            cwd=folder,
            env=environment(),
            stdout=self.log_file,
            stderr=self.log_file,
            start_new_session=True,
        )

    def wait_for(self, step):
        while not list(self.output.glob(f"checkpoint-{step}/manifest.json")):
            assert self.process.poll() is None, self.read_log()
            time.sleep(0.1)

    def wait(self):
        code = self.process.wait(600)
        return code, self.read_log()

    def read_log(self):
        self.log_file.seek(0)
        return self.log_file.read()


def survivors(processes):
    """Wait up to 20 s for `processes` to end, and return the processes that are still running."""
    _, alive = psutil.wait_procs(processes, timeout=20)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_saves_a_checkpoint_and_ends_without_a_traceback(tmp_path, processes):
    run = Run(tmp_path, processes, "pass")
    run.wait_for(2)
    os.killpg(run.process.pid, signal.SIGINT)
    code, log = run.wait()
    assert code == 130, log
    assert "Traceback" not in log
    [step] = re.findall(r"Stopped by SIGINT after step (\d+)\. Resume from ", log)
    assert find_damage(run.output / f"checkpoint-{step}") is None


@pytest.mark.parametrize("processes", [1, 2])
def test_a_second_ctrl_c_ends_all_processes_immediately(tmp_path, processes):
    run = Run(tmp_path, processes, "open('calls', 'a').write('x'); time.sleep(3600)")
    while not (tmp_path / "calls").exists():
        assert run.process.poll() is None, run.read_log()
        time.sleep(0.1)
    children = psutil.Process(run.process.pid).children(recursive=True)
    for _ in range(2):
        os.killpg(run.process.pid, signal.SIGINT)
        time.sleep(0.5)
    code, log = run.wait()
    assert code == 130
    assert "Traceback" not in log
    assert survivors(children) == []


def test_ctrl_c_during_imports_ends_without_a_traceback(tmp_path):
    run = Run(tmp_path, 1, "pass")
    while not psutil.Process(run.process.pid).children():
        assert run.process.poll() is None, run.read_log()
        time.sleep(0.05)
    os.killpg(run.process.pid, signal.SIGINT)
    code, log = run.wait()
    assert (code, "Traceback" in log) == (130, False)
    assert not list(run.output.glob("*.json"))


@pytest.mark.parametrize("processes", [1, 2])
def test_training_processes_end_when_the_command_is_killed(tmp_path, processes):
    run = Run(tmp_path, processes, "pass")
    run.wait_for(2)
    children = psutil.Process(run.process.pid).children(recursive=True)
    run.process.kill()
    assert len(children) >= processes
    assert survivors(children) == []


@pytest.mark.parametrize("processes", [1, 2])
def test_the_error_for_a_reward_that_ends_the_process_names_the_cause(tmp_path, processes):
    run = Run(tmp_path, processes, "os._exit(0)")
    code, log = run.wait()
    assert code == 1
    assert "training ended with code 0 before the model was saved (did a reward function call `os._exit`?)" in log


@pytest.mark.parametrize("call", ["sys.exit(0)", "os._exit(0)"])
def test_an_exit_of_one_of_two_processes_is_an_error(tmp_path, call):
    run = Run(tmp_path, 2, f"os.environ['RANK'] == '1' and {call}")
    code, log = run.wait()
    assert code in (1, 2)
    assert "trl-ces train: error: " in log


def test_a_second_run_in_the_same_directory_is_rejected(tmp_path):
    first = Run(tmp_path, 1, "pass")
    try:
        first.wait_for(2)
        second = Run(tmp_path, 1, "pass", "--resume_from_checkpoint", "true")
        code, log = second.wait()
        assert code == 2
        assert re.search(r"Process \d+ is running in ", log)
    finally:
        first.process.terminate()
    assert first.wait()[0] == 0
