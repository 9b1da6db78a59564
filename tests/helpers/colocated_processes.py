"""Train with a given engine and a stand-in for colocated vLLM. Started by test_colocated.py; not a test file."""

import json
import os
import sys
from pathlib import Path

import pytest
from colocated_vllm import ColocatedLLM, patch_colocated_vllm, patch_colocated_vllm_in_worker
from cpu_engines import allow_fsdp_on_cpu
from peft import LoraConfig
from processes import end_processes
from trainers import PROMPTS, tiny_trainer

STEPS = 4
# name: (settings, whether to use LoRA)
CASES = {
    "full": ({}, False),
    "LoRA": ({}, True),
    "dynamic sampling": ({"dynamic_sampling": True, "shaping": "none"}, False),
    "tensor parallel 2": ({"vllm_tensor_parallel_size": 2}, False),
    "LoRA, tensor parallel 2": ({"vllm_tensor_parallel_size": 2}, True),
}


def make_trainer(folder, model, processes, settings, lora):
    changes = {
        "max_steps": STEPS,
        "steps_per_generation": 2,
        "per_device_train_batch_size": 8 // processes,
        "save_strategy": "steps",
        "save_steps": 1,
        "learning_rate": 1e-2,
        "ces_tau": 0.3,
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_enable_sleep_mode": True,
        **settings,
    }
    adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    more = {"model": model, "eval_dataset": None, "peft_config": adapters if lora else None}
    return tiny_trainer(folder, prompts=PROMPTS, more=more, **changes)


def run(folder, model, processes, settings, lora, resume=None):
    """Train, and record the optimizer step and the digest of vLLM's weights at each `generate` call."""
    (patch_colocated_vllm if processes == 1 else patch_colocated_vllm_in_worker)(pytest.MonkeyPatch())
    trainer = make_trainer(folder, model, processes, settings, lora)
    llm, steps = ColocatedLLM.last, []
    generate = llm.generate
    llm.generate = lambda *args, **kwargs: steps.append(trainer.state.global_step) or generate(*args, **kwargs)
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(f"{folder}/model")
    logged = [entry for entry in trainer.state.log_history if "sampling/importance_sampling_ratio/mean" in entry]
    names = ("min", "mean", "max")
    return {
        "engine": [trainer.accelerator.distributed_type.value, trainer.accelerator.num_processes],
        "sampled": [list(pair) for pair in zip(steps, llm.sampled_from, strict=True)],
        "calls": llm.calls,
        "ratios": [entry[f"sampling/importance_sampling_ratio/{name}"] for entry in logged for name in names],
    }


def main(output, processes, model, options):
    os.environ.update(options.get("environment", {}))
    if options.get("environment"):
        allow_fsdp_on_cpu()
    output, facts = Path(output), {}
    for name in options["cases"]:
        settings, lora = CASES[name]
        facts[name] = run(output / name, model, processes, settings, lora)
    for step in options["resume"]:
        checkpoint = output / "full" / f"checkpoint-{step}"
        facts[f"from {step}"] = run(output / f"from {step}", model, processes, *CASES["full"], str(checkpoint))
    (output / f"facts-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(facts))
    end_processes()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
