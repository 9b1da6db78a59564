"""Skip optimizer steps whose gradient is NaN or infinite.

Overrides of transformers: `_get_grad_norm`, `log`. Reads `_step` and `_buffered_inputs`.
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

# Folder in `output_dir`. Its files contain prompts and completions. The leading `_` keeps the Trainer from pushing the
# folder to the Hub.
FOLDER = "_nonfinite"


class FiniteSteps(Layer):
    """
    Skip steps with a non-finite gradient, save their rows, and stop after `max_nonfinite_steps` in a row.

    DeepSpeed takes optimizer steps in its backward pass and skips non-finite steps itself. If this check is disabled
    (`check_grad_overflow` in the `bf16` section, with ZeRO-2), the first non-finite step stops training.

    Raises:
        `RuntimeError`: To stop training. The message names the file with the rows.
    """

    _nonfinite_steps = 0
    _nonfinite_in_a_row = 0

    def _get_grad_norm(self, model, grad_norm=None):
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)  # before the optimizer step, except with DeepSpeed
        if norm is None or self.args.fp16:  # DeepSpeed may return None; fp16 loss scaling skips steps itself
            return norm
        finite = math.isfinite(norm.item() if isinstance(norm, torch.Tensor) else norm)
        self._nonfinite_in_a_row = 0 if finite else self._nonfinite_in_a_row + 1
        if not finite:
            for parameter in model.parameters():
                parameter.grad = None  # the optimizer skips parameters without a gradient
            self._nonfinite_steps += 1
            stop = None
            if self._uses_deepspeed() and not self.accelerator.optimizer_step_was_skipped:
                stop = "DeepSpeed has already taken the step; remove `check_grad_overflow: false` from its config"
            elif self._nonfinite_in_a_row >= self.args.max_nonfinite_steps:
                stop = f"`max_nonfinite_steps` is {self.args.max_nonfinite_steps}"
            self._report_nonfinite(stop)
        return norm

    def log(self, logs, start_time=None):
        if self.model.training and self._nonfinite_steps:
            self._metrics["train"]["nonfinite_steps"].append(self._nonfinite_steps)
        super().log(logs, start_time)

    def state_dict(self):
        return {**super().state_dict(), "nonfinite": [self._nonfinite_steps, self._nonfinite_in_a_row]}

    def load_state_dict(self, state: dict[str, Any]):
        super().load_state_dict(state)
        self._nonfinite_steps, self._nonfinite_in_a_row = state["nonfinite"]

    def _uses_deepspeed(self) -> bool:
        return self.accelerator.distributed_type == DistributedType.DEEPSPEED

    def _report_nonfinite(self, stop: str | None):
        """Save the rows of the current step, then warn, or raise an error if `stop` contains a reason to stop."""
        step, buffer = self.state.global_step + 1, cast(list[dict], self._buffered_inputs)
        end = (self._step - 1) % len(buffer) + 1
        rows = buffer[max(0, end - self.args.gradient_accumulation_steps) : end]
        name = f"step-{step}-process-{self.accelerator.process_index}.safetensors"
        file = Path(cast(str, self.args.output_dir)) / FOLDER / name
        location = f"are in {file}"
        try:
            save_micro_batches(file, rows, {"global_step": step})
        except (TypeError, OSError) as error:
            location = f"cannot be saved ({error})"
        message = f"The gradient of step {step} is not finite (NaN or infinite). The step's rows {location}"
        if stop is not None:
            raise RuntimeError(
                f"{message}. Training stops here ({stop}): inspect these rows and their rewards, lower "
                "`learning_rate` or `max_grad_norm`, or train in bf16 or float32."
            )
        logger.warning("%s; the step is skipped.", message)
