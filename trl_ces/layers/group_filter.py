"""GFPO's and QLPO's group filter: in training, only some completions of each group get an advantage.

The rejected ones, see [`gfpo_rejected`] and [`qlpo_rejected`], lose their rewards after every function was called. TRL
excludes rows without a reward from the mean and deviation of the group, gives them advantage 0 and keeps them in the
divisor of the loss: GFPO's Eq. 2. Logged are the rewards of all completions, so that accuracies stay comparable;
`frac_reward_zero_std` is of the kept ones.

Overrides of TRL: `_calculate_rewards`, `_generate_and_score_completions`. Writes `_metrics` and `_logs`.
"""

import math
from typing import Any, cast

import torch
from trl.trainer.utils import nanstd

from ..methods.gfpo import gfpo_rejected
from ..methods.groups import weighted_rewards
from ..methods.qlpo import qlpo_draws, qlpo_rejected
from .rows import overwrite_latest
from .verdicts import Verdicts


class GroupFilter(Verdicts):
    """`gfpo_keep` and `gfpo_metric` of [`CESConfig`]. [`Groups`] stays that of all completions."""

    _every_reward: torch.Tensor | None = None  # (N, functions), before the filter

    def _asks_for(self):
        reads = "correct" if self.args.keeps_by_verdict else "lengths"
        return super()._asks_for() | ({reads} if self.args.gfpo_keep is not None else set())

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.args.gfpo_keep is None or not self.model.training:
            return rewards
        self._every_reward = rewards
        return rewards.masked_fill(self._rejected(rewards).view(-1, 1), math.nan)

    def _rejected(self, rewards: torch.Tensor) -> torch.Tensor:
        """The completions that get no advantage. Shape (P, G), bool."""
        groups, keep = self._groups, cast(int, self.args.gfpo_keep)
        if self.args.gfpo_metric == "qlpo":
            return qlpo_rejected(groups, qlpo_draws(groups, self.args.seed), keep, self.args.qlpo_preferred)
        total = weighted_rewards(rewards, self.reward_weights).view(groups.lengths.shape)
        return gfpo_rejected(groups.lengths, total, keep, self.args.gfpo_metric)

    def _generate_and_score_completions(self, inputs):
        self._every_reward = None
        batch = super()._generate_and_score_completions(inputs)
        if self._every_reward is not None:
            self._log_rewards(self._every_reward)
        return batch

    def _log_rewards(self, rewards: torch.Tensor) -> None:
        """Writes `rewards` over those that TRL has just logged, in its metrics and its table of completions."""
        metrics = self._metrics["train"]
        names = [(f"rewards/{name}/mean", f"rewards/{name}/std") for name in self.reward_func_names]
        columns = [*rewards.unbind(dim=1), weighted_rewards(rewards, self.reward_weights)]
        for (mean, std), column in zip([*names, ("reward", "reward_std")], columns, strict=True):
            metrics[mean][-1] = torch.nanmean(column).item()
            metrics[std][-1] = nanstd(column).item()
        for name, column in zip(self.reward_func_names, columns, strict=False):
            overwrite_latest(cast(Any, self._logs["rewards"])[name], column)
