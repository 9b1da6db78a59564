"""Skips optimizer steps whose loss or gradient is NaN or infinite.

Overrides of TRL and transformers: `compute_loss`, `_get_grad_norm`, `log`. Reads `_step` and `_buffered_inputs`.
"""

import logging
import math
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import DistributedType

from .files import save_micro_batches
from .layer import Layer

logger = logging.getLogger(__name__)

# In `output_dir`. The Trainer does not push names starting with `_` to the Hub; these files hold prompts and
# completions.
FOLDER = "_nonfinite"


class FiniteSteps(Layer):
    """
    Skips a step whose gradient is not finite, saves its rows, and stops after `max_nonfinite_steps` in a row.

    DeepSpeed steps inside its backward, so there the first such loss or gradient stops training.

    Raises:
        `RuntimeError`: When training stops; names the file with the rows.
    """

    def __init__(self, *args, **kwargs):
        self._nonfinite_steps = self._nonfinite_in_a_row = 0
        super().__init__(*args, **kwargs)

    def compute_loss(self, model, inputs, *args, **kwargs):
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if self._runs_deepspeed() and self.model.training and not torch.isfinite(loss):
            self._report_nonfinite("loss", self._step, stop=True)  # DeepSpeed's backward would make the step
        return loss

    def _get_grad_norm(self, model, grad_norm=None):
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)  # after backward, before the optimizer step
        if norm is None or self.args.fp16:  # DeepSpeed may return none; fp16 loss scaling skips steps itself
            return norm
        finite = math.isfinite(norm.item() if isinstance(norm, torch.Tensor) else norm)
        self._nonfinite_in_a_row = 0 if finite else self._nonfinite_in_a_row + 1
        if not finite:
            for parameter in model.parameters():
                parameter.grad = None  # the optimizer skips these
            self._nonfinite_steps += 1
            too_many = self._nonfinite_in_a_row >= self.args.max_nonfinite_steps
            self._report_nonfinite("gradient", self._step - 1, stop=self._runs_deepspeed() or too_many)
        return norm

    def log(self, logs, start_time=None):
        if self.model.training and self._nonfinite_steps:
            self._metrics["train"]["nonfinite_steps"].append(self._nonfinite_steps)
        super().log(logs, start_time)

    def _remembered(self):
        return {**super()._remembered(), "nonfinite": [self._nonfinite_steps, self._nonfinite_in_a_row]}

    def _recall(self, state: dict[str, Any]):
        super()._recall(state)
        self._nonfinite_steps, self._nonfinite_in_a_row = state.get("nonfinite", (0, 0))

    def _runs_deepspeed(self) -> bool:
        return self.accelerator.distributed_type == DistributedType.DEEPSPEED

    def _report_nonfinite(self, what: str, micro_step: int, stop: bool):
        """Saves the latest rollout's rows of the step that ends at `micro_step`; warns, or raises if `stop`."""
        step, buffer = self.state.global_step + 1, cast(list[dict], self._buffered_inputs)
        end = micro_step % len(buffer) + 1
        rows = buffer[max(0, end - self.args.gradient_accumulation_steps) : end]
        name = f"step-{step}-process-{self.accelerator.process_index}.safetensors"
        file = Path(cast(str, self.args.output_dir)) / FOLDER / name
        message = f"The {what} of step {step} is not finite (NaN or infinite). Its rows are in {file}"
        try:
            save_micro_batches(file, rows, {"global_step": step})
        except (TypeError, OSError) as error:
            message = f"The {what} of step {step} is not finite (NaN or infinite). Its rows cannot be saved ({error})"
        if stop:
            deepspeed = "DeepSpeed cannot skip a step"
            why = deepspeed if self._runs_deepspeed() else f"`max_nonfinite_steps` is {self.args.max_nonfinite_steps}"
            raise RuntimeError(
                f"{message}. Training stops here ({why}): look at these rows and their rewards, lower `learning_rate` "
                "or `max_grad_norm`, or train in bf16 or float32."
            )
        logger.warning("%s; the step is skipped.", message)
