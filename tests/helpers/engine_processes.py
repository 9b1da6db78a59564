"""Train on fixed rollouts with the launcher's engine. Started by test_engines.py and test_fsdp.py; not a test file."""

import json
import os
import sys
from pathlib import Path

import torch
from cpu_engines import allow_fsdp_on_cpu
from peft import LoraConfig
from tiny import random_script
from torch.distributed.tensor import DTensor
from trainers import scripted_trainer
from transformers import Qwen2Model

PROMPTS = ["1+2=", "3+4=", "5+6="]
ACCURACIES = [[1, 0, None, 1], [1, 0, 1, 1], [0, 0, 0, 0]]


def main(output, processes, model, options):
    os.environ.update(options.get("environment", {}))
    if options.get("fsdp_on_cpu"):
        allow_fsdp_on_cpu()
    # The rollout has three groups of four completions. With two processes, each process has six rows.
    script = random_script(PROMPTS, ACCURACIES, torch.Generator().manual_seed(1), truncated=(1, 6, 9))
    changes = {
        "per_device_train_batch_size": 12 // processes // 2,
        "gradient_accumulation_steps": 2,
        "max_steps": 4,
        "max_completion_length": 40,
        "ces_tau": 0.3,
        "learning_rate": 1e-2,
        "adam_epsilon": 1e-4,  # with the default, rounding errors would dominate updates if gradients are near 0
    }
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    torch.manual_seed(3)  # for the adapters' initial weights
    # Pass the model as a path, so that ZeRO-3 shards it while loading.
    more = {"model": model, "peft_config": lora if options.get("lora") else None}
    trainer = scripted_trainer(output, script, more=more, **changes | options.get("settings", {}))
    if "poison" in options:
        poison(trainer, options["poison"])
    forwards = []
    backbone = next(module for module in trainer.model.modules() if isinstance(module, Qwen2Model))
    backbone.register_forward_hook(lambda *_: forwards.append(torch.is_grad_enabled()))
    trainer.train(resume_from_checkpoint=options.get("resume"))
    trainer.save_model(f"{output}/model")
    plugin = trainer.accelerator.state.deepspeed_plugin
    facts = {
        "distributed_type": trainer.accelerator.distributed_type.value,
        "processes": trainer.accelerator.num_processes,
        "zero_stage": None if plugin is None else plugin.zero_stage,
        "inner_optimizer": type(innermost_optimizer(trainer.optimizer)).__name__,
        "sharded": any(
            hasattr(parameter, "ds_id") or isinstance(parameter, DTensor) for parameter in trainer.model.parameters()
        ),
        "forwards": sum(forwards),
        "nonfinite_steps": trainer._nonfinite_steps,
        "log": [entry for entry in trainer.state.log_history if "ces/selected_tokens" in entry],
    }
    if trainer.accelerator.is_main_process:
        (Path(output) / "facts.json").write_text(json.dumps(facts))


def poison(trainer, step):
    """Make the loss of the last process NaN at optimizer step `step`."""
    compute, last = trainer._compute_loss, trainer.accelerator.num_processes - 1

    def poisoned(model, inputs):
        is_poisoned = trainer.state.global_step + 1 == step and trainer.accelerator.process_index == last
        return compute(model, inputs) * (torch.nan if is_poisoned else 1.0)

    trainer._compute_loss = poisoned


def innermost_optimizer(optimizer):
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
