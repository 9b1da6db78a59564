"""Runs of a study are concurrent and independent, stop together, and never share a folder."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from trl_ces.cli import study as command
from trl_ces.lab.study.cells import load_study
from trl_ces.lab.study.processes import LOCK, Pending, Step, run_all
from trl_ces.lab.study.run import prepare
from trl_ces.support.errors import UserError
from trl_ces.support.files import write_json
from trl_ces.support.locks import lock_file, write_pid
from trl_ces.train import launch

ROOT = Path(__file__).parents[3]
# Child processes import the source tree under test, not an installed package.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def shell_run(tmp_path, name, *scripts):
    """Make a run with shell scripts as its steps."""
    folder = tmp_path / name
    steps = [Step(["sh", "-c", text], folder / "log") for text in scripts]
    return Pending(name, folder, steps, {"CELL": name})


def test_runs_are_concurrent_and_each_slot_has_its_own_devices(tmp_path):
    # Each run waits until a second run has started, so running them sequentially would hang.
    wait_for_two_runs = (
        "echo $CELL $SLOT > out; touch ../$CELL.on; until [ $(ls ../*.on | wc -l) -ge 2 ]; do sleep 0.05; done"
    )
    done = []
    runs = [shell_run(tmp_path, name, f"cd {tmp_path}/{name}; {wait_for_two_runs}", "echo second") for name in "abcd"]

    def on_finish(name):
        done.append((name, (tmp_path / name / "log").read_text()))

    assert run_all(runs, [{"SLOT": "x"}, {"SLOT": "y"}], on_finish) == []
    assert sorted(done) == [(name, "second\n") for name in "abcd"]  # the second step runs after the first
    slots = {name: (tmp_path / name / "out").read_text().split()[1] for name in "abcd"}
    assert {slots["a"], slots["b"]} == {"x", "y"} == set(slots.values())


def test_a_failure_does_not_stop_other_runs(tmp_path):
    done, reported = [], []

    def on_finish(name):
        if name == "no row":
            raise KeyError("accuracy")
        done.append(name)

    runs = [
        shell_run(tmp_path, "bad", "echo the reason; exit 3", f"touch {tmp_path}/never"),
        shell_run(tmp_path, "killed", "kill -9 $$"),
        shell_run(tmp_path, "no row", "true"),
        shell_run(tmp_path, "late", "true"),
        shell_run(tmp_path, "good", "true"),
    ]
    object.__setattr__(runs[3].steps[0], "after", lambda: 1 / 0)
    failures = run_all(runs, [{}], on_finish, lambda failure: reported.append((failure.name, list(done))))
    assert [(failure.name, failure.code) for failure in failures] == [
        ("bad", 3),
        ("killed", 137),
        ("no row", 1),
        ("late", 1),
    ]
    assert [failure.log.read_text().splitlines()[-1:] for failure in failures] == [
        ["the reason"],
        [],
        ["KeyError: 'accuracy'"],
        ["ZeroDivisionError: division by zero"],
    ]
    assert done == ["good"]
    assert reported[0] == ("bad", [])  # reported before the other runs finish
    assert not (tmp_path / "never").exists()


@pytest.mark.timeout(120)
def test_a_signal_ends_all_runs_and_descendants_in_other_sessions(tmp_path):
    pid_file = tmp_path / "pid"
    # The child has a separate session, like torchrun's workers, and ignores the signal.
    script = (
        f"setsid sh -c 'trap \"\" TERM; echo $$ > {pid_file}; sleep 600' & sleep 1; kill -TERM {os.getpid()}; wait"
    )
    runs = [shell_run(tmp_path, "a", script), shell_run(tmp_path, "b", "sleep 600")]
    with pytest.raises(SystemExit, match="143"):
        run_all(runs, [{}, {}], grace_seconds=2.0)
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid_file.read_text()], capture_output=True, text=True).stdout
    assert state.strip()[:1] in ("", "Z")  # the child is gone or a zombie
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_second_run_does_not_start_in_a_locked_folder(tmp_path):
    first = shell_run(tmp_path, "a", f"touch {tmp_path}/on; sleep 60")
    text = f"""
from pathlib import Path
from trl_ces.lab.study.processes import Pending, Step, run_all
folder = Path({str(first.folder)!r})
run_all([Pending("a", folder, [Step({first.steps[0].command!r}, folder / "log")])], [{{}}])
"""
    study, lock = subprocess.Popen([sys.executable, "-c", text], env=ENVIRONMENT), first.folder / LOCK
    while not (lock.exists() and lock.read_text()):
        time.sleep(0.05)
    study.kill()  # the run survives
    study.wait()
    done = []
    try:
        (failure,) = run_all([first, shell_run(tmp_path, "b", "true")], [{}], done.append)
    finally:
        subprocess.run(["pkill", "-KILL", "-f", f"touch {tmp_path}/on"], check=True)
    assert re.search(rf"{lock.read_text()}\b.*`kill {lock.read_text()}`", str(failure))
    assert done == ["b"]


# The `trl-ces study` command

MINI = """
output_dir: out
seeds: [0, 1]
methods:
  DAPO: {config: [arithmetic, dapo]}
  CES: {config: arithmetic}
overrides:
  model_name_or_path: base
  model_builder_kwargs: {steps: 60, batch_size: 16}
  dataset_seed: "{seed}"
  max_steps: 12
  max_completion_length: 32
  save_strategy: steps
  save_steps: 4
  env: {OMP_NUM_THREADS: 1}
evaluation:
  function: trl_ces.lab.tasks.arithmetic_evaluation.evaluate
  num_problems: 20
  num_samples: 2
"""


def write_study(folder, keys=None, **overrides):
    """Write a small study with additional `keys`, and load it."""
    content = yaml.safe_load(MINI) | (keys or {})
    content["overrides"] |= overrides
    (folder / "mini.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return load_study(folder / "mini.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ces_tua": 0.1}, "DAPO, seed 0: .* unknown key `ces_tua`. Did you mean `ces_tau`?"),
        ({"ces_tau": 3.0}, "DAPO, seed 0: .*`ces_tau` is 3.0"),
        ({"max_steps": "many"}, "`max_steps`: expected"),
        ({"model_builder": None, "model_builder_kwargs": None, "model_name_or_path": "./no"}, "has no config.json"),
        (
            {"reward_funcs": ["think_format_reward", "get_soft_overlong_punishment"]},
            "DAPO, seed 0: 0 of the rewards .*: set `ces_accuracy_reward` to the name",
        ),
    ],
)
def test_an_invalid_run_is_rejected_before_any_run_starts(tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path, **changes)
    with pytest.raises(UserError, match=message):
        command.run(["--config", "mini.yaml"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ({"function": "trl_ces.lab.tasks.arithmetic_evaluation.evalute"}, "Did you mean `evaluate`"),
        (
            {"function": "trl_ces.lab.tasks.arithmetic_evaluation.evaluate", "mx_terms": 3},
            "does not accept these settings: .*'mx_terms'",
        ),
        (
            {"function": "trl_ces.lab.evaluation.run.evaluate", "benchmark": "gsm8k"},
            "the key `benchmark` is not an evaluation setting",
        ),
        ({"function": "trl_ces.lab.evaluation.run.evaluate", "benchmarks": "gms8k"}, "gsm8k"),
        ({"function": "trl_ces.lab.evaluation.run.evaluate", "data_dir": "nowhere"}, "nowhere"),
        ({"function": "trl_ces.lab.study.held_out.evaluate", "group_by": "task"}, "`group_by` is 'task'"),
    ],
)
def test_an_invalid_evaluation_is_rejected_before_any_run_starts(tmp_path, monkeypatch, evaluation, message):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path, {"evaluation": evaluation})
    with pytest.raises(UserError, match=message):
        command.run(["--config", "mini.yaml"])
    assert not (tmp_path / "out").exists()


def test_invalid_jobs_and_unknown_studies_are_rejected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    with pytest.raises(UserError, match="--jobs: '0' is not a whole number of at least 1"):
        command.run(["--config", "mini.yaml", "--jobs", "0"])
    with pytest.raises(UserError, match=r"The study aritmetic does not exist .* Did you mean `arithmetic`\?"):
        command.run(["--config", "aritmetic"])


def test_gpu_runs_have_separate_devices_and_ports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,6,7")
    monkeypatch.setattr(launch, "device_count", lambda: 4)
    study = write_study(tmp_path, {"accelerate_config": "ddp", "num_processes": 2}, use_cpu=False)
    runs, slots = prepare(study, 2)
    assert slots == [{"CUDA_VISIBLE_DEVICES": "2,3"}, {"CUDA_VISIBLE_DEVICES": "6,7"}]
    for run in runs:
        args = run.steps[0].command
        assert args[args.index("--num_processes") + 1] == "2"
        assert args[args.index("--main_process_port") + 1] == "0"  # lets accelerate choose a free port
    with pytest.raises(UserError, match="`--jobs 3` with 2 processes per run needs 6 devices, but there are 4"):
        prepare(study, 3)


def test_devices_are_divided_evenly_and_cpu_runs_get_no_device(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    monkeypatch.setattr(launch, "device_count", lambda: 8)
    runs, slots = prepare(write_study(tmp_path, use_cpu=False), 4)
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in slots] == ["0,1", "2,3", "4,5", "6,7"]
    for run in runs:
        args = run.steps[0].command
        assert args[args.index("--num_processes") + 1] == args[args.index("--expect_processes") + 1] == "2"
        assert "--main_process_port" in args
    (tmp_path / "cpu.yaml").write_text("distributed_type: 'NO'\nuse_cpu: true\nnum_processes: 1\n")
    runs, slots = prepare(write_study(tmp_path, {"accelerate_config": "cpu.yaml"}, use_cpu=False), 2)
    assert (len(runs), slots) == (4, [{}, {}])


def test_a_study_resumes_only_with_the_same_number_of_processes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = write_study(tmp_path, {"num_processes": 2})
    study.cells[0].folder.mkdir(parents=True)
    prepare(study, 1)[0][0].steps[0].before()
    with pytest.raises(UserError, match=r"DAPO, seed 0: .*\(`num_processes` was 2 and is now 1\)"):
        prepare(write_study(tmp_path), 1)
    assert len(prepare(study, 1)[0]) == 4
    for cell in study.cells:  # all cells are trained but not measured
        cell.folder.mkdir(parents=True, exist_ok=True)
        write_json(cell.folder / "training.json", {})
    assert len(prepare(write_study(tmp_path), 1)[0]) == 4


def test_untrained_models_come_first_and_runs_are_ordered_by_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = write_study(tmp_path, {"untrained": "Before training"}, model_name_or_path="base-{seed}")
    runs, _ = prepare(study, 1)
    order = [("Before training", 0), ("Before training", 1), ("DAPO", 0), ("CES", 0), ("DAPO", 1), ("CES", 1)]
    assert [run.name for run in runs] == [f"{method}, seed {seed}" for method, seed in order]


def test_a_running_study_cannot_be_started_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    with lock_file(tmp_path / "out" / LOCK) as lock:
        write_pid(lock, 4711)
        with pytest.raises(UserError, match="Process 4711 is running in out"):
            command.run(["--config", "mini.yaml"])


def run_study(folder, *args):
    # Use an absolute path, so that the command line of every process in the study contains the path.
    options = ["--config", "mini.yaml", "--jobs", "2", "--output_dir", str(folder / "out"), *args]
    command_line = [sys.executable, "-m", "trl_ces.cli.main", "study", *options]
    return subprocess.Popen(
        command_line, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Run the study without interruption, and return its folder."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    write_study(folder)
    study = run_study(folder)
    printed = study.communicate()[0].decode()
    assert study.returncode == 0, printed
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_and_restarted_study_yields_the_same_results(tmp_path, uninterrupted, signal_number):
    interrupted = tmp_path
    write_study(interrupted)
    study = run_study(interrupted)

    def folders(pattern):
        return {Path(*file.relative_to(interrupted).parts[:3]) for file in interrupted.glob(f"out/*/*/{pattern}")}

    def half_trained():
        return folders("checkpoint-*/trainer_state.json") - folders("training.json")

    # Wait until one run is finished and another run has a checkpoint but is not fully trained.
    while not (folders("evaluation.json") and half_trained()):
        assert study.poll() is None, study.communicate()[0].decode()
        time.sleep(0.05)
    study.send_signal(signal_number)
    study.wait()
    if signal_number == signal.SIGKILL:  # simulate a power failure: no process survives
        subprocess.run(["pkill", "-KILL", "-f", str(interrupted / "out")], check=False)
        time.sleep(1)
    training_files = {file.parent: file.read_bytes() for file in interrupted.glob("out/*/*/training.json")}
    finished_runs = folders("evaluation.json")
    assert half_trained()
    restarted = run_study(interrupted)
    printed = restarted.communicate()[0].decode()
    assert restarted.returncode == 0, printed
    assert f"{len(finished_runs)} finished" in printed
    for folder, content in training_files.items():
        assert (folder / "training.json").read_bytes() == content  # not trained again
    attempts = [json.loads(file.read_text())["attempts"] for file in interrupted.glob("out/*/*/training.json")]
    assert max(attempts) == 2
    assert (interrupted / "out/comparison.md").read_text() == (uninterrupted / "out/comparison.md").read_text()
    assert (interrupted / "out/curves.csv").read_text() == (uninterrupted / "out/curves.csv").read_text()
    for model in sorted(uninterrupted.glob("out/*/*/model.safetensors")):
        assert (interrupted / model.relative_to(uninterrupted)).read_bytes() == model.read_bytes(), model
