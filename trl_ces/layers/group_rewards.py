"""Rewards of whole groups, exact on any number of processes: calculated after the others, from gathered verdicts.

Overrides of TRL: `_calculate_rewards`.
"""

from collections.abc import Sequence
from typing import Any, cast

from ..methods.group_reward import is_group_reward
from .reward_guard import call_group_reward
from .verdicts import Verdicts


def no_verdicts(completions: Sequence[Any], **_arguments: Any) -> list[None]:
    """Keeps a column free while TRL calls the other functions."""
    return [None] * len(completions)


class GroupRewards(Verdicts):
    """
    Fills the columns of rewards that [`group_reward`] made.

    Raises:
        `ValueError`: There is such a reward, and the accuracy reward is ambiguous.
        [`RewardError`]: During training; see [`call_group_reward`].
    """

    def _asks_for(self):
        return super()._asks_for() | ({"correct"} if any(map(is_group_reward, self.reward_funcs)) else set())

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        funcs = self.reward_funcs
        self.reward_funcs = cast(Any, [no_verdicts if is_group_reward(func) else func for func in funcs])
        try:
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        finally:
            self.reward_funcs = funcs
        for column, func in enumerate(funcs):
            if is_group_reward(func):
                rule, name = cast(Any, func).of_groups, self.reward_func_names[column]
                rewards[:, column] = call_group_reward(rule, self._groups, name, self.args.on_reward_error)
        return rewards
