"""Started by test_engines.py and test_fsdp.py: trains on fixed rollouts under whatever engine started it."""

import json
import os
import sys
from pathlib import Path

import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from peft import LoraConfig
from tiny import random_script
from torch.distributed.tensor import DTensor
from trainers import scripted_trainer
from transformers import Qwen2Model

PROMPTS = ["1+2=", "3+4=", "5+6="]
ACCURACIES = [[1, 0, None, 1], [1, 0, 1, 1], [0, 0, 0, 0]]


def allow_fsdp_on_a_cpu():
    """Lifts accelerate's gate, which starts FSDP on other devices only; all that follows is theirs and torch's."""
    init = AcceleratorState.__init__

    def with_fsdp(self, *args, fsdp_plugin=None, **kwargs):
        init(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)

    AcceleratorState.__init__ = with_fsdp


def main(output, processes, model, options):
    os.environ.update(options.get("environment", {}))
    if options.get("fsdp_on_a_cpu"):
        allow_fsdp_on_a_cpu()
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
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    torch.manual_seed(3)  # the adapters' start
    # The model is a path, so that ZeRO-3 loads it in shares.
    more = {"model": model, "peft_config": lora if options.get("lora") else None}
    trainer = scripted_trainer(output, script, more=more, **changes | options.get("settings", {}))
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
        "inner_optimizer": type(innermost(trainer.optimizer)).__name__,
        "sharded": any(
            hasattr(parameter, "ds_id") or isinstance(parameter, DTensor) for parameter in trainer.model.parameters()
        ),
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
