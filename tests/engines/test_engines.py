"""Compare DDP and DeepSpeed runs of two processes on a CPU with a single-process run.

The first run of each DeepSpeed engine compiles an operator, which takes a minute or more.
"""

import json

import pytest
import torch
from cpu_engines import write_cpu_config
from peft import PeftModel
from processes import run_processes
from safetensors.torch import load_file
from tiny import save_tiny, tiny_model, tiny_tokenizer
from transformers import AutoModelForCausalLM

from trl_ces.methods.metrics import CES_METRICS

# Engine -> (distributed type, ZeRO stage, whether weights are sharded, class of the inner optimizer).
ENGINES = {
    "ddp": ("MULTI_CPU", None, False, "AdamW"),
    "zero2": ("DEEPSPEED", 2, False, "AdamW"),
    "zero3": ("DEEPSPEED", 3, True, "AdamW"),
    "zero3_offload": ("DEEPSPEED", 3, True, "DeepSpeedCPUAdam"),
}
TIMEOUT = 1200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * TIMEOUT)]


def run_training(folder, engine, lora, name=None, options=None, **settings):
    processes = 1 if engine == "one" else 2
    config = None if engine in ("one", "ddp") else write_cpu_config(engine, folder)
    options = {"lora": lora, "settings": settings, **(options or {})}
    arguments = (str(folder / "start"), json.dumps(options))
    output = folder / (name or engine)
    run_processes("engine_processes.py", output, processes, TIMEOUT, arguments, config)
    return output


@pytest.fixture(scope="module", params=[False, True], ids=["full", "lora"])
def single(request, tmp_path_factory):
    """Save the initial weights and train with one process; return the folder and whether LoRA is used."""
    folder = tmp_path_factory.mktemp("engines")
    save_tiny(folder / "start")
    assert facts_of(run_training(folder, "one", request.param))["distributed_type"] == "NO"
    return folder, request.param


def facts_of(output):
    return json.loads((output / "facts.json").read_text())


def weights_of(output, lora):
    return load_file(output / "model" / ("adapter_model.safetensors" if lora else "model.safetensors"))


def load(folder, engine, lora):
    if not lora:
        return AutoModelForCausalLM.from_pretrained(folder / engine / "model")
    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder / "start"), folder / engine / "model")


def generate(model):
    prompt = tiny_tokenizer()("3+4=", return_tensors="pt").input_ids
    return model.generate(prompt, max_new_tokens=20, do_sample=False)[0].tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_weights_of_two_processes_match_a_single_process_run(single, engine):
    folder, lora = single
    if engine != "ddp":
        pytest.importorskip("deepspeed", reason="make test-slow installs it")
    output = run_training(folder, engine, lora)

    facts, single_facts = facts_of(output), facts_of(folder / "one")
    engine_facts = (facts["distributed_type"], facts["zero_stage"], facts["sharded"], facts["inner_optimizer"])
    assert engine_facts == ENGINES[engine]
    assert facts["processes"] == 2

    expected, actual = weights_of(folder / "one", lora), weights_of(output, lora)
    assert set(actual) == set(expected)
    start = {} if lora else tiny_model().state_dict()
    for name, value in expected.items():
        assert (actual[name] - value).norm() <= 1e-4 * value.norm(), name
        before = start.get(name, torch.zeros_like(value))
        assert (value - before).norm() > 1e-2 * value.norm(), f"{name} was not trained"

    for entry, expected_entry in zip(facts["log"], single_facts["log"], strict=True):
        for name in CES_METRICS:
            assert entry[name] == pytest.approx(expected_entry[name], rel=1e-3, abs=1e-5), name

    # The saved models can be loaded without DeepSpeed.
    assert generate(load(folder, engine, lora)) == generate(load(folder, "one", lora))


@pytest.mark.parametrize("engine", ["ddp", "zero2", "zero3"])
def test_micro_batches_split_by_a_token_budget_yield_the_same_weights(single, engine):
    """Each process accumulates gradients over several backward passes; the engine steps once after the last pass."""
    folder, lora = single
    if lora:
        pytest.skip("the backward passes are the same with LoRA")
    if engine != "ddp":
        pytest.importorskip("deepspeed", reason="make test-slow installs it")
    batches = {"per_device_train_batch_size": 6, "gradient_accumulation_steps": 1}
    output = run_training(folder, engine, lora, f"{engine}-pieces", max_tokens_per_micro_batch=60, **batches)
    facts = facts_of(output)
    assert (facts["distributed_type"], facts["zero_stage"]) == ENGINES[engine][:2]
    assert facts["forwards"] > 2 * 4, "expected more than two forward passes per step"
    expected, actual = weights_of(folder / "one", lora), weights_of(output, lora)
    for name, value in expected.items():
        assert (actual[name] - value).norm() <= 1e-4 * value.norm(), name


@pytest.mark.parametrize("engine", ENGINES)
def test_all_processes_skip_a_step_if_one_loss_is_nan(single, engine):
    """The weights match a single-process run that skips the same step."""
    folder, lora = single
    if lora:
        pytest.skip("the step is the same with LoRA")
    if engine != "ddp":
        pytest.importorskip("deepspeed", reason="make test-slow installs it")
    poison, expected_run = {"poison": 2}, folder / "one-poisoned"
    if not expected_run.exists():
        run_training(folder, "one", lora, expected_run.name, poison)
    output = run_training(folder, engine, lora, f"{engine}-poisoned", poison)
    assert [facts_of(run)["nonfinite_steps"] for run in (expected_run, output)] == [1, 1]
    file_names = {file.name for file in (output / "_nonfinite").iterdir()}
    assert file_names == {f"step-2-process-{rank}.safetensors" for rank in (0, 1)}
    expected, actual, complete = (weights_of(run, lora) for run in (expected_run, output, folder / "one"))
    for name, value in expected.items():
        assert (actual[name] - value).norm() <= 1e-4 * value.norm(), name
        assert (actual[name] - complete[name]).norm() > 1e-3 * value.norm(), name
