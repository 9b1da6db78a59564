"""What each completion of a rollout is: correct, scored, how long, cut off? Decided once, with the rewards.

Overrides of TRL: `_generate`, `_calculate_rewards`.
"""

import copy
import logging
from typing import Any, cast

import torch
from accelerate.utils import gather

from ..methods.ces import AUTO
from ..methods.group_reward import accuracy_column
from ..methods.groups import Groups, odd_reward, prompt_number
from .first_rollout import tau_for, teaches_nothing, what_it_saw
from .layer import Layer
from .turns import policy_lengths

logger = logging.getLogger(__name__)


class Verdicts(Layer):
    """
    Keeps the latest rollout's [`Groups`], of all processes, in `_groups`. The first one decides `ces_tau: auto`.

    A layer that reads it subclasses this one and says in `_asks_for` what it reads: `"lengths"`, `"accuracy"`, the
    accuracy reward, or `"correct"`. Where none reads anything, nothing is gathered; where none reads the accuracy, no
    completion is scored.

    Raises:
        `ValueError`: The accuracy reward is ambiguous where a layer needs it.
    """

    _asked: set[str] = set()  # noqa: RUF012
    _groups: Groups
    _masks: list | None = None  # of this process's latest completions: 1 on the policy's own tokens
    _accuracy_index: int | None = None
    _warned_of_graded = False
    _saw_a_rollout = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._decides_tau = self.args.ces_tau == AUTO
        if self._decides_tau:  # what this model decides is not for the next trainer with the same config
            self.args = copy.copy(self.args)
        self._asked = self._asks_for()
        if self._asked & {"accuracy", "correct"}:
            self._accuracy_index = accuracy_column(
                self.args.ces_accuracy_reward, self.reward_func_names, self.reward_funcs
            )
            logger.info("Correctness is taken from %s.", self.reward_func_names[self._accuracy_index])

    def _asks_for(self) -> set[str]:
        """What this layer and those inside it read."""
        return set()

    def _generate(self, prompts):
        outputs = super()._generate(prompts)
        self._masks = outputs[2]
        return outputs

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if not self._asked:
            return rewards
        accuracy = torch.full_like(rewards[:, 0], torch.nan)
        if self._accuracy_index is not None:
            accuracy = rewards[:, self._accuracy_index]
        if "correct" in self._asked:
            self._warn_unless_binary(accuracy)
        lengths = torch.tensor(policy_lengths(completion_ids_list, self._masks), device=rewards.device)
        numbers = torch.tensor([prompt_number(prompt) for prompt in prompts], device=rewards.device)
        facts = gather(torch.stack([lengths, self._truncated(completion_ids_list), numbers], dim=1))
        facts, accuracy = facts.view(-1, self._group_size, 3), accuracy.view(-1, self._group_size)
        self._groups = Groups(
            correct=accuracy >= self.args.ces_correct_threshold,  # False where it is NaN
            scored=~accuracy.isnan(),
            truncated=facts[..., 1].bool(),
            lengths=facts[..., 0],
            rewards=accuracy,
            max_length=self.args.max_completion_length,
            prompts=facts[:, 0, 2],
        )
        if self.args.ces_tau == AUTO and self.model.training:
            self.args.ces_tau = tau_for(self._groups.lengths.float().mean().item())
            if self.args.shaping == "ces" and self.accelerator.is_main_process:
                logger.warning("`ces_tau: auto` is %g, from the first rollout's mean length.", self.args.ces_tau)
        if "correct" in self._asked and self.model.training and not self._saw_a_rollout:
            self._saw_a_rollout = True
            tau = self.args.ces_tau if self.args.shaping == "ces" else None
            seen = what_it_saw(self.reward_funcs[cast(int, self._accuracy_index)], completions[0], inputs[0])
            problem = teaches_nothing(self._groups, tau, seen)
            if problem and self.accelerator.is_main_process:
                logger.warning(problem)
        return rewards

    def _remembered(self):
        return {**super()._remembered(), "tau": self.args.ces_tau if self._decides_tau else None}

    def _recall(self, state: dict[str, Any]):
        super()._recall(state)
        if self.args.ces_tau == AUTO and state["of"]["shaping"] == self.args.shaping:  # else no rollout decided it
            self.args.ces_tau = state.get("tau") or AUTO

    def _truncated(self, completion_ids: list[list[int]]) -> torch.Tensor:
        """Which completions do not end by themselves. Shape (len(completion_ids),), bool."""
        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        # A user's rollout_func may return tensors.
        found = [len(ids) == 0 or int(ids[-1]) not in ends for ids in completion_ids]
        return torch.tensor(found, device=self.accelerator.device)

    def _warn_unless_binary(self, accuracy: torch.Tensor) -> None:
        """
        Warns once if an accuracy reward, shape (N,), is neither 0 nor 1.

        A reward that is named, or used with a threshold, may be graded.
        """
        chosen = self.args.ces_accuracy_reward is not None or self.args.ces_correct_threshold != 1.0
        odd = None if chosen or self._warned_of_graded else odd_reward(accuracy)
        if odd is not None and self._accuracy_index is not None:
            self._warned_of_graded = True
            if self.accelerator.is_main_process:
                logger.warning(
                    "Correctness is taken from the reward function %s, which returned %g. A completion is correct at "
                    ">= `ces_correct_threshold` (1.0): set that, or name the accuracy reward in "
                    "`ces_accuracy_reward`.",
                    self.reward_func_names[self._accuracy_index],
                    odd,
                )
