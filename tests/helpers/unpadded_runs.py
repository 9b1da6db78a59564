"""Train with and without padding, and record gradients and forward passes."""

import torch
from tiny import random_script, tiny_model
from trainers import scripted_trainer
from transformers import Qwen2Model, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from trl_ces import CESConfig

PROMPTS = ["1+2=", "1+2+3+4+5+6=", "7=", "8+9+10="]
ACCURACIES = [[1, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 0, 1, 0]]


class Record(TrainerCallback):
    """Record the gradients of each optimizer step and the number of token positions in each forward pass."""

    def __init__(self, model):
        self.gradients, self.forwards = [], []
        self.watch(model)

    def watch(self, model):
        decoder = next(module for module in model.modules() if isinstance(module, Qwen2Model))
        decoder.register_forward_hook(self.record_positions)

    def record_positions(self, module, arguments, output):
        positions = output.last_hidden_state.shape[:2].numel()
        self.forwards.append((torch.is_grad_enabled(), positions))

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        grads = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
        self.gradients.append(grads)

    def positions(self, with_gradient=True):
        return sum(positions for has_gradient, positions in self.forwards if has_gradient == with_gradient)


def train(trainer_class, tmp_path, script_options=None, peft_config=None, **changes):
    script = random_script(PROMPTS, ACCURACIES, torch.Generator().manual_seed(3), **(script_options or {}))
    arguments = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "max_steps": 2,
        "max_completion_length": 40,
        "epsilon_high": 0.28,
        "ces_tau": 0.3,
        "shaping": "none",
        "optim": "sgd",
        "learning_rate": 0.1,
        "max_grad_norm": 0.0,
        **changes,
    }
    start = tmp_path / "start"  # on disk, because TRL loads the reference model from this path
    tiny_model(spread=0.1).save_pretrained(start)
    trainer = scripted_trainer(
        tmp_path,
        script,
        trainer_class=trainer_class,
        config_class=GRPOConfig if trainer_class is GRPOTrainer else CESConfig,
        more={"model": str(start), "peft_config": peft_config},
        **arguments,
    )
    record = Record(trainer.model)
    if trainer.ref_model is not None:
        record.watch(trainer.ref_model)
    trainer.add_callback(record)
    trainer.train()
    return trainer, record


def assert_same_gradients(record, other, norm=0.01):
    """Compare gradients with tolerance 1e-5 at step 1, and 1e-4 at step 2, where the weights differ slightly."""
    for first, second, bound in zip(record.gradients, other.gradients, (1e-5, 1e-4), strict=True):
        assert first.keys() == second.keys()
        assert max(value.norm() for value in first.values()) > norm
        difference = sum((first[name] - second[name]).square().sum() for name in first).sqrt()
        assert difference < bound * sum(value.square().sum() for value in first.values()).sqrt()


OFF_POLICY = {"gradient_accumulation_steps": 4, "steps_per_generation": 8}
CASES = {
    "on-policy": {},
    "one row per micro-batch": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16},
    "off-policy, old log-probs": OFF_POLICY,
    "two iterations": {"num_iterations": 2},
    "several rollouts per step": {"steps_per_generation": 4, "num_generations": 4},
    "reference model": {"beta": 0.04},
    "truncated, masked": {"mask_truncated_completions": True, "script_options": {"truncated": (1, 4, 9)}},
    "tool output in the middle": {"script_options": {"masked": True}},
    "pad_to_multiple_of": {"pad_to_multiple_of": 8},
    "grpo": {"loss_type": "grpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0, **OFF_POLICY},
    "sapo": {"loss_type": "sapo"},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    "vespo": {"loss_type": "vespo", **OFF_POLICY},
    "entropy bonus": {"entropy_coef": 0.01},
    "80/20": {"top_entropy_quantile": 0.2},
    "off-policy, packed": {"packing": True, "beta": 0.04, **OFF_POLICY},
    "pieces": {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 2,
        "max_tokens_per_micro_batch": 90,
    },
    "pieces, mean over rows": {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "max_tokens_per_micro_batch": 90,
        "loss_type": "grpo",
    },
    "pieces, packed": {
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 1,
        "max_tokens_per_micro_batch": 90,
        "packing": True,
        "beta": 0.04,
    },
}
