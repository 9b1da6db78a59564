"""Compare CES steps with TRL's Triton kernels and with its torch implementation. Not a test file.

test_triton.py runs this script with TRITON_INTERPRET=1, which Triton reads at import time to run kernels on a CPU. The
script writes the differences between the implementations to the given file as JSON, by case, dtype and optimizer step.
"""

import gc
import json
import sys
import tempfile
from pathlib import Path
from unittest import mock

import torch
import trl.kernels.chunked_logprob as kernels
import trl.trainer.utils
from tiny import random_script, tiny_model
from trainers import scripted_trainer
from transformers import TrainerCallback

PROMPTS = ["1+2=", "7+8+9="]
ACCURACIES = [[1, 0, 0, 1], [0, 0, 0, 1]]
VOCABULARY = 1100  # a kernel processes 1,024 logits at a time
BASE = {
    "ces_tau": 0.5,
    "gradient_accumulation_steps": 1,
    "max_completion_length": 20,
    "max_grad_norm": 0.0,
    "optim": "sgd",
    "learning_rate": 1e-6,
    "max_steps": 1,
}
CASES = {
    "plain": {},
    "pieces": {"max_tokens_per_micro_batch": 40},
    "packed": {"packing": True},
    "off-policy": {"per_device_train_batch_size": 4, "steps_per_generation": 2, "max_steps": 2},
    "masked": {"mask_truncated_completions": True, "masked": True, "truncated": (1, 4)},
}


class Record(TrainerCallback):
    """Record losses and gradients of each optimizer step."""

    def __init__(self):
        self.losses, self.gradients = [], []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients.append({name: value.grad.clone() for name, value in model.named_parameters()})

    def on_step_end(self, args, state, control, model=None, **kwargs):
        generator = torch.Generator().manual_seed(5)
        # Change the weights, so that some importance ratios are outside the clipping range in the second step.
        for parameter in model.parameters():
            parameter.data.add_(0.02 * torch.randn(parameter.shape, generator=generator))

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(logs["loss"])
            self.clipped = logs["clip_ratio/region_mean"]


class CountingKernel:
    """Kernel that counts its launches."""

    def __init__(self, kernel):
        self.kernel, self.launches = kernel, 0

    def __getitem__(self, grid):
        self.launches += 1
        return self.kernel[grid]


def train(bf16, masked=False, truncated=(), **changes):
    script = random_script(PROMPTS, ACCURACIES, torch.Generator().manual_seed(3), (5, 10), 60, masked, truncated)
    record = Record()
    with tempfile.TemporaryDirectory() as folder:
        more = {"model": tiny_model(vocabulary=VOCABULARY, spread=0.2), "callbacks": [record]}
        trainer = scripted_trainer(folder, script, more=more, **{**BASE, **changes, "bf16": bf16})
        trainer.train()
    return record


def norm(gradients):
    return sum(value.double().square().sum() for value in gradients.values()).sqrt().item()


def compare(bf16, changes):
    plain = train(bf16, **changes)
    forward, backward = CountingKernel(kernels._forward_kernel), CountingKernel(kernels._backward_kernel)
    use_triton = mock.Mock(return_value=True)
    with (
        mock.patch.multiple(kernels, _use_triton=use_triton, _forward_kernel=forward, _backward_kernel=backward),
        mock.patch.object(trl.trainer.utils, "_use_triton", use_triton),
    ):
        triton = train(bf16, **changes)
    return {
        "launches": [forward.launches, backward.launches],
        "losses": [plain.losses, triton.losses],
        "norms": [norm(gradients) for gradients in plain.gradients],
        "differences": [
            norm({name: expected[name] - actual[name] for name in expected}) / norm(expected)
            for expected, actual in zip(plain.gradients, triton.gradients, strict=True)
        ],
        "clipped": plain.clipped,
    }


if __name__ == "__main__":
    gc.freeze()  # as in conftest.py
    dtypes = {"float32": False, "bfloat16": True}
    results = {f"{case}, {name}": compare(on, CASES[case]) for case in CASES for name, on in dtypes.items()}
    Path(sys.argv[1]).write_text(json.dumps(results))
