"""Invalid recipes cause a one-line error and exit code 2 before any file is written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from processes import environment
from tiny import tiny_model, tiny_tokenizer

from trl_ces.cli.main import main
from trl_ces.train import checks, launch

RECIPE = {
    "model_name_or_path": "model",
    "output_dir": "out",
    "dataset_name": "data.jsonl",
    "use_cpu": "true",
    "bf16": "false",
    "reward_funcs": "[accuracy_reward]",
    "max_completion_length": "8",
    "num_generations": "2",
    "responses_per_step": "4",
    "responses_per_rollout": "8",
    "max_steps": "2",
}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Create a folder with a model, a dataset of four rows, and the other files that the recipes below use."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "model.safetensors").write_bytes(bytes(8))
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge" / "config.json").write_text('{"id2label": {"0": "a", "1": "b", "2": "c"}}')
    (tmp_path / "no_weights").mkdir()
    (tmp_path / "no_weights" / "config.json").write_text("{}")
    rows = [{"question": f"{n}+{n}=", "answer": 2 * n} for n in range(4)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "cut.jsonl").write_text('{"question": "1+1="}\n{"question": "1+1=", "answ')
    (tmp_path / "objects.jsonl").write_text('{"question": "1+1=", "answer": {"x": 1}}\n')
    (tmp_path / "divides.py").write_text("1 / 0\n")
    (tmp_path / "exits.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "launch.yaml").write_text("compute_environment: LOCAL_MACHINE\nnum_processes: many\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, changes=None, extra=""):
    lines = {**RECIPE, **(changes or {})}
    text = "".join(f"{name}: {value}\n" for name, value in lines.items() if value is not None) + extra
    (folder / "recipe.yaml").write_text(text)


def files_in(folder):
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_train_suggests_a_local_model_with_a_similar_name(job, capsys, monkeypatch):
    monkeypatch.setattr("trl_ces.cli.train.run_training", lambda *_: 0)
    monkeypatch.setattr("trl_ces.cli.train.try_hub_once", lambda *names: None)
    (job / "runs").mkdir()
    (job / "model").rename(job / "runs" / "mine")
    write(job, {"model_name_or_path": "runs/mien"})
    assert main(["train", "--config", "recipe.yaml"]) == 0
    note = "directory 'runs/mien' does not exist; reading the model from the Hub. Did you mean `runs/mine`?"
    assert note in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_rejects_an_invalid_recipe_in_one_line(job):
    write(job, {"dataset_name": "gone.jsonl"})
    before = files_in(job)
    result = subprocess.run(
        [sys.executable, "-m", "trl_ces.cli.main", "train", "--config", "recipe.yaml"],
        cwd=job,
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("trl-ces train: error: ")
    assert "gone.jsonl does not exist" in result.stderr
    assert files_in(job) == before


@pytest.fixture
def error_of(capsys, monkeypatch):
    """Return a function that runs an invalid command, checks its exit code, and returns its one-line error."""
    monkeypatch.setattr(launch, "run_child", lambda *_: pytest.fail("a process was started"))

    def run_invalid(*args, command="train"):
        assert main([command, *args]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("trl-ces")
        assert "error: " in printed.err
        assert printed.err.count("\n") == 1
        assert len(printed.err) < 1000
        return printed.err

    return run_invalid


@pytest.mark.parametrize(
    ("changes", "extra", "parts"),
    [
        ({"ces_tua": "1"}, "", ["recipe.yaml", "`ces_tua`", "Did you mean `ces_tau`?"]),
        ({"num_generations": "3"}, "", ["recipe.yaml", "divisible", "3"]),
        ({"output_dir": "/proc/out"}, "", ["`output_dir` '/proc/out' cannot be written"]),
        (
            {},
            "run_name: !!python/object/apply:os.system ['touch ran']\n",
            ["recipe.yaml: line 12: not valid YAML (could not determine a constructor"],
        ),
        ({"model_name_or_path": "./no_weights"}, "", ["'./no_weights' has no *.safetensors: use a Hub id"]),
        ({"dataset_name": "cut.jsonl"}, "", ["cut.jsonl, line 2 cannot be read (Unterminated string"]),
        ({"dataset_name": "objects.jsonl"}, "", ["objects.jsonl, row 0: reference answer {'x': 1} is not text"]),
        ({"output_dir": "x" * 300}, "", ["`output_dir`", "cannot be written to (File name too long): choose another"]),
        ({"reward_funcs": "[divides.reward]"}, "", ["'divides.reward' cannot be imported: ZeroDivisionError"]),
        ({"reward_funcs": "[exits.reward]"}, "", ["'exits.reward' cannot be imported: SystemExit"]),
        ({"model_name_or_path": "runs/a/b"}, "", ["'runs/a/b' has no config.json"]),  # two slashes, so not a Hub id
        ({"model_name_or_path": "./modle"}, "", ["'./modle' has no config.json", "Did you mean `model`?"]),
        ({"reward_weights": "[1, 0]"}, "", ["`reward_weights` has 2 numbers for 1 rewards", "of accuracy_reward,"]),
        ({"reward_funcs": "[think_format_reward, get_soft_overlong_punishment]"}, "", ["set `ces_accuracy_reward`"]),
        ({"reward_funcs": "[get_mai_length_reward]"}, "", ["is a group reward", "add an accuracy reward"]),
        (
            {"dataset_name": "null"},
            "dataset_builder: json.loads\ndataset_kwargs: {path: x, field: y}\n",
            ["`dataset_builder`: json.loads called with"],
        ),
        ({}, "env: {A=B: x}\n", ["`env`: expected a mapping from variable names to values"]),
        ({}, "overlays: {dapo: 5}\n", ["`overlays`: expected a mapping"]),
        ({}, "solution_pattern: '('\n", ["missing )"]),
        ({}, "chat_template_kwargs: {a: " + "[" * 5000, ["not valid YAML"]),
        ({"report_to": "neptune"}, "", ["`report_to` is 'neptune', which is not installed"]),
        ({"model_name_or_path": "./adapter"}, "", ["'./adapter' is an adapter", "for some/base", "merge_and_unload"]),
        (
            {},
            "reward_model_name_or_path: ./judge\n",
            ["reward model ./judge does not have exactly one label", "`num_labels=1`"],
        ),
        ({"max_steps": "0"}, "", ["recipe.yaml: `max_steps` is 0"]),
        ({}, "eval_strategy: sometimes\n", ["recipe.yaml: sometimes is not a valid IntervalStrategy"]),
        ({}, "generation_kwargs: {stop_strings: [x]}\n", ["`generation_kwargs` is", "remove `stop_strings`"]),
        ({}, "use_peft: true\nlora_r: 0\n", ["recipe.yaml: `lora_r` is 0: it must be a whole number"]),
        ({}, "dataset_seed: -1\n", ["`dataset_seed` is -1"]),
        (
            {"num_generations": "2"},
            "num_eval_samples: 1\neval_strategy: steps\neval_steps: 1\nmetric_for_best_model: eval_accuracy\n"
            "greater_is_better: true\n",
            ["recipe.yaml: `metric_for_best_model` is 'eval_accuracy'", "eval_rewards/accuracy_reward/mean"],
        ),
    ],
)
def test_an_invalid_recipe_causes_a_one_line_error(job, error_of, changes, extra, parts):
    write(job, changes, extra)
    before = files_in(job)
    error = error_of("--config", "recipe.yaml")
    assert all(part in error for part in parts), error
    assert files_in(job) == before


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--max_steps"], ["`max_steps`", "expected int", "0 values"]),
        (["--model_builder", "trl_ces.lab.tasks.smollm2.fech"], ["`model_builder`", "no 'fech'", "`fetch`"]),
        (["--reward_funcs", "no.such.reward"], ["`reward_funcs`: 'no.such.reward' cannot be imported", "directory /"]),
        (["--output_dir", "data.jsonl"], ["`output_dir`", "data.jsonl", "choose another"]),
        (["--accelerate_config", "zero33"], ["accelerate configuration zero33", "Did you mean `zero3`"]),
        (["--accelerate_config", "zero3"], ['[deepspeed]"']),
        (["--accelerate_config", "launch.yaml"], ["`num_processes` is 'many'"]),
        (["--accelerate_config", "recipe.yaml"], ["not an accelerate configuration"]),
        (["--num_processes", "9" * 5000], ["`num_processes` is '999", "whole number"]),
        (["--system_prompt", "\udcff"], ["command line: '\\udcff' is not UTF-8 text"]),
        (["--output_dir", "~nobody0/out"], ["'~nobody0/out': ~nobody0 has no home directory"]),
        (["--model_name_or_path", "~nobody0/model"], ["~nobody0 has no home directory"]),
        (["--dataset_name", "~nobody0/data.jsonl"], ["~nobody0 has no home directory"]),
        (["--accelerate_config", "~nobody0/zero3.yaml"], ["~nobody0 has no home directory"]),
        (["--num_proceses", "2"], ["command line: unknown key `num_proceses`", "`num_processes`"]),
        (["--num_processes", "two"], ["`num_processes` is 'two'", "whole number"]),
        (["--num_processes", "8"], ["`responses_per_step` is 4, which 8 processes cannot share", "one of 1, 2, 4"]),
        (["--config_file", "x"], ["unknown key `config_file`"]),
        (["--use_cpu", "false"], ["no accelerator", "`--use_cpu true`"]),
        (["--use_vllm"], ["`use_vllm` is true, but vLLM is missing", '[vllm]"']),
        (
            ["--attn_implementation", "flash_attention_2"],
            ["'flash_attention_2', which needs a GPU and", "pass `--attn_implementation sdpa`"],
        ),
        (["--eval_strategy", "steps"], ["`eval_strategy` is 'steps' without evaluation data"]),
        (["--num_eval_samples", "1"], ["`eval_strategy` is 'no' with evaluation data"]),
        (["--use_vllm", "true", "--load_in_4bit", "true"], ["`use_vllm` would merge", "`use_vllm: false`"]),
        (["--resume_from_checkpoint", "true"], ["`resume_from_checkpoint` is True", "has no complete checkpoint"]),
    ],
)
def test_an_invalid_command_line_causes_a_one_line_error(job, error_of, monkeypatch, args, parts):
    for module in (checks, launch):  # simulate missing vLLM and DeepSpeed
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    write(job)
    before = files_in(job)
    error = error_of("--config", "recipe.yaml", *args)
    assert all(part in error for part in parts), error
    assert files_in(job) == before


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--config", "nowhere"], ["The recipe nowhere does not exist", "R1-7B, "]),
        (["--config", "smollm_135m"], ["Did you mean `smollm2_135m`"]),
        (["--config", "recpie.yaml"], ["Did you mean `recipe.yaml`"]),
        (["--config", "runs/old/colocate.yaml"], ["Did you mean `colocate`"]),
        (["--config", "alp"], ["recipes/methods/alp.yaml is an overlay", "--config R1-7B alp`"]),
        (["mine.yaml"], ["`--config mine.yaml`"]),
    ],
)
def test_the_error_for_a_missing_recipe_suggests_a_fix(job, error_of, args, parts):
    write(job)
    error = error_of(*args)
    assert all(part in error for part in parts), error


def test_the_error_for_an_unknown_command_suggests_a_similar_command(error_of):
    assert "no such command. Did you mean `train`" in error_of(command="trian")


def test_a_valid_recipe_is_read_once_and_starts_a_run(job, monkeypatch):
    commands, files_read = [], []

    def start(command, env, received):
        commands.append(command)
        Path(env[launch.REPORTED]).with_name(launch.ENDED).touch()
        return 0

    monkeypatch.setattr(launch, "run_child", start)
    read_text = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda file, *args, **kw: files_read.append(file.name) or read_text(file, *args, **kw)
    )
    write(job, {"report_to": "none", "max_grad_norm": ".inf"})
    assert main(["train", "--config", "recipe.yaml"]) == 0
    assert len(commands) == 1
    assert files_read.count("recipe.yaml") == 1


def test_chat_prompts_without_a_chat_template_are_rejected(job, error_of, monkeypatch):
    tiny_tokenizer(chat_template=None).save_pretrained(job / "model")
    tiny_model().config.save_pretrained(job / "model")
    write(job)
    assert "model has no chat template, but the prompts are chat messages" in error_of("--config", "recipe.yaml")
    runs = []
    monkeypatch.setattr("trl_ces.cli.train.run_training", lambda *args: runs.append(args) or 0)
    assert main(["train", "--config", "recipe.yaml", "--prompt_template", "Q: {question}"]) == 0
    assert len(runs) == 1
