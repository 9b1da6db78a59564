"""Compute group rewards from the gathered rollout, after the other rewards, so that groups may span processes.

Overrides of TRL: `_calculate_rewards`.
"""

from collections.abc import Sequence
from typing import Any, cast

from ..methods.group_reward import is_group_reward
from .correctness import Correctness
from .reward_calls import call_group_reward


def no_rewards(completions: Sequence[Any], **_arguments: Any) -> list[None]:
    """Reserve a reward column while TRL calls the other functions."""
    return [None] * len(completions)


class GroupRewards(Correctness):
    """
    Fill the reward columns of the functions created by [`group_reward`].

    Raises:
        `ValueError`: A group reward is used, but the accuracy reward is ambiguous.
    """

    def _required_inputs(self):
        return super()._required_inputs() | ({"correct"} if any(map(is_group_reward, self.reward_funcs)) else set())

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        funcs = self.reward_funcs
        self.reward_funcs = cast(Any, [no_rewards if is_group_reward(func) else func for func in funcs])
        try:
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        finally:
            self.reward_funcs = funcs
        for column, func in enumerate(funcs):
            if is_group_reward(func):
                rule, name = cast(Any, func).group_rule, self.reward_func_names[column]
                rewards[:, column] = call_group_reward(rule, self._groups, name, self.args.on_reward_error)
        return rewards
