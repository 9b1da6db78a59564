"""Correctness, length and truncation of each completion of a rollout, and the accuracy of the groups (Eq. 2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

TENSORS = ("correct", "scored", "truncated", "lengths", "rewards")  # fields of `Groups`


@dataclass(frozen=True)
class Groups:
    """
    Input of a group reward: P prompts with G completions each, gathered over processes.

    Args:
        correct (`Tensor`): Shape (P, G), bool: whether the accuracy reward is at least `ces_correct_threshold`.
        scored (`Tensor`): Shape (P, G), bool: whether the accuracy reward is a number.
        truncated (`Tensor`): Shape (P, G), bool: whether the completion was cut off at the length limit.
        lengths (`Tensor`): Shape (P, G), int64: number of the policy's own tokens, without tool output.
        rewards (`Tensor`): Shape (P, G), float32: accuracy reward before weighting; NaN if not scored.
        max_length (`int`, *optional*): `max_completion_length`, the length limit in tokens.
    """

    correct: Tensor
    scored: Tensor
    truncated: Tensor
    lengths: Tensor
    rewards: Tensor
    max_length: int | None

    @property
    def group_accuracy(self) -> Tensor:
        """Accuracy of each group's scored completions (Eq. 2). Shape (P,), float32; 0 if no completion is scored."""
        return group_accuracy((self.correct & self.scored).sum(dim=1), self.scored.sum(dim=1))

    def group(self, index: int) -> "Groups":
        """Return one group, with P = 1."""
        return replace(self, **{name: vars(self)[name][index : index + 1] for name in TENSORS})

    @staticmethod
    def concatenate(groups: "Sequence[Groups]") -> "Groups":
        """Concatenate groups, which must have the same `max_length`."""
        tensors: dict[str, Any] = {name: torch.cat([vars(part)[name] for part in groups]) for name in TENSORS}
        return replace(groups[0], **tensors)


def group_counts(correct: Tensor, scored: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """
    Compute the numerator and denominator of the group accuracy, Eq. 2.

    Unscored completions, whose accuracy reward is `None`, are excluded from both counts.

    Args:
        correct (`Tensor`): Shape (B,), bool, r_acc = 1. B is a multiple of `group_size`; groups are contiguous.
        scored (`Tensor`): Shape (B,), bool: whether the accuracy reward is a number.
        group_size (`int`): G, completions per prompt.

    Returns:
        `tuple[Tensor, Tensor]`: `group_correct` and `group_scored`, shape (B,), int64, repeated over the group.
    """

    def per_group(flags: Tensor) -> Tensor:
        return flags.view(-1, group_size).sum(dim=1).repeat_interleave(group_size)

    return per_group(correct & scored), per_group(scored)


def group_accuracy(group_correct: Tensor, group_scored: Tensor) -> Tensor:
    """Compute the group accuracy, (1/N) sum r_acc of Eq. 2. Shape (B,), float32; 0 if no completion is scored."""
    return group_correct / group_scored.clamp(min=1)


def completion_facts(groups: Groups, rewards_per_func: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """
    Flatten the groups into the inputs of a token rule, shape (P * G,) each.

    Bool: `correct`, `scored`, `truncated`, and `equal_rewards` (A = 0 for the whole group, so only the shaping term
    has a gradient). Int64: `group_correct` and `group_scored`, see [`group_counts`]. `rewards_per_func`: shape (P * G,
    functions), NaN for no reward; `weights`: TRL's `reward_weights`.
    """
    size = groups.correct.size(1)
    correct, scored = groups.correct.flatten(), groups.scored.flatten()
    group_correct, group_scored = group_counts(correct, scored, size)  # Eq. 2
    return {
        "correct": correct,
        "scored": scored,
        "group_correct": group_correct,
        "group_scored": group_scored,
        "equal_rewards": equal_rewards(rewards_per_func, weights, size),
        "truncated": groups.truncated.flatten(),
    }


def equal_rewards(rewards_per_func: Tensor, weights: Tensor, group_size: int) -> Tensor:
    """Return whether all rewards in a completion's group, ignoring NaN, are equal, i.e. A = 0. Shape (N,), bool."""
    rewards = (rewards_per_func * weights.to(rewards_per_func.device)).nansum(dim=1)
    # TRL excludes completions without a reward from the baseline.
    rewards = rewards.masked_fill(rewards_per_func.isnan().all(dim=1), torch.nan)
    lowest, highest = group_extremes(rewards, group_size)
    return (highest <= lowest).repeat_interleave(group_size)


def group_extremes(rewards: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """Return each group's lowest and highest reward, ignoring NaN. Shape (N / G,); +inf and -inf if all are NaN."""
    groups = rewards.view(-1, group_size)
    is_nan = groups.isnan()
    lowest = groups.masked_fill(is_nan, torch.inf).amin(dim=1)
    return lowest, groups.masked_fill(is_nan, -torch.inf).amax(dim=1)


def graded_reward(accuracy: Tensor) -> float | None:
    """Return the first reward that is a number other than 0 or 1, else `None`. `accuracy` has any shape."""
    graded = accuracy[~accuracy.isnan() & (accuracy != 0) & (accuracy != 1)]
    return graded[0].item() if graded.numel() > 0 else None
