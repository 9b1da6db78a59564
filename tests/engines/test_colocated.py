"""Check that colocated vLLM samples from the trained weights, and that resumed runs match complete runs.

The engines are real and run in two processes on a CPU; tests/helpers/colocated_vllm.py replaces vLLM. The tests do not
cover NCCL, vLLM's kernels and memory, or the sharding of weights with tensor parallelism (every process of the
stand-in holds all weights).
"""

import json
from types import SimpleNamespace

import pytest
import torch
from colocated_processes import CASES
from cpu_engines import launched_environment, write_cpu_config
from peft import PeftModel
from processes import run_processes
from safetensors.torch import load_file
from tiny import save_tiny, tiny_model
from transformers import AutoModelForCausalLM
from vllm_sampling import digest

TIMEOUT = 1200
ENGINES = {
    "one": ("NO", 1),
    "ddp": ("MULTI_CPU", 2),
    "zero2": ("DEEPSPEED", 2),
    "zero3": ("DEEPSPEED", 2),
    "zero3_offload": ("DEEPSPEED", 2),
    "fsdp2": ("FSDP", 2),
}
STEPS_WITH_ROLLOUT = [0, 2]
RESUME_STEPS = [1, 2, 3]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * TIMEOUT)]


def digest_of(start, checkpoint, lora):
    """Return the digest of a checkpoint's weights, after merging its adapter, as TRL does for vLLM."""
    if not lora:
        return digest(SimpleNamespace(state_dict=lambda: load_file(checkpoint / "model.safetensors")))
    base = AutoModelForCausalLM.from_pretrained(start)
    return digest(PeftModel.from_pretrained(base, checkpoint).merge_and_unload())


@pytest.fixture(scope="module", params=ENGINES)
def runs(request, tmp_path_factory):
    """Run all cases with one engine; return its name, the output folder, and the report of each process."""
    engine = request.param
    if engine.startswith("zero"):
        pytest.importorskip("deepspeed", reason="make test-slow installs it")
    folder = tmp_path_factory.mktemp(engine)
    save_tiny(folder / "start")
    cases = [case for case in CASES if engine != "one" or "parallel" not in case]
    options = {"cases": cases, "resume": RESUME_STEPS}
    if engine == "fsdp2":
        options["environment"] = launched_environment()
    config = write_cpu_config(engine, folder) if engine.startswith("zero") else None
    processes, arguments = ENGINES[engine][1], (str(folder / "start"), json.dumps(options))
    run_processes("colocated_processes.py", folder / "out", processes, TIMEOUT, arguments, config)
    facts = [json.loads((folder / "out" / f"facts-{rank}.json").read_text()) for rank in range(processes)]
    return engine, folder / "out", facts


@pytest.mark.parametrize("case", CASES)
def test_vllm_samples_from_the_saved_weights_and_importance_ratios_are_1(runs, case):
    engine, output, facts = runs
    if engine == "one" and "parallel" in case:
        pytest.skip("needs two processes")
    checkpoints = [output / case / f"checkpoint-{step}" for step in (1, 2, 3)]
    digests = [
        digest(tiny_model()),
        *(digest_of(output.parent / "start", path, "LoRA" in case) for path in checkpoints),
    ]
    assert len(set(digests)) == len(digests), "each step must change the weights"
    for report in facts:
        result = report[case]
        assert tuple(result["engine"]) == ENGINES[engine]
        assert sorted({step for step, _ in result["sampled"]}) == STEPS_WITH_ROLLOUT
        assert {tuple(sample) for sample in result["sampled"]} == {
            (step, digests[step]) for step in STEPS_WITH_ROLLOUT
        }
        assert result["calls"].count("wake weights") == len(STEPS_WITH_ROLLOUT), (
            "weights must be sent once per rollout"
        )
        assert result["ratios"] == pytest.approx([1.0] * len(result["ratios"]), abs=1e-3)
        assert len(result["ratios"]) >= 3 * len(STEPS_WITH_ROLLOUT)


def test_runs_resumed_inside_and_between_rollouts_have_bitwise_identical_weights(runs):
    _, output, facts = runs
    expected = load_file(output / "full" / "model" / "model.safetensors")
    for step in RESUME_STEPS:
        resumed = load_file(output / f"from {step}" / "model" / "model.safetensors")
        for name, value in expected.items():
            assert torch.equal(resumed[name], value), (step, name)
        for report in facts:
            expected_samples = [sample for sample in report["full"]["sampled"] if sample[0] >= step]
            assert report[f"from {step}"]["sampled"] == expected_samples
