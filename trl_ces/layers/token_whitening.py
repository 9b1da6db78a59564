"""DLER's advantages: in training, whitened over the tokens of a rollout, of all processes.

Overrides of TRL: `_calculate_rewards`, `_generate_and_score_completions`. Writes `_logs`.
"""

import torch
from accelerate.utils import gather

from ..methods.dler import whitened
from .layer import Layer
from .rows import overwrite_latest, rows_of_process


class TokenWhitening(Layer):
    """
    `whiten_over_tokens` of [`CESConfig`], see [`whitened`]. TRL's are then rewards less their mean.

    A completion without any reward has no part in it, and keeps TRL's advantage of 0.
    """

    _rewarded: torch.Tensor  # (N,), bool, of the latest rollout

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewarded = ~rewards.isnan().all(dim=1)
        return rewards

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if not self.args.whiten_over_tokens or not self.model.training:
            return batch
        tokens = (batch["completion_mask"] * batch.get("tool_mask", 1)).sum(dim=1)
        every = whitened(gather(batch["advantages"]), gather(tokens) * self._rewarded) * self._rewarded
        overwrite_latest(self._logs["advantages"], every)
        return {**batch, **rows_of_process({"advantages": every}, self.accelerator)}
