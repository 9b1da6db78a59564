"""Rewards of whole groups, exact on any number of processes: calculated after the others, from gathered verdicts.

Overrides of TRL: `_calculate_rewards`.
"""

import copy
from collections.abc import Sequence
from itertools import chain
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

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for state in chain(*self._states().values()):  # of a training before
            state.clear()

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
                before = None if self.model.training else copy.deepcopy(self._states())
                rewards[:, column] = call_group_reward(rule, self._groups, name, self.args.on_reward_error)
                if before is not None:
                    self._set_states(before)
        return rewards

    def _states(self) -> dict[str, list[dict[str, Any]]]:
        """What rewards carry from rollout to rollout, by their names, which several may share."""
        states: dict[str, list[dict[str, Any]]] = {}
        for name, func in zip(self.reward_func_names, self.reward_funcs, strict=True):
            rule = getattr(func, "of_groups", None)
            if hasattr(rule, "state"):
                states.setdefault(name, []).append(cast(Any, rule).state)
        return states

    def _set_states(self, states: dict[str, list[dict[str, Any]]]) -> None:
        for name, own in self._states().items():
            # a reward that a resumed run has anew starts anew
            for state, saved in zip(own, states.get(name, []), strict=False):
                state.clear()
                state.update(saved)

    def _remembered(self):
        return {**super()._remembered(), "group_rewards": self._states()}

    def _recall(self, state: dict[str, Any]):
        super()._recall(state)
        self._set_states(state["group_rewards"])
