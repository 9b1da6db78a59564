"""`trl-ces plan` from the outside: what it prints, and what it refuses."""

import json
import re

import pytest
from tiny import tiny_model

from trl_ces.cli.main import main
from trl_ces.lab.plan.plan import plan_recipe
from trl_ces.lab.plan.step import count_step

# A billion weights, most of them in layers that LoRA leaves alone.
WIDE = {
    "model_type": "qwen2",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}

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


def planned(capsys, *words):
    assert main(["plan", "--config", *map(str, words)]) == 0
    return capsys.readouterr().out


def refused(capsys, *words):
    assert main(["plan", *map(str, words)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("trl-ces plan: error: ")
    assert message.count("\n") == 1
    return message


def test_a_plan_says_rollout_steps_memory_and_verdict(recipe, capsys):
    said = planned(capsys, recipe, "--gpus", 2, "--gpu_memory", 8, "--rows", 10, "--prompt_length", 28)
    assert "DDP on 2 processes" in said
    assert "16 completions for 4 prompts" in said
    assert "8 completions = 2 in a pass x 2 accumulated x 2 devices" in said
    assert "2 steps, off-policy (1 of 2 updates)" in said
    assert "in all       2 rollouts, 4 steps" in said
    assert "at most      128 tokens a row (prompt: --prompt_length)" in said
    assert "Fits: 38 % of 8.0 GiB at the most." in said  # 3 GiB of reserve and next to nothing


def test_without_rows_or_memory_the_plan_says_what_it_cannot_know(recipe, capsys):
    said = planned(capsys, recipe)
    assert "unknown steps; how many rows there are is not known here: give --rows" in said
    assert "--gpu_memory" in said
    assert "fit" not in said.split("Not all parts peak together")[0]


def test_the_rows_of_a_local_file_are_counted(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"{n}+{n}=", "answer": 2 * n} for n in range(20)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert "in all       5 rollouts, 10 steps" in planned(capsys, recipe)
    assert "in all       2 rollouts, 4 steps" in planned(capsys, recipe, "--max_train_samples", 9)
    assert "in all       3 rollouts, 6 steps" in planned(capsys, recipe, "--num_eval_samples", 8)
    elsewhere = ("--num_eval_samples", 8, "--eval_dataset_name", "data.jsonl")
    assert "in all       5 rollouts, 10 steps" in planned(capsys, recipe, *elsewhere)
    assert "in all       4 rollouts, 8 steps" in planned(capsys, recipe, "--rows", 16)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "in all       5 rollouts, 10 steps" in planned(capsys, recipe, "--dataset_name", "~/data.jsonl")


def test_checkpoints_and_a_tight_fit_are_said(recipe, capsys):
    words = (recipe, "--prompt_length", 28, "--max_steps", 10, "--save_steps", 2, "--save_total_limit", 2)
    weights = count_step(plan_recipe([str(recipe)], {}).setup.step).weights
    said = planned(capsys, *words, "--gpu_memory", 3.2)
    assert f"Disk: {3 * 12 * weights / 1e9:.1f} GB at the peak: a checkpoint takes" in said
    assert "at most 3 at a time" in said
    assert "Fits barely: 9" in said
    assert "and all are kept: set `save_total_limit`" in planned(capsys, recipe)
    kept = planned(capsys, recipe, "--save_strategy", "no")
    assert "GB, the model at the end." in kept


def test_the_cache_says_its_margin_and_the_largest_item_comes_first(recipe, capsys):
    words = ("--use_vllm", "true", "--prompt_length", 28, "--gpu_memory", 24)
    said = planned(capsys, recipe, *words)
    assert re.search(r"cache: 16 full-length completions are wanted at a time, [\d.]+ fit: \d+ % to spare\.", said)
    table = said[said.index("| GiB a device") : said.index("(activations")]
    sizes = [float(size) for size in re.findall(r"\| +([\d.]+) \|", table)]
    assert sizes == sorted(sizes, reverse=True)
    waiting = planned(capsys, recipe, *words, "--prompt_length", 400, "--vllm_gpu_memory_utilization", 0.08334)
    assert re.search(r"are wanted at a time, \d+\.\d fit: the others wait\.", waiting)


def test_a_recipe_that_does_not_fit_names_the_one_that_does(recipe, capsys):
    (config := recipe.parent / "wide.json").write_text(json.dumps(WIDE))
    words = ("--model_name_or_path", "someone/wide", "--model_config", config, "--gpu_memory", 8)
    said = planned(capsys, recipe, *words, "--dtype", "float32")
    assert "Does not fit" in said
    assert f"`--config {recipe} lora` fits" in said
    message = refused(capsys, "--config", recipe, "--gpus", 16)
    assert f"Or add the overlay `colocate`: `--config {recipe} colocate`" in message


def test_what_does_not_fit_comes_with_what_is_left(recipe, capsys):
    said = planned(capsys, recipe, "--gpus", 2, "--gpu-memory=1")
    assert "Does not fit: 2.1 GiB a device are missing." in said
    assert "What is left is a shorter `max_completion_length`" in said


def test_fields_of_the_recipe_can_be_overridden(recipe, capsys):
    said = planned(capsys, recipe, "--responses_per_rollout", 8, "--gpus=4", "--max_steps", 6)
    assert "8 completions for 2 prompts" in said
    assert "on-policy" in said
    assert "in all       6 rollouts, 6 steps" in said


def test_a_budget_of_tokens_cuts_the_micro_batch(recipe, capsys):
    def activations(*words):
        said = planned(capsys, recipe, "--prompt_length", 924, "--per_device_train_batch_size", 8, *words)
        (line,) = (line for line in said.splitlines() if line.startswith("| activations "))
        return float(line.split("|")[2])

    whole = activations()
    two_rows = activations("--per_device_train_batch_size", 2)
    assert activations("--max_tokens_per_micro_batch", 2 * 1024) == two_rows < whole
    assert activations("--max_tokens_per_micro_batch", 100) == activations("--per_device_train_batch_size", 1)


SERVED = ("--use_vllm", "true", "--vllm_mode", "server")


def test_in_server_mode_the_plan_says_what_the_server_holds_and_what_it_is_sent(recipe, capsys):
    words = (*SERVED, "--gpus", 4, "--nodes", 2, "--gpu_memory", 24, "--prompt_length", 28)
    said = planned(
        capsys, recipe, *words, "--accelerate_config", "zero3", "--server_gpus", 2, "--bandwidth", 0.001, "--rows", 4
    )
    assert "ZeRO-3 on 4 processes, 2 nodes" in said
    assert "vLLM's server: 2 copies of the model on 2 devices. `--data-parallel-size 2" in said
    assert "The first node's own memory while the model loads: 0.00 GiB." in said
    assert "a rollout asks for 16." in said
    assert re.search(r"^\| in all +\| +\d+( to \d+)? \| +0\.0 to 0\.2 \|$", said, flags=re.MULTILINE)
    assert re.search(r"devices that train idle \d+( to \d+)? % of the time, the server's \d+", said)
    assert re.search(r"^Fits: \d+ % of 24\.0 GiB at the most\. So does the server\.$", said, flags=re.MULTILINE)
    assert "docs/plan.md compares planned with measured memory" in said


def test_a_server_too_small_for_one_answer_does_not_fit(recipe, capsys):
    words = (*SERVED, "--server_gpus", 1, "--gpu_memory")
    assert "Fits: " in planned(capsys, recipe, *words, 6)
    said = planned(capsys, recipe, *words, 4.5)
    assert "Does not fit: with a copy of the model, the server has no room" in said
    assert "--server_gpus" in said


def test_a_server_that_is_not_given_is_not_counted(recipe, capsys):
    said = planned(capsys, recipe, *SERVED)
    assert "vLLM's server is not counted: give the number of its devices with --server_gpus." in said
    assert "No hours are predicted: give the server's devices with --server_gpus." in said


def test_where_no_hours_are_predicted_a_rollout_is_to_be_timed(recipe, capsys):
    assert "No hours are predicted: vLLM does not generate on a GPU here." in planned(capsys, recipe)
    said = planned(capsys, recipe, "--use_cpu", "true", "--bf16", "false")
    assert "No hours are predicted for a CPU: train one rollout with `--max_steps 2 --output_dir runs/timed`;" in said


CROWDED = ("--gpu_memory", 3.02, "--prompt_length", 4000, "--gradient_checkpointing", "true")
CROWDED += ("--attn_implementation", "flash_attention_2", "--per_device_train_batch_size", 8)


def test_one_row_is_not_advised_where_the_rows_of_a_micro_batch_belong_together(recipe, capsys):
    said = planned(capsys, recipe, *CROWDED, "--shaping", "clip_cov")
    assert "Does not fit" in said
    assert "per_device_train_batch_size" not in said


def test_advice_for_trls_own_fields_keeps_the_step(recipe, capsys):
    words = ("--responses_per_step", "null", "--responses_per_rollout", "null", "--gradient_accumulation_steps", 2)
    said = planned(capsys, recipe, *CROWDED, *words, "--steps_per_generation", 4)
    fields = "`per_device_train_batch_size: 1`, `gradient_accumulation_steps: 16`, `steps_per_generation: 32`"
    assert fields in said


def test_an_overlay_is_planned_with_its_recipe(recipe, tmp_path, capsys):
    (tmp_path / "more.yaml").write_text("shaping: none\ndynamic_sampling: true\n")
    said = planned(capsys, recipe, tmp_path / "more.yaml")
    assert said.startswith(f"{recipe} {tmp_path / 'more.yaml'}: ")
    assert "dynamic sampling generates up to 10 times as many" in said


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--gpus", "2"), ["required: --config", "trl-ces plan --help"]),
        (("--config", "RECIPE", "--gpus", "0"), ["Argument --gpus: '0' is not a whole number of at least 1"]),
        (
            ("--config", "RECIPE", "--gpu_memory", "much"),
            ["Argument --gpu_memory: 'much' is not a number of GiB above 0"],
        ),
        (("--config", "RECIPE", "--num_processes", "2"), ["--num_processes", "--gpus"]),
        (("--config", "RECIPE", "--num_machines", "2"), ["--num_machines", "--nodes"]),
        (
            (
                "--config",
                "RECIPE",
                "--use_vllm",
                "--vllm_mode",
                "colocate",
                "--vllm_tensor_parallel_size",
                "4",
                "--gpus",
                "2",
            ),
            ["`vllm_tensor_parallel_size` is 4", "2 GPUs", "a divisor"],
        ),
        (("--config", "RECIPE", "--gpus", "4", "--nodes", "3"), ["`--gpus` is 4", "3 nodes", "--nodes"]),
        (("--config", "RECIPE", "--server_gpus", "2"), ["`--server_gpus`", "--vllm_mode server"]),
        (("--config", "RECIPE", "--bandwidth", "100"), ["`--bandwidth` changes nothing", "--nodes"]),
        (("--config", "RECIPE", "--device", "A900"), ["`--device` is 'A900'", "A800, A100, H100"]),
        (("--config", "RECIPE", "--gpu_mem", "24"), ["`gpu_mem`", "Did you mean `gpu_memory`?"]),
        (("--config", "RECIPE", "--gpus", "3"), ["`responses_per_step` is 8", "1, 2, 4, 8 processes with --gpus"]),
        (("--config", "RECIPE", "--bandwidth", "fast"), ["'fast' is not a number of Gbit/s above 0"]),
        (("--config", "RECIPE", "--accelerate_config", "FSDP", "--use_cpu", "true"), ["FSDP2 on a CPU"]),
        (("--config", "RECIPE", "--load_in_4bit", "true"), ["no plan for quantized weights"]),
        (("--config", "RECIPE", "--attn_implementation", "eager"), ["eager", "sdpa"]),
        (("--config", "RECIPE", "--max_completion_length", "null"), ["`max_completion_length` is null"]),
        (("--config", "RECIPE", "--model_name_or_path", "nobody/nothing"), ["'nobody/nothing'", "--model_config"]),
        (("--config", "RECIPE", "--accelerate_config", "zero4"), ["zero4", "zero3"]),
        (
            ("--config", "RECIPE", "--use_vllm", "true", "--vllm_max_model_length", "100"),
            ["`vllm_max_model_length` is 100", "`max_completion_length` 100"],
        ),
    ],
)
def test_what_has_no_plan_is_refused_in_a_sentence(recipe, tmp_path, capsys, words, parts):
    fsdp = tmp_path / "fsdp2.yaml"
    fsdp.write_text("{distributed_type: FSDP, fsdp_config: {fsdp_version: 2}}")
    files = {"RECIPE": recipe, "FSDP": fsdp}
    message = refused(capsys, *(files.get(word, word) for word in words))
    for part in parts:
        assert part in message


def test_a_config_file_stands_in_for_a_model_that_is_not_here(recipe, tmp_path, capsys):
    settings = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps({**settings, "hidden_size": 32}))
    said = planned(capsys, recipe, "--model_name_or_path", "nobody/nothing", "--model_config", tmp_path / "other.json")
    assert "nobody/nothing" in said
