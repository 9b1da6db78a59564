"""Test that stopped runs save a checkpoint, and that a resumed run matches an uninterrupted run."""

import errno
import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest
import torch
from resume_runs import make_trainer
from saved_checkpoints import checkpoint
from trainers import assert_bitwise_equal, weights
from transformers import TrainerControl

from trl_ces.support.locks import TRAINING_LOCK
from trl_ces.train.callbacks import RunFiles, SaveOnSigterm
from trl_ces.train.checkpoints import newest_checkpoint
from trl_ces.train.launch import WORKER, Launch, run_child, run_training
from trl_ces.train.recipe import make_recipe
from trl_ces.train.run import _known_problem


def test_a_run_resumed_after_sigterm_matches_an_uninterrupted_run(tmp_path):
    uninterrupted = make_trainer(tmp_path / "uninterrupted", save_strategy="no")
    uninterrupted.train()
    stopped = make_trainer(tmp_path / "stopped", save_strategy="no")  # SIGTERM still saves a checkpoint
    stop = SaveOnSigterm(stopped.accelerator)
    stopped.add_callback(stop)

    def send_sigterm(gradient):
        if stopped.state.global_step == 2:  # in the backward pass of the third step
            os.kill(os.getpid(), signal.SIGTERM)

    stopped.model.lm_head.weight.register_hook(send_sigterm)
    stopped.train()
    assert stop.stopped
    assert stopped.state.global_step == 3
    assert [folder.name for folder in (tmp_path / "stopped").glob("checkpoint-*")] == ["checkpoint-3"]
    resumed = make_trainer(tmp_path / "resumed", save_strategy="no")
    resumed.train(resume_from_checkpoint=str(tmp_path / "stopped" / "checkpoint-3"))
    assert_bitwise_equal(weights(resumed), weights(uninterrupted))


def test_the_previous_checkpoint_is_used_if_a_save_fills_the_disk(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path, save_steps=2, save_total_limit=1)
    trainer.add_callback(RunFiles(trainer.accelerator, lambda folder: None, overwrite=False))
    save = torch.save

    def failing_save(content, file, *args, **kwargs):
        if trainer.state.global_step == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        return save(content, file, *args, **kwargs)

    monkeypatch.setattr(torch, "save", failing_save)
    with pytest.raises(OSError, match="No space left") as caught:
        trainer.train()
    assert (tmp_path / "checkpoint-4").is_dir()
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    content = {"model_name_or_path": "m", "dataset_name": "d", "output_dir": str(tmp_path)}
    problem = _known_problem(caught.value, make_recipe(content, "test"))
    assert problem.startswith(f"The disk that holds {tmp_path} is full (")


def test_the_previous_checkpoint_is_kept_until_the_new_one_is_complete(tmp_path):
    trainer = make_trainer(tmp_path, save_steps=2, save_total_limit=1)

    def write(folder):
        if folder.name == "checkpoint-6":
            raise KeyboardInterrupt

    trainer.add_callback(RunFiles(trainer.accelerator, write, overwrite=False))
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert sorted(folder.name for folder in tmp_path.glob("checkpoint-*")) == ["checkpoint-4", "checkpoint-6"]
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-4"


def child_script(tmp_path, end):
    """Write a script that creates a file, waits for SIGTERM and then executes `end`."""
    script = tmp_path / "child.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import signal, sys, time
            signal.signal(signal.SIGTERM, lambda *_: {end})
            open(sys.argv[1], "w").close()
            while True:  # a signal just before a single long sleep would be handled only after the sleep
                time.sleep(0.1)
            """
        )
    )
    return script


@pytest.mark.parametrize(("end", "code"), [("sys.exit(0)", 0), ("sys.exit(3)", 143)])
def test_the_exit_code_after_sigterm_is_0_only_if_training_succeeds(tmp_path, end, code):
    started = tmp_path / "started"
    command = [sys.executable, str(child_script(tmp_path, end)), str(started)]
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"from trl_ces.train.launch import run_child; raise SystemExit(run_child({command!r}, {{}}))",
        ]
    )
    while not started.exists():
        assert parent.poll() is None
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(60) == code


def test_a_signal_during_startup_is_forwarded(tmp_path, monkeypatch):
    start = subprocess.Popen

    def start_and_signal(*args, **kwargs):
        child = start(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGTERM)
        return child

    monkeypatch.setattr("trl_ces.train.launch.subprocess.Popen", start_and_signal)
    assert run_child([sys.executable, "-c", "import time; time.sleep(600)"], {}) == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


class TwoProcesses:
    """Stub of an accelerator with two processes. `other` is True if the other process received SIGTERM."""

    num_processes, device = 2, "cpu"

    def __init__(self, other):
        self.other = other

    def reduce(self, value, reduction):
        assert reduction == "sum"
        return value + float(self.other)


@pytest.mark.parametrize(("here", "other", "stops"), [(True, False, True), (False, True, True), (False, False, False)])
def test_all_processes_stop_after_the_same_step(here, other, stops):
    stop = SaveOnSigterm(TwoProcesses(other))
    stop.signalled = here
    control = TrainerControl(should_evaluate=True)
    stop.on_step_end(None, None, control)
    assert (stop.stopped, control.should_save, control.should_training_stop) == (stops, stops, stops)
    assert control.should_evaluate != stops


ENDED = "pathlib.Path(os.environ['TRL_CES_REPORTED']).with_name('ended')"


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        (f"import os, pathlib; {ENDED}.touch()", 0, ""),
        ("raise SystemExit(0)", 1, "training ended with code 0 before the model was saved"),
        ("import os; os._exit(130)", 130, "training ended with code 130; see the first error"),
        (
            "raise SystemExit(1)",
            1,
            "training ended with code 1; see the first error above, if any.",
        ),
        ("import os; os.kill(os.getpid(), 9)", 137, "training was killed; see the first error"),
        # the process is a launcher, and its worker has already printed the error
        ("import os; open(os.environ['TRL_CES_REPORTED'], 'w'); raise SystemExit(1)", 2, ""),
    ],
    ids=["success", "exit 0", "exit 130", "exit 1", "killed", "reported"],
)
def test_the_error_for_a_killed_run_explains_how_to_resume(tmp_path, capfd, script, code, message):
    fields = {"model_name_or_path": "model", "dataset_name": "arithmetic", "output_dir": str(tmp_path)}
    recipe = make_recipe(fields, "recipe.yaml")
    os.utime(checkpoint(tmp_path, 12) / "trainer_state.json", (1, 1))  # from an earlier run
    (tmp_path / TRAINING_LOCK).touch()
    assert run_training(Launch(1, None, [sys.executable, "-c", script]), recipe) == code
    errors = capfd.readouterr().err
    assert message in errors
    hint = "This run has no checkpoint to resume from: start it again with `--overwrite_output_dir true`.\n"
    assert errors.count(hint) == bool(message)
    assert errors.count("\n") == bool(message)


def test_the_resume_hint_names_the_checkpoint_if_the_disk_clock_is_slow(tmp_path, capfd):
    fields = {"model_name_or_path": "model", "dataset_name": "arithmetic", "output_dir": str(tmp_path)}
    (tmp_path / TRAINING_LOCK).touch()
    os.utime(tmp_path / TRAINING_LOCK, (2, 2))
    script = f"import os; os.utime({str(checkpoint(tmp_path, 12) / 'trainer_state.json')!r}, (3, 3)); os._exit(1)"
    assert run_training(Launch(1, None, [sys.executable, "-c", script]), make_recipe(fields, "recipe.yaml")) == 1
    assert capfd.readouterr().err.endswith("with the same command and `--resume_from_checkpoint true`.\n")


# The worker saves and exits on Ctrl-C (SAVES), needs a second Ctrl-C (HANGS), or is still loading (LOADS).
SAVES = f"signal.signal(signal.SIGINT, lambda *_: ({ENDED}.touch(), os._exit(0)))"
HANGS, LOADS = "signal.signal(signal.SIGINT, signal.SIG_IGN)", "signal.signal(signal.SIGINT, lambda *_: os._exit(0))"


@pytest.mark.parametrize(("handler", "times"), [(SAVES, 1), (HANGS, 2), (LOADS, 1)], ids=["saves", "hangs", "loads"])
def test_ctrl_c_stops_the_training_processes_and_returns_130(tmp_path, capfd, handler, times):
    fields = {"model_name_or_path": "model", "dataset_name": "arithmetic", "output_dir": str(tmp_path)}
    (tmp_path / TRAINING_LOCK).touch()
    send = "os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5)\n" * times
    receive = "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])"
    script = f"import os, signal, time, pathlib\n{handler}\n{receive}\n{send}time.sleep(60)"
    command = [sys.executable, "-c", script, WORKER]
    assert run_training(Launch(1, None, command), make_recipe(fields, "recipe.yaml")) == 130
    assert "Traceback" not in capfd.readouterr().err


def test_closing_the_terminal_stops_the_training_processes(tmp_path):
    fields = {"model_name_or_path": "model", "dataset_name": "arithmetic", "output_dir": str(tmp_path)}
    (tmp_path / TRAINING_LOCK).touch()
    handler = f"signal.signal(signal.SIGTERM, lambda *_: ({ENDED}.touch(), os._exit(0)))"
    send = "os.kill(os.getppid(), signal.SIGHUP); time.sleep(60)"
    command = [sys.executable, "-c", f"import os, pathlib, signal, time\n{handler}\n{send}", WORKER]
    assert run_training(Launch(1, None, command), make_recipe(fields, "recipe.yaml")) == 129


def test_the_child_process_is_killed_with_its_parent(tmp_path):
    command = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
    code = f"from trl_ces.train.launch import run_child; run_child({command!r}, {{}})"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    assert not psutil.wait_procs([child], timeout=10)[1]
    parent.wait()
