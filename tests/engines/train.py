"""Started by test_engines.py: trains on fixed rollouts under whatever engine started it. Not a test file."""

import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig
from tiny import (
    random_script,
    scripted_accuracy_reward,
    scripted_bonus_reward,
    scripted_rollout,
    settings,
    tiny_tokenizer,
)
from transformers import Qwen2Model

from trl_ces import CESConfig, CESTrainer

PROMPTS = ["1+2=", "3+4=", "5+6="]
ACCURACIES = [[1, 0, None, 1], [1, 0, 1, 1], [0, 0, 0, 0]]


def main(output, processes, model, options):
    # Three groups of four completions: of two processes with six each, both hold half of the middle group.
    script = random_script(PROMPTS, ACCURACIES, torch.Generator().manual_seed(1), truncated=(1, 6, 9))
    changes = {
        "per_device_train_batch_size": 12 // processes // 2,
        "gradient_accumulation_steps": 2,
        "max_steps": 4,
        "max_completion_length": 40,
        "ces_tau": 0.3,
        "learning_rate": 1e-2,
        "adam_epsilon": 1e-4,  # where a gradient is all but 0, the engines' rounding would decide its step
    }
    arguments = settings(output, **changes | options.get("settings", {}))
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    torch.manual_seed(3)  # the adapters' start
    trainer = CESTrainer(
        model=model,  # a path, so that ZeRO-3 loads it in shares
        reward_funcs=[scripted_accuracy_reward, scripted_bonus_reward],
        args=CESConfig(**arguments),
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tiny_tokenizer(),
        rollout_func=scripted_rollout(script, 4),
        peft_config=lora if options.get("lora") else None,
    )
    forwards = []
    backbone = next(module for module in trainer.model.modules() if isinstance(module, Qwen2Model))
    backbone.register_forward_hook(lambda *_: forwards.append(torch.is_grad_enabled()))
    trainer.train()
    trainer.save_model(f"{output}/model")
    plugin = trainer.accelerator.state.deepspeed_plugin
    facts = {
        "distributed_type": trainer.accelerator.distributed_type.value,
        "processes": trainer.accelerator.num_processes,
        "zero_stage": None if plugin is None else plugin.zero_stage,
        "optimizer": type(getattr(trainer.optimizer, "optimizer", trainer.optimizer)).__name__,
        "inner_optimizer": type(innermost(trainer.optimizer)).__name__,
        "sharded": any(hasattr(parameter, "ds_id") for parameter in trainer.model.parameters()),
        "forwards": sum(forwards),
        "log": [entry for entry in trainer.state.log_history if "ces/selected_tokens" in entry],
    }
    if trainer.accelerator.is_main_process:
        (Path(output) / "facts.json").write_text(json.dumps(facts))


def innermost(optimizer):
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
