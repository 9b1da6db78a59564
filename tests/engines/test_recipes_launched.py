"""Run the recipes for two A800s with `trl-ces train` on a CPU, with a tiny model, tiny data and `OVERRIDES`."""

import json
import subprocess
import sys

import pytest
import yaml
from processes import HERE, environment
from tiny import save_tiny, tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from trl_ces.train.recipe import compose

RECIPES = HERE.parents[1] / "recipes"
TIMEOUT = 1500
# Disable vLLM and FlashAttention, which need a GPU. Use short completions and one rollout of twelve steps.
OVERRIDES = {
    "use_cpu": "true",
    "use_vllm": "false",
    "attn_implementation": "sdpa",
    "max_completion_length": "16",
    "max_train_samples": "12",
    "save_steps": "12",
    "disable_tqdm": "true",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * TIMEOUT)]


def accelerate_file(folder, name, **changes):
    settings = yaml.safe_load((RECIPES / "accelerate" / f"{name}.yaml").read_text())
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**settings, "use_cpu": True, **changes}))
    return file


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("launched")
    save_tiny(folder / "model")
    # The columns of DeepMath-103K, which the recipes use.
    rows = [{"question": f"{n}+{n}=", "final_answer": str(2 * n)} for n in range(12)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def launch(tiny, output, recipe, accelerate, **overrides):
    fields = {"model_name_or_path": tiny / "model", "dataset_name": tiny / "rows.jsonl", "output_dir": output}
    args = [f"--{name}={value}" for name, value in {**fields, **OVERRIDES, **overrides}.items()]
    command = [
        sys.executable,
        "-m",
        "trl_ces.cli.main",
        "train",
        "--config",
        *recipe,
        "--accelerate_config",
        str(accelerate),
    ]
    return subprocess.run([*command, *args], env=environment(), capture_output=True, text=True, timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("recipe", "engine"),
    [
        (["R1-7B"], "zero3_offload"),
        (["R1-7B", "dapo_full"], "zero3_offload"),
        (["R1-1.5B"], "zero3"),
    ],
)
def test_an_r1_recipe_trains_and_saves_a_usable_model(tiny, tmp_path, recipe, engine):
    pytest.importorskip("deepspeed", reason="make test-slow installs it")
    # The engine trains in bf16 with fp32 master weights. The launcher checks that two processes run with DeepSpeed.
    settings = compose(recipe)
    result = launch(tiny, tmp_path / "out", recipe, accelerate_file(tmp_path, engine))
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-6000:]

    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    assert state["global_step"] == state["max_steps"] == 12
    (entry,) = [entry for entry in state["log_history"] if "entropy" in entry]
    assert entry["step"] == 12
    assert 0 < entry["completions/mean_length"] <= 16
    card = (tmp_path / "out" / "README.md").read_text()
    for name in ("learning_rate", "per_device_train_batch_size", "num_generations", "epsilon_high"):
        assert f"| `{name}` | {settings[name]} |" in card
    assert "| `steps_per_generation` | 12 |" in card

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert sum(weight.numel() for weight in model.parameters()) == tiny_model().num_parameters()
    prompt = tokenizer("3+3=", return_tensors="pt").input_ids
    assert model.generate(prompt, max_new_tokens=4, min_new_tokens=4, do_sample=False).shape == (1, prompt.size(1) + 4)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        # accelerate starts a single process on a CPU
        ({"distributed_type": "MULTI_CPU"}, "Expected 2 processes, found 1"),
        # accelerate starts DDP on a CPU
        (
            {"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}},
            "The accelerate configuration requests FSDP, but the run uses MULTI_CPU",
        ),
    ],
    ids=["MULTI_CPU", "FSDP"],
)
def test_an_engine_that_does_not_start_is_reported_before_training(tiny, tmp_path, changes, sentence):
    result = launch(tiny, tmp_path / "out", ["R1-7B"], accelerate_file(tmp_path, "ddp", **changes))
    assert result.returncode != 0
    assert result.stderr.count("trl-ces train: error: ") == 1
    assert sentence in result.stderr
    assert not (tmp_path / "out" / "model.safetensors").exists()
