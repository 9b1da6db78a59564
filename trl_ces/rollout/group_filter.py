"""GFPO's group filter: in training, only the best completions of each group get an advantage.

The rejected ones, see [`gfpo_rejected`], lose their rewards after every function was called. TRL excludes rows without
a reward from the mean and deviation of the group, gives them advantage 0 and keeps them in the divisor of the loss:
GFPO's Eq. 2. What TRL logs of the rewards is put back to all completions, so that accuracies stay comparable;
`frac_reward_zero_std` is of the kept ones.

Overrides of TRL: `_generate`, `_calculate_rewards`, `_generate_and_score_completions`. Writes `_metrics` and `_logs`.
"""

import math
from typing import Any, cast

import torch
from accelerate.utils import gather
from trl.trainer.utils import nanstd

from ..methods.gfpo import gfpo_rejected
from ..methods.groups import equal_rewards, weighted_rewards
from .layer import Layer
from .rows import rows_of_process
from .turns import policy_lengths


class GroupFilter(Layer):
    """`gfpo_keep` and `gfpo_metric` of [`CESConfig`]. Verdicts of an inner layer are those of all completions."""

    def __init__(self, *args, **kwargs):
        self._policy_lengths: list[int] = []  # of this process's latest completions
        # For each call of TRL's rollout method, (N, functions): the rewards, and those that TRL sees.
        self._every_reward: list[torch.Tensor] = []
        self._kept_rewards: list[torch.Tensor] = []
        super().__init__(*args, **kwargs)

    def _generate(self, prompts):
        outputs = super()._generate(prompts)
        self._policy_lengths = policy_lengths(outputs[1], outputs[2])
        return outputs

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.args.gfpo_keep is None or not self.model.training:
            return rewards
        lengths = gather(torch.tensor(self._policy_lengths, device=rewards.device)).view(-1, self._group_size)
        total = weighted_rewards(rewards, self.reward_weights).view(-1, self._group_size)
        rejected = gfpo_rejected(lengths, total, self.args.gfpo_keep, self.args.gfpo_metric)
        self._every_reward.append(rewards)
        self._kept_rewards.append(rewards.masked_fill(rejected.view(-1, 1), math.nan))
        return self._kept_rewards[-1]

    def _generate_and_score_completions(self, inputs):
        if self.args.gfpo_keep is None or not self.model.training:
            return super()._generate_and_score_completions(inputs)
        self._every_reward, self._kept_rewards = [], []
        before = len(self._metrics["train"]["reward"])
        batch = super()._generate_and_score_completions(inputs)
        self._log_every_reward(before)
        if "equal_rewards" in batch:  # whether A is 0 over the whole group
            equal = equal_rewards(self._kept_rewards[-1], self.reward_weights, self._group_size)
            batch |= rows_of_process({"equal_rewards": equal}, self.accelerator)
        return batch

    def _log_every_reward(self, before: int):
        """Replaces what TRL logged of the kept rewards since its metrics had `before` entries."""
        metrics = self._metrics["train"]
        # One entry per call of TRL's method; the last call of dynamic sampling leaves none.
        logged = self._every_reward[: len(metrics["reward"]) - before]
        for entry, rewards in enumerate(logged, start=before):
            columns = [(f"rewards/{name}/mean", f"rewards/{name}/std") for name in self.reward_func_names]
            values = [*rewards.unbind(dim=1), weighted_rewards(rewards, self.reward_weights)]
            for (mean, std), column in zip([*columns, ("reward", "reward_std")], values, strict=True):
                metrics[mean][entry] = torch.nanmean(column).item()
                metrics[std][entry] = nanstd(column).item()
        for name, column in zip(self.reward_func_names, torch.cat(logged).unbind(dim=1), strict=True):
            table = cast(Any, self._logs["rewards"])[name]  # the latest rows of a limited number
            for place, value in zip(range(1, len(table) + 1), reversed(column.tolist()), strict=False):
                table[-place] = value
