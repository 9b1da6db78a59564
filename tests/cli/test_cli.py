"""End-to-end tests of `trl-ces`: help texts, process launch, and training from a recipe to a reloaded model.

Invalid inputs are tested in tests/train/test_broken_recipes.py.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import pytest
from tiny import tiny_model
from train_jobs import TOKENS, make_job, trl_ces

from trl_ces.cli.main import COMMANDS, main
from trl_ces.support.errors import UserError
from trl_ces.train import launch
from trl_ces.train.arguments import read_words
from trl_ces.train.launch import run_child
from trl_ces.train.recipe import compose, load_recipe


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return make_job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def training_run(tmp_path_factory):
    recipe, output = make_job(tmp_path_factory.mktemp("training_run"))
    with mock.patch.dict(os.environ, TOKENS):
        return trl_ces("train", "--config", recipe, "--ces_beta_correct", "0.3"), output


def test_training_prints_and_writes_no_access_token(training_run):
    result, output = training_run
    files = [file for file in output.parent.rglob("*") if file.is_file()]
    assert {"README.md", "trainer_state.json"} <= {file.name for file in files if file.parent == output}
    assert [str(file) for file in files if b"SECRETsecretSECRET" in file.read_bytes()] == []
    assert "SECRETsecretSECRET" not in result.stdout + result.stderr


def test_training_a_recipe_saves_the_model(training_run):
    result, output = training_run
    assert result.returncode == 0, result.stderr
    names = {file.name for file in output.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "README.md", "trainer_state.json"} <= names
    assert f"Saved in {output}:" in result.stdout
    assert "4 training rows and 0 evaluation rows of 4." in result.stdout
    state = json.loads((output / "trainer_state.json").read_text())
    assert state["global_step"] == 2
    logged = [entry for entry in state["log_history"] if "ces/group_accuracy" in entry]
    assert len(logged) == 2
    assert "rewards/soft_overlong_punishment_reward/mean" in logged[0]


@pytest.mark.slow
def test_a_smoke_run_takes_two_short_steps_and_keeps_no_files(job):
    recipe, output = job
    args = ["--max_steps", "50", "--eval_on_start", "true", "--eval_strategy", "steps", "--num_eval_samples", "2"]
    args += ["--lr_scheduler_type", "reduce_lr_on_plateau", "--metric_for_best_model", "eval_reward"]
    before = set(output.parent.rglob("*"))
    result = trl_ces("train", "--config", recipe, "--smoke", *args)
    assert result.returncode == 0, result.stderr
    assert set(output.parent.rglob("*")) == before
    assert "two optimizer steps with completions of at most 8 tokens. No files were kept." in result.stdout
    assert "Peak memory" not in result.stdout  # printed only for GPUs
    first, last = result.stdout.splitlines()[-2:]
    assert first.endswith(f" some of the problems: trl-ces inspect --config {recipe} {' '.join(args)}")
    assert last == f"Then start the run: trl-ces train --config {recipe} {' '.join(args)}"


@pytest.mark.parametrize(
    ("shell_gpus", "recipe_gpus", "output", "id_option"),
    [(None, None, "a/b", ""), ("5,6", None, "", "--id=5,6"), ("5,6", "6,7", "a/b", "--id=6,7")],
)
def test_a_smoke_run_prints_measured_and_planned_gpu_memory(
    job, tmp_path, monkeypatch, capsys, shell_gpus, recipe_gpus, output, id_option
):
    (tmp_path / "nvidia-smi").write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/options\n'
        "echo '900, 81920'\necho '31744, 81920'\necho '317'\nexec sleep 60\n"
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shell_gpus:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shell_gpus)
    recipe = write_recipe_with_gpus(job, recipe_gpus, tmp_path)[0] if recipe_gpus else job[0]
    monkeypatch.setattr(launch, "device_count", lambda: 2)

    def train(launch, recipe, checkpoint):
        folder = Path(recipe.setting("output_dir"))
        assert (folder.parent, launch.num_processes) == (tmp_path, 2)
        assert (recipe.setting("max_steps"), recipe.setting("max_completion_length")) == (2, 512)
        while "317\n" not in (folder / "memory.csv").read_text():
            time.sleep(0.05)
        (folder / "trainer_state.json").touch()
        return 0

    monkeypatch.setattr("trl_ces.cli.train.run_training", train)
    args = ["--config", str(recipe), "--use_cpu", "false", "--max_completion_length", "600"]
    assert main(["train", *args, "--output_dir", str(tmp_path / output), "--smoke"]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "options").read_text().endswith(f" --loop-ms=200 {id_option}".rstrip() + "\n")
    assert f"trl-ces inspect {' '.join(args)}\n" in printed
    assert re.search(r"GPU: 31\.0 of 80\.0 GiB, planned \d\.\d GiB for completions of 600 tokens\.\n", printed)
    assert not (tmp_path / "a").exists()


def test_a_smoke_run_reports_unreadable_gpu_memory(job, tmp_path, monkeypatch, capsys):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(launch, "device_count", lambda: 2)

    def train(launch, recipe, checkpoint):
        (Path(recipe.setting("output_dir")) / "trainer_state.json").touch()
        return 0

    monkeypatch.setattr("trl_ces.cli.train.run_training", train)
    args = ["--config", str(job[0]), "--use_cpu", "false", "--output_dir", str(tmp_path / "out")]
    assert main(["train", *args, "--smoke"]) == 0
    assert "The peak memory could not be read" in capsys.readouterr().out


def test_train_prints_a_note_before_it_replaces_a_trained_model(training_run, monkeypatch, capsys):
    _, output = training_run
    monkeypatch.setattr("trl_ces.cli.train.run_training", lambda *_: 0)
    args = ["train", "--config", str(output / "recipe.yaml"), "--overwrite_output_dir", "true"]
    assert main(args) == 0
    note = f"Note: {output} contains a trained model, which this run will replace.\n"
    assert capsys.readouterr().err == note
    assert main([*args, "--output_dir", str(output.parent / "another")]) == 0
    assert capsys.readouterr().err == ""


def test_the_printed_code_loads_the_saved_model(training_run):
    result, _ = training_run
    namespace: dict = {}
    exec(result.stdout.split("Load the model:\n")[1], namespace)
    model, tokenizer = namespace["model"], namespace["tokenizer"]
    before = tiny_model()
    assert any((a != b).any() for a, b in zip(model.parameters(), before.parameters(), strict=True))
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "1+1="}], add_generation_prompt=True, return_tensors="pt"
    )
    output = model.generate(**ids, max_new_tokens=4, do_sample=False)
    assert output.shape[1] > ids["input_ids"].shape[1]


def test_a_command_line_is_split_into_files_fields_and_flags():
    line = read_words(
        ["--config", "a.yaml", "b", "--accelerate_config=zero3", "--num-processes", "2", "--max_steps=-1", "--bf16",
         "--gradient_accumulation_steps", "3", "--reward_funcs", "a.b", "c.d", "--multi_gpu"]
    )  # fmt: skip
    assert (line.config, line.accelerate_config) == (["a.yaml", "b"], "zero3")
    assert line.accelerate_flags == {"num_processes": ["2"], "multi_gpu": []}
    # gradient_accumulation_steps is also a flag of accelerate; the recipe field takes precedence
    assert line.overrides == {
        "max_steps": ["-1"],
        "bf16": [],
        "gradient_accumulation_steps": ["3"],
        "reward_funcs": ["a.b", "c.d"],
    }


def plan_launch(job, *args, devices=0, monkeypatch=None):
    if monkeypatch is not None:
        monkeypatch.setattr(launch, "device_count", lambda: devices)
        monkeypatch.setattr(launch, "find_spec", lambda name: object())
    line = read_words([str(word) for word in args])
    return launch.make_launch(line, load_recipe(job[0], line.overrides))


def test_one_process_is_started_directly(job):
    plan = plan_launch(job, "--max_steps", "3")
    assert plan.num_processes == 1
    assert plan.command[1:] == [
        "-P", "-m", "trl_ces.train.worker", "--expect_processes", "1"
    ]  # fmt: skip
    assert plan.with_recipe(Path("r.yaml"), "here")[6:] == [
        "--recipe",
        "r.yaml",
        "--resume_from_checkpoint",
        "here",
    ]


def test_several_processes_on_a_cpu_are_started_by_torchrun(job):
    plan = plan_launch(job, "--num_processes", "2")
    assert plan.num_processes == 2
    assert plan.command[1:7] == ["-P", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("args", [[], ["--num_processes", "2"], ["--accelerate_config", "single"]])
def test_training_processes_do_not_import_from_the_working_directory(job, tmp_path, monkeypatch, args):
    monkeypatch.setattr(launch, "WORKER", "probe")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "probe.py").write_text(
        "import os, secrets, sys, tempfile\n"
        f"open({str(tmp_path)!r} + '/worker-' + os.environ.get('RANK', '0'), 'w').write(str(sys.flags.safe_path))\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'installed'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"))
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    for name in ("secrets", "random", "types", "numpy", "probe"):
        (cwd / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
    plan = plan_launch(job, *args)
    monkeypatch.chdir(cwd)
    assert launch.run_child(plan.command, plan.env) == 0
    assert [file.read_text() for file in tmp_path.glob("worker-*")] == ["True"] * plan.num_processes
    assert not (tmp_path / "imported").exists()


def test_all_gpus_are_used_and_accelerates_default_configuration_is_ignored(job, monkeypatch):
    plan = plan_launch(job, "--use_cpu", "false", devices=2, monkeypatch=monkeypatch)
    assert plan.num_processes == 2
    position = plan.command.index("--config_file")
    assert Path(plan.command[position + 1]).name == "ddp.yaml"
    assert plan.command[position + 2 : position + 4] == ["--num_processes", "2"]


def write_recipe_with_gpus(job, names, folder):
    """Write a copy of the job's recipe that sets CUDA_VISIBLE_DEVICES."""
    (folder / "gpus.yaml").write_text(
        job[0].read_text().replace("env: {", f"env: {{CUDA_VISIBLE_DEVICES: '{names}', ")
    )
    return [folder / "gpus.yaml"]


def test_one_process_sees_one_gpu(job, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    args = ["--use_cpu", "false", "--num_processes", "1"]
    assert plan_launch(job, *args, devices=2, monkeypatch=monkeypatch).env == {"CUDA_VISIBLE_DEVICES": "5"}
    with_accelerate = plan_launch(job, *args, "--accelerate_config", "single", devices=2, monkeypatch=monkeypatch)
    assert with_accelerate.env["CUDA_VISIBLE_DEVICES"] == "5"
    job_with_gpus = write_recipe_with_gpus(job, "7", tmp_path)
    assert plan_launch(job_with_gpus, *args, devices=2, monkeypatch=monkeypatch).env == {"CUDA_VISIBLE_DEVICES": "7"}


def test_the_gpus_of_the_recipe_limit_the_number_of_processes(job, monkeypatch, tmp_path):
    args, job_with_gpus = ["--use_cpu", "false"], write_recipe_with_gpus(job, "4,5,6", tmp_path)
    assert plan_launch(job_with_gpus, *args, devices=8, monkeypatch=monkeypatch).num_processes == 3
    with pytest.raises(UserError, match="`num_processes` is 4, but 1 x 3 accelerators are usable"):
        plan_launch(job_with_gpus, *args, "--num_processes", "4", devices=8, monkeypatch=monkeypatch)


def test_an_accelerate_configuration_and_flags_are_passed_to_accelerate(job, monkeypatch):
    args = ["--accelerate_config", "zero3", "--main_process_port", "29501", "--use_cpu", "false"]
    plan = plan_launch(job, *args, devices=2, monkeypatch=monkeypatch)
    assert (plan.num_processes, plan.distributed_type) == (2, "DEEPSPEED")
    assert plan.command[plan.command.index("--main_process_port") + 1] == "29501"
    assert "--quiet" in plan.command
    assert plan.command[plan.command.index("--expect_distributed_type") + 1] == "DEEPSPEED"
    with pytest.raises(UserError, match=r"`num_processes` is 4, but 1 x 2 acc.*`--num_processes 2`"):
        plan_launch(job, *args, "--num_processes", "4", devices=2, monkeypatch=monkeypatch)
    two_machines = [*args, "--num_processes", "6", "--num_machines", "2", "--machine_rank", "1"]
    with pytest.raises(UserError, match="is 6, but 2 x 2 accelerators are usable: pass `--num_processes 4`"):
        plan_launch(job, *two_machines, devices=2, monkeypatch=monkeypatch)


def test_run_child_returns_the_exit_code_of_the_child():
    assert run_child([sys.executable, "-c", "raise SystemExit(7)"], {}) == 7
    kill_itself = "import os; os.kill(os.getpid(), 9)"
    assert run_child([sys.executable, "-c", kill_itself], {}) == 137
    exit_with_variable = "import os, sys; sys.exit(int(os.environ['GIVEN']))"
    assert run_child([sys.executable, "-c", exit_with_variable], {"GIVEN": "3"}) == 3


@pytest.mark.timeout(120)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_child_and_its_children(tmp_path, signum):
    ready = tmp_path / "pid"
    # The grandchild represents a training process started by a launcher.
    grandchild = f"import os, time; open({str(ready)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"

    def interrupt():
        while not (ready.exists() and ready.read_text()):
            time.sleep(0.05)
        os.kill(os.getpid(), signum)

    threading.Thread(target=interrupt, daemon=True).start()
    assert run_child([sys.executable, "-c", child], {}) == 128 + signum
    deadline = time.monotonic() + 60
    while Path(f"/proc/{ready.read_text()}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(int(ready.read_text()), 0)


def test_help_and_versions_are_printed(capsys):
    assert main(["--help"]) == 0
    message = capsys.readouterr().out
    assert all(command in message for command in COMMANDS)
    assert main(["train", "--help"]) == 0
    message = capsys.readouterr().out
    assert all(f"--{name} " in message for name in ("ces_tau", "dataset_name", "learning_rate", "lora_r"))
    assert "zero3_offload" in message
    assert main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:4]] == ["- trl_ces", "- trl", "- transformers", "- torch"]
    assert "- devices: CPU only" in lines


def test_help_does_not_import_torch():
    code = """
import sys
from trl_ces.cli.main import main
main(["--help"])
try:
    main(["plan", "--help"])
finally:
    print("torch" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(text in result.stdout for text in ("commands:", "--gpu_memory GIB"))
    assert result.stdout.endswith("False\n")


def test_train_without_arguments_prints_a_short_usage_text(capsys):
    assert main(["train"]) == 2
    message = capsys.readouterr()
    assert message.out == ""
    assert len(message.err.splitlines()) <= 14
    assert "trl-ces train --config smollm2_135m" in message.err


@pytest.mark.parametrize("args", [["recipes"], ["--help"], ["env", "--help"]])
def test_a_closed_output_pipe_causes_no_traceback(args):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "trl_ces.cli.main", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 128 + signal.SIGPIPE


def test_a_closed_output_pipe_does_not_hide_an_error():
    code = (
        "import trl_ces.cli.main as main, trl_ces.cli.env as env\n"
        "def run(argv): print('a line'); raise ValueError('the real error')\n"
        "env.run = run\nmain.main(['env'])"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    process.stdout.close()
    assert b"ValueError: the real error" in process.stderr.read()
    assert process.wait() != 0


def test_a_message_passed_to_sys_exit_is_not_lost(monkeypatch):
    monkeypatch.setattr("trl_ces.cli.env.run", lambda argv: sys.exit("the reason"))
    with pytest.raises(SystemExit, match="the reason"):
        main(["env"])


def test_a_command_runs_without_standard_output():
    command = f"{shlex.quote(sys.executable)} -m trl_ces.cli.main recipes >&-"
    result = subprocess.run(command, shell=True, stderr=subprocess.PIPE, timeout=120)
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_broken_pipe_is_raised_if_stdout_is_open(monkeypatch, capfd):
    def run(argv):
        raise BrokenPipeError

    monkeypatch.setattr("trl_ces.cli.env.run", run)
    with pytest.raises(BrokenPipeError):
        main(["env"])


@pytest.mark.parametrize(("name", "tries_hub"), [("MY_MODE", True), ("HF_ENDPOINT", False)])
def test_the_checks_use_the_environment_variables_of_the_recipe(job, tmp_path, monkeypatch, name, tries_hub):
    hub_calls = []
    monkeypatch.setattr("trl_ces.cli.train.try_hub_once", lambda *names: hub_calls.append(names))
    monkeypatch.setattr("trl_ces.cli.train.run_training", lambda *_: 0)
    monkeypatch.setenv(name, "")  # so that monkeypatch later removes the value that the command sets
    source = f"import os\nassert os.environ[{name!r}] == 'x'\ndef own(**kwargs): ...\n"
    (tmp_path / "own_rewards.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_rewards", raising=False)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(re.sub(r"env: .*", f"env: {{{name}: x}}", job[0].read_text()))
    assert main(["train", "--config", str(recipe), "--reward_funcs", "own_rewards.own", "--output_dir", "out"]) == 0
    assert bool(hub_calls) == tries_hub
    sys.modules.pop("own_rewards")


def test_recipes_copy_writes_the_complete_recipe_to_a_new_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["recipes", "copy", "R1-7B", "alp", "my.yaml"]) == 0
    assert compose(["my.yaml"]) == compose(["R1-7B", "alp"])
    assert main(["recipes", "copy", "arithmetic", "small.yaml"]) == 0  # the copy includes the `overlays` section
    assert compose(["small.yaml", "truncation"]) == compose(["arithmetic", "truncation"])
    assert main(["recipes", "copy", "R1-7B", "new/my.yaml"]) == 0
    assert main(["recipes", "copy", "R1-7B", "alp"]) == 2
    assert "alp is the name of a shipped recipe: add a file name" in capsys.readouterr().err
    assert main(["recipes", "copy", "R1-7B", "my.yaml"]) == 2
    assert "my.yaml already exists: choose another" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_train_and_resume_from_a_checkpoint(tmp_path):
    recipe, output = make_job(tmp_path)
    result = trl_ces("train", "--config", recipe, "--num_processes", "2")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("Saved in") == 1
    card = (output / "README.md").read_text()
    assert "| `per_device_train_batch_size` | 2 |" in card
    assert "| `steps_per_generation` | 2 |" in card
    resumed = trl_ces(
        "train", "--config", recipe, "--num_processes", "2", "--resume_from_checkpoint", "true", "--max_steps", "4"
    )
    assert resumed.returncode == 0, resumed.stderr
    state = json.loads((output / "trainer_state.json").read_text())
    assert state["global_step"] == 4
    assert [entry["step"] for entry in state["log_history"] if "loss" in entry] == [1, 2, 3, 4]
