"""Gather the correctness, length and truncation of each completion once per rollout, together with the rewards.

Overrides of TRL: `_generate`, `_calculate_rewards`.
"""

import logging
from typing import cast

import torch
from accelerate.utils import gather

from ..methods.group_reward import accuracy_column
from ..methods.groups import Groups, graded_reward
from .first_rollout import describe_example, first_rollout_warning
from .layer import Layer
from .reward_calls import RewardError
from .turns import policy_lengths

logger = logging.getLogger(__name__)


class Correctness(Layer):
    """
    Keep the [`Groups`] of the latest rollout, gathered over all processes, in `_groups`.

    A layer that reads `_groups` subclasses this layer and overrides `_required_inputs` to return `"accuracy"` (the
    accuracy reward) or `"correct"` (the same, checked for values other than 0 and 1). If no inputs are required,
    nothing is gathered. Otherwise, Eq. 3 excludes completions without an accuracy reward: their other rewards do not
    count, and their advantage is 0.

    Raises:
        `ValueError`: A layer needs the accuracy reward, but it is ambiguous.
        [`RewardError`]: During training, if the accuracy reward is graded and all completions count as wrong.
    """

    _inputs: set[str] = set()  # noqa: RUF012
    _groups: Groups
    _masks: list | None = None  # masks of this process's latest completions; 1 on the policy's own tokens
    _accuracy_index: int | None = None
    _warned_of_graded = False
    _had_rollout = False
    _had_correct = False  # whether any completion has been correct in training

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._inputs = self._required_inputs()
        if self._inputs:
            self._accuracy_index = accuracy_column(
                self.args.ces_accuracy_reward, self.reward_func_names, self.reward_funcs
            )
            logger.info("Correctness is determined by %s.", self.reward_func_names[self._accuracy_index])

    def _required_inputs(self) -> set[str]:
        """Return the inputs that this layer and its base layers require."""
        return set()

    def _generate(self, prompts):
        outputs = super()._generate(prompts)
        self._masks = outputs[2]
        return outputs

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if not self._inputs:
            return rewards
        index = cast(int, self._accuracy_index)
        # TRL excludes a row from Eq. 3 only if all its rewards are NaN. Without this line, unscored completions would
        # be trained on as if they were wrong.
        rewards = rewards.masked_fill(rewards[:, index : index + 1].isnan(), torch.nan)
        accuracy = rewards[:, index]
        lengths = torch.tensor(policy_lengths(completion_ids_list, self._masks), device=rewards.device)
        facts = gather(torch.stack([lengths, self._truncated(completion_ids_list)], dim=1))
        facts, accuracy = facts.view(-1, self._group_size, 2), accuracy.view(-1, self._group_size)
        self._groups = Groups(
            correct=accuracy >= self.args.ces_correct_threshold,  # False if NaN
            scored=~accuracy.isnan(),
            truncated=facts[..., 1].bool(),
            lengths=facts[..., 0],
            rewards=accuracy,
            max_length=self.args.max_completion_length,
        )
        if "correct" in self._inputs:
            self._check_graded(accuracy)
            if self.model.training and not self._had_rollout:
                self._had_rollout = True
                example = describe_example(self.reward_funcs[index], completions[0], inputs[0])
                warning = first_rollout_warning(self._groups, example)
                if warning and self.accelerator.is_main_process:
                    logger.warning(warning)
        return rewards

    def state_dict(self):
        return {**super().state_dict(), "had_correct": self._had_correct}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self._had_correct = state.get("had_correct", True)

    def _truncated(self, completion_ids: list[list[int]]) -> torch.Tensor:
        """Return whether each completion lacks a final end or pad token. Shape (len(completion_ids),), bool."""
        end_tokens = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        # A user's rollout_func may return tensors.
        truncated = [len(ids) == 0 or int(ids[-1]) not in end_tokens for ids in completion_ids]
        return torch.tensor(truncated, device=self.accelerator.device)

    def _check_graded(self, accuracy: torch.Tensor) -> None:
        """
        Raise an error if graded accuracy rewards never reached the default threshold. Otherwise, warn once about
        graded rewards, unless the user named the reward or set a threshold. A constant negative reward raises no
        error, because it may be the reward of wrong completions.
        """
        if self.model.training:
            self._had_correct = self._had_correct or bool(self._groups.correct.any())
        graded = graded_reward(accuracy) if self.args.ces_correct_threshold == 1.0 else None
        if graded is None:
            return
        name, values = self.reward_func_names[cast(int, self._accuracy_index)], accuracy[~accuracy.isnan()]
        if self.model.training and not self._had_correct and (values.max() > 0 or values.min() < values.max()):
            raise RewardError(
                f"The accuracy reward {name} returned {graded:g}, but no value of at least `ces_correct_threshold` "
                "(1.0), so every completion would be treated as wrong: set the threshold to the lowest reward of a "
                "correct completion (0.999 if that is 1), or name a different reward in `ces_accuracy_reward`."
            )
        if self.args.ces_accuracy_reward is None and not self._warned_of_graded:
            self._warned_of_graded = True
            if self.accelerator.is_main_process:
                logger.warning(
                    "Correctness is determined by the reward function %s, which returned %g. A completion is correct "
                    "if this reward is at least `ces_correct_threshold` (1.0): set this threshold, or name the "
                    "accuracy reward in `ces_accuracy_reward`.",
                    name,
                    graded,
                )
