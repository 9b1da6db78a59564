"""Calls reward functions: with the model's own text, on whole groups, and with their results checked.

Overrides of TRL: `_generate`, `_calculate_rewards`.
"""

from typing import Any, cast

import torch
from accelerate.utils import gather

from ..methods.group_reward import is_group_reward
from ..methods.groups import Groups
from .layer import Layer, accuracy_column
from .reward_guard import call_group_reward, guarded_rewards
from .turns import policy_lengths, read_turns


class RewardCalls(Layer):
    """
    Passes `REWARD_KEYWORDS` to reward functions that accept them, and checks what every function returns.

    A reward of whole groups ([`group_reward`]) is computed after the others, from their gathered rewards.

    Raises:
        `ValueError`: The accuracy reward is ambiguous where a reward of whole groups needs it.
        [`RewardError`]: During training; see [`guarded_rewards`].
    """

    def __init__(self, *args, **kwargs):
        self._turns: dict[str, list] = {}  # of the latest completions, by the names of REWARD_KEYWORDS
        self._lengths: list[int] = []  # of the latest completions, in the policy's own tokens
        super().__init__(*args, **kwargs)
        self._group_columns = [column for column, func in enumerate(self.reward_funcs) if is_group_reward(func)]
        if self._group_columns:
            self._accuracy_index = accuracy_column(self.args, self.reward_func_names, self.reward_funcs)

    def _generate(self, prompts):
        outputs = super()._generate(prompts)
        prompt_ids, completion_ids, masks = outputs[:3]  # lists, but a user's rollout_func may return tensors
        self._turns = read_turns(prompt_ids, completion_ids, masks, self._tokenizer)
        self._lengths = policy_lengths(completion_ids, masks)
        return outputs

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        with guarded_rewards(self, self.args.on_reward_error):
            rewards = super()._calculate_rewards(self._with_turns(inputs), prompts, completions, completion_ids_list)
        if self._group_columns:
            self._warn_unless_binary(rewards[:, self._accuracy_index])
            groups = self._groups(rewards[:, self._accuracy_index], completion_ids_list)
            for column in self._group_columns:
                rule, name = cast(Any, self.reward_funcs[column]).of_groups, self.reward_func_names[column]
                rewards[:, column] = call_group_reward(rule, groups, name, self.args.on_reward_error)
        return rewards

    def _groups(self, accuracy: torch.Tensor, completion_ids: list[list[int]]) -> Groups:
        """The rollout of all processes, from its accuracy rewards, (N,), and this process's completions."""
        lengths = torch.tensor(self._lengths, device=accuracy.device)
        gathered = gather(torch.stack([lengths, self._truncated(completion_ids)], dim=1)).view(-1, self._group_size, 2)
        rewards = accuracy.view(-1, self._group_size)
        return Groups(
            correct=rewards >= self.args.ces_correct_threshold,  # False where it is NaN
            scorable=~rewards.isnan(),
            truncated=gathered[..., 1].bool(),
            lengths=gathered[..., 0],
            rewards=rewards,
            max_length=self.args.max_completion_length,
        )

    def _with_turns(self, examples: list[dict]) -> list[dict]:
        """Adds `REWARD_KEYWORDS` to examples; dataset columns take precedence."""
        return [
            {**{name: values[row] for name, values in self._turns.items()}, **example}
            for row, example in enumerate(examples)
        ]
