"""What follows the policy's entropy: the upper clip bound, and token rules with a controller.

The entropy is the mean over the tokens of an optimizer step, of all processes, in nats, as TRL computes it in the
loss.

Overrides of TRL: `_compute_loss`, `_get_per_token_logps_and_entropies`. Writes `epsilon_high` and `_metrics`, reads
`_step`.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback

from .layer import Layer


class EntropyControl(Layer):
    """
    `epsilon_high_target_entropy` of [`CESConfig`], and `_control_rule` for the layer of the token rules.

    After each optimizer step, the clip bound 1 + k moves by delta towards the target H*, as in MAI-Thinking-1's
    report: k <- clip(k + delta sign(H* - H), 0, k_max). It starts at `epsilon_high`.
    """

    # Sum of entropies and number of tokens, since the last optimizer step.
    _entropy_sums: torch.Tensor | None = None
    _entropy_mask: torch.Tensor | None = None  # of the current _compute_loss

    def __init__(self, *args, **kwargs):
        # The same over the steps of the current rollout, over all processes.
        self._rollout_sums = [0.0, 0.0]
        super().__init__(*args, **kwargs)
        self._is_followed = self.args.epsilon_high_target_entropy is not None or self._controls_rule()
        if self._is_followed:
            self.add_callback(AfterStep(self._step_has_ended))

    def _controls_rule(self) -> bool:
        """Whether a rule waits for entropies."""
        return False

    def _control_rule(self, entropy: float) -> None:
        """Called after each rollout with its mean entropy."""

    def _compute_loss(self, model, inputs):
        if self._is_followed and self.model.training:
            self._entropy_mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._entropy_mask = None

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        outputs = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        mask, entropies = self._entropy_mask, outputs[1]
        if mask is not None and entropies is not None:
            masked = torch.where(mask.bool(), entropies.detach(), 0.0).double()
            sums = torch.stack([masked.sum(), mask.sum().double()])
            self._entropy_sums = sums if self._entropy_sums is None else self._entropy_sums + sums
        return outputs

    def _step_has_ended(self) -> None:
        sums, self._entropy_sums = self._entropy_sums, None
        if sums is None:
            sums = torch.zeros(2, dtype=torch.float64, device=self.accelerator.device)
        total, tokens = self.accelerator.reduce(sums, reduction="sum").tolist()
        if not math.isfinite(total):
            total = tokens = 0.0  # FiniteSteps skips such a step
        target = self.args.epsilon_high_target_entropy
        if tokens and target is not None:
            self._move_clip_bound(total / tokens, target)
        self._rollout_sums = [self._rollout_sums[0] + total, self._rollout_sums[1] + tokens]
        # Where rollouts and steps are not multiples of each other, a rollout ends inside a step.
        if self._step % self._steps_of_a_rollout() < self.args.gradient_accumulation_steps:
            total, tokens = self._rollout_sums
            self._rollout_sums = [0.0, 0.0]
            if tokens:
                self._control_rule(total / tokens)

    def _move_clip_bound(self, entropy: float, target: float) -> None:
        moved = self.epsilon_high + self.args.epsilon_high_delta * ((target > entropy) - (target < entropy))
        self.epsilon_high = min(max(moved, 0.0), self.args.epsilon_high_max)
        self._metrics["train"]["clip_ratio/epsilon_high"].append(self.epsilon_high)

    def _remembered(self):
        moved = None if self.args.epsilon_high_target_entropy is None else self.epsilon_high
        return {**super()._remembered(), "entropy_control": {"epsilon_high": moved, "rollout": self._rollout_sums}}

    def _recall(self, state: dict[str, Any]):
        super()._recall(state)
        if "entropy_control" in state:
            self._rollout_sums = state["entropy_control"]["rollout"]
            moved = state["entropy_control"]["epsilon_high"]
            if moved is not None and self.args.epsilon_high_target_entropy is not None:
                self.epsilon_high = moved


class AfterStep(TrainerCallback):
    """Calls `act()` when an optimizer step has ended; before a checkpoint is written."""

    def __init__(self, act: Callable[[], None]):
        self.act = act

    def on_step_end(self, args, state, control, **kwargs):
        self.act()
