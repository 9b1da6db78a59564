"""`trl-ces plan`: output and error messages."""

import json
import re

import pytest
from tiny import tiny_model

from trl_ces.cli.main import main
from trl_ces.lab.plan.plan import plan_recipe
from trl_ces.lab.plan.step import count_step

RECIPE = """model_name_or_path: {model}
output_dir: out
dataset_name: data.jsonl
bf16: true
num_generations: 4
responses_per_step: 8
responses_per_rollout: 16
max_completion_length: 100
num_train_epochs: 1
"""


@pytest.fixture
def recipe(tmp_path):
    tiny_model().save_pretrained(tmp_path / "model")
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE.format(model=tmp_path / "model"))
    return file


def plan_output(capsys, *args):
    assert main(["plan", "--config", *map(str, args)]) == 0
    return capsys.readouterr().out


def test_schedule_memory_and_fit_are_printed(recipe, capsys):
    output = plan_output(capsys, recipe, "--gpus", 2, "--gpu_memory", 8, "--rows", 10, "--prompt_length", 28)
    assert "DDP on 2 processes" in output
    assert "16 completions for 4 prompts" in output
    assert "8 completions = 2 per pass x 2 accumulated x 2 devices" in output
    assert "2 steps, off-policy (1 of 2 updates)" in output
    assert "total        2 rollouts, 4 steps" in output
    assert "row length   at most 128 tokens (prompt: --prompt_length)" in output
    assert "Fits: 38 % of 8.0 GiB at the peak." in output  # mostly the 3 GiB reserve


def test_the_plan_asks_for_missing_rows_and_device_memory(recipe, capsys):
    output = plan_output(capsys, recipe)
    assert "total        unknown, because the number of rows is unknown: set --rows N" in output
    assert "Set --gpu_memory to the number of GiB per device to check" in output
    assert "Hours are not estimated" in output


def test_the_rows_of_a_local_file_are_counted(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"{n}+{n}=", "answer": 2 * n} for n in range(20)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert "total        5 rollouts, 10 steps" in plan_output(capsys, recipe)
    assert "total        2 rollouts, 4 steps" in plan_output(capsys, recipe, "--max_train_samples", 9)
    assert "total        3 rollouts, 6 steps" in plan_output(capsys, recipe, "--num_eval_samples", 8)
    eval_file = ("--num_eval_samples", 8, "--eval_dataset_name", "data.jsonl")
    assert "total        5 rollouts, 10 steps" in plan_output(capsys, recipe, *eval_file)
    assert "total        4 rollouts, 8 steps" in plan_output(capsys, recipe, "--rows", 16)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "total        5 rollouts, 10 steps" in plan_output(capsys, recipe, "--dataset_name", "~/data.jsonl")


def test_a_builder_without_a_number_of_samples_has_2000_rows(recipe, capsys):
    builder = ("--dataset_name", "null", "--dataset_builder", "trl_ces.lab.tasks.arithmetic.make_datasets")
    assert "total        500 rollouts, 1,000 steps" in plan_output(capsys, recipe, *builder)
    assert "total        2 rollouts, 4 steps" in plan_output(capsys, recipe, *builder, "--max_train_samples", 9)


def test_peak_disk_usage_is_printed(recipe, capsys):
    args = ("--prompt_length", 28, "--max_steps", 10, "--save_steps", 2, "--save_total_limit", 2)
    weights = count_step(plan_recipe([str(recipe)], {}).setup.step).weights
    limited_output = plan_output(capsys, recipe, *args)
    assert f"Disk: {3 * 12 * weights / 1e9:.1f} GB at the peak, with" in limited_output
    assert "at most 3 checkpoints of" in limited_output
    assert "all are kept (set `save_total_limit` to keep fewer)" in plan_output(capsys, recipe)
    assert "GB for the trained model." in plan_output(capsys, recipe, "--save_strategy", "no")


def test_vllms_cache_margin_is_printed_and_parts_are_sorted_by_size(recipe, capsys):
    args = ("--use_vllm", "true", "--prompt_length", 28, "--gpu_memory", 24, "--rows", 8)
    output = plan_output(capsys, recipe, *args)
    assert re.search(
        r"cache fits [\d.]+ full-length completions at a time; 16 are requested \(\d+ % to spare\)\.", output
    )
    assert re.search(r"^Hours on A800: [\d.]+( to [\d.]+)?, a rough estimate\.", output, flags=re.MULTILINE)
    table = output[output.index("| GiB per device") : output.index("| peak while training")]
    sizes = [float(size) for size in re.findall(r"\| +([\d.]+) \|", table)]
    assert sizes == sorted(sizes, reverse=True)
    queued = plan_output(capsys, recipe, *args, "--prompt_length", 400, "--vllm_gpu_memory_utilization", 0.08334)
    assert re.search(
        r"fits \d+\.\d full-length completions at a time; 16 are requested \(the rest are queued\)\.", queued
    )


def test_a_plan_that_does_not_fit_lists_remedies(recipe, capsys):
    output = plan_output(capsys, recipe, "--gpus", 2, "--gpu-memory=1")
    assert "Does not fit: each device needs 2.1 GiB more. Try `gradient_checkpointing: true`" in output
    vllm = ("--use_vllm", "true", "--gpu_memory", 24, "--vllm_gpu_memory_utilization", 0.08)
    assert "Does not fit: vLLM's cache cannot hold one full-length completion" in plan_output(capsys, recipe, *vllm)


def test_a_plan_with_a_server_omits_the_servers_memory(recipe, capsys):
    args = ("--use_vllm", "true", "--vllm_mode", "server", "--accelerate_config", "zero3")
    output = plan_output(capsys, recipe, *args, "--gpus", 4, "--nodes", 2)
    assert "ZeRO-3 on 4 processes, 2 nodes" in output
    assert "The memory of the vLLM server's devices is not included." in output
    assert "peak while generating" not in output


def test_fields_and_overlays_change_the_recipe(recipe, tmp_path, capsys):
    output = plan_output(capsys, recipe, "--responses_per_rollout", 8, "--gpus=4", "--max_steps", 6)
    assert "8 completions for 2 prompts" in output
    assert "on-policy" in output
    assert "total        6 rollouts, 6 steps" in output
    (tmp_path / "more.yaml").write_text("shaping: none\ndynamic_sampling: true\n")
    output = plan_output(capsys, recipe, tmp_path / "more.yaml")
    assert output.startswith(f"{recipe} {tmp_path / 'more.yaml'}: ")
    assert "dynamic sampling generates up to 160 completions" in output


def test_a_config_file_replaces_an_unavailable_model(recipe, tmp_path, capsys):
    settings = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps({**settings, "hidden_size": 32}))
    args = ("--model_name_or_path", "nobody/nothing", "--model_config", tmp_path / "other.json")
    assert "nobody/nothing" in plan_output(capsys, recipe, *args)


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ("--gpus 2", ["required: --config", "trl-ces plan --help"]),
        ("--config RECIPE --gpus 0", ["Argument --gpus: '0' is not a whole number of at least 1"]),
        ("--config RECIPE --gpu_memory much", ["Argument --gpu_memory: ", "'much' is not a finite number above 0"]),
        ("--config RECIPE --gpu_memory nan", ["Argument --gpu_memory: 'nan' is not a finite number above 0"]),
        ("--config RECIPE --gpu_memory inf", ["Argument --gpu_memory: 'inf' is not a finite number above 0"]),
        ("--config RECIPE --gpu_memory -1", ["Argument --gpu_memory: '-1' is not a finite number above 0"]),
        ("--config RECIPE --num_processes 2", ["--num_processes", "--gpus"]),
        ("--config RECIPE --num_machines 2", ["--num_machines", "--nodes"]),
        ("--config RECIPE --gpus 4 --nodes 3", ["`--gpus` is 4", "the number of nodes (3)", "--nodes"]),
        ("--config RECIPE --device A900", ["A900", "A800", "H100"]),
        ("--config RECIPE --gpu_mem 24", ["`gpu_mem`", "Did you mean `gpu_memory`?"]),
        ("--config RECIPE --gpus 3", ["`responses_per_step` is 8", "set `--gpus` to one of 1, 2, 4, 8"]),
        ("--config RECIPE --load_in_4bit true", ["does not support quantized weights"]),
        (
            "--config RECIPE --reward_model_name_or_path a/b",
            ["`reward_model_name_or_path` is 'a/b'", "set this field to null"],
        ),
        (
            "--config RECIPE --use_vllm true --max_completion_length null --prompt_length 9",
            ["`max_completion_length` is null", "set the length"],
        ),
        ("--config RECIPE --attn_implementation eager", ["eager", "sdpa"]),
        ("--config RECIPE --model_name_or_path nobody/nothing", ["'nobody/nothing'", "--model_config"]),
        ("--config RECIPE --accelerate_config zero4", ["zero4", "zero3"]),
        (
            "--config RECIPE --use_vllm --vllm_mode colocate --vllm_tensor_parallel_size 4 --gpus 2",
            ["`vllm_tensor_parallel_size` is 4", "a divisor of the number of GPUs (2)"],
        ),
    ],
)
def test_invalid_options_cause_a_one_line_error(recipe, capsys, args, parts):
    assert main(["plan", *(str(recipe) if word == "RECIPE" else word for word in args.split())]) == 2
    message = capsys.readouterr().err
    assert message.startswith("trl-ces plan: error: ")
    assert message.count("\n") == 1
    for part in parts:
        assert part in message
