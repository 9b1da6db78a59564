"""Compare planned FSDP2 memory with a run of two gloo processes in which accelerate calls torch's `fully_shard`."""

import json

import pytest
from plan_steps import SMALL, step
from processes import run_processes

from trl_ces.lab.plan.memory import Engine, Generation, Setup, plan_memory
from trl_ces.lab.plan.step import count_step

LORA = {"task_type": "CAUSAL_LM", "r": 8, "target_modules": "all-linear"}
# The model is large enough that its weights take a significant part of the memory.
SHAPE = {**SMALL, "hidden_size": 256, "intermediate_size": 1024, "vocab_size": 8192}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("lora", [False, True], ids=["full", "LoRA"])
def test_fsdp2_dtypes_and_bytes_match_the_plan(tmp_path, lora):
    dtype = "bfloat16" if lora else "float32"
    arguments = (json.dumps(SHAPE), json.dumps(LORA if lora else None), dtype, "2", "64")
    run_processes("fsdp2_ranks.py", tmp_path / "two", 2, 300, arguments)
    facts = json.loads((tmp_path / "two" / "facts.json").read_text())
    assert facts["processes"] == 2

    adapters = json.dumps({"peft_type": "LORA", **LORA}) if lora else None
    settings = step(SHAPE, rows=2, tokens=64, dtype="bfloat16", lora=adapters)
    width = 2 if lora else 4
    setup = Setup(settings, Engine(2, fsdp=True), 1, Generation(vllm=False), frozen_bytes=width, trained_bytes=4)
    planned, count = plan_memory(setup), count_step(settings)

    assert facts["gathered"] == ["torch.bfloat16"]
    assert facts["outputs"] == ["torch.float32"]  # see layers/upstream.py
    for part in ("weights", "gradients", "optimizer"):
        assert sum(facts[part].values()) == pytest.approx(planned.parts[part], rel=0.001), part
    assert set(facts["gradients"]) == set(facts["optimizer"]) == {"torch.float32"}
    # TRL sends weights in their stored dtype, and merged adapters in the dtype of the frozen weights.
    assert facts["sent"] == {f"torch.{dtype}": count.base}
    assert setup.sent_bytes == width
    # Memory peaks in the backward pass of the LM head, when the last layer is also gathered.
    if not lora:
        assert facts["peak"] == pytest.approx(count.peak + 2 * (count.head + count.layer), rel=0.01)
    assert facts["peak"] <= planned.parts["gradients"] + count.peak + planned.parts["engine's buffers"]
