"""What CES must know of a rollout besides its advantages: which completions are right, and how their groups did."""

import torch
from torch import Tensor


def group_counts(correct: Tensor, scorable: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """
    The two integers whose ratio is the group accuracy *a* of Eq. 2.

    A completion that could not be scored (its accuracy reward is `None`) counts in neither.

    Args:
        correct (`Tensor`): Shape (B,), bool, r_acc = 1. B is a multiple of `group_size`; groups are contiguous.
        scorable (`Tensor`): Shape (B,), bool, the accuracy reward is a number.
        group_size (`int`): G, completions of one prompt.

    Returns:
        `tuple[Tensor, Tensor]`: `group_correct` and `group_scorable`, shape (B,), int64, repeated for each member.
    """

    def per_group(flags: Tensor) -> Tensor:
        return flags.view(-1, group_size).sum(dim=1).repeat_interleave(group_size)

    return per_group(correct & scorable), per_group(scorable)


def group_accuracy(group_correct: Tensor, group_scorable: Tensor) -> Tensor:
    """Eq. 2, a = (1/N) sum r_acc. Shape (B,), float32; 0 where nothing in the group could be scored."""
    return group_correct / group_scorable.clamp(min=1)


def verdicts(
    rewards_per_func: Tensor, accuracy_index: int, weights: Tensor, threshold: float, group_size: int
) -> dict[str, Tensor]:
    """
    Correctness and group accuracy of a rollout, from its rewards.

    Args:
        rewards_per_func (`Tensor`):
            Shape (N, functions), NaN where a function gave no number; groups contiguous, over all processes.
        accuracy_index (`int`): The function that says whether a completion is correct.
        weights (`Tensor`): Shape (functions,), TRL's `reward_weights`.
        threshold (`float`): Correct is an accuracy of at least this.
        group_size (`int`): G.

    Returns:
        `dict[str, Tensor]`: Shape (N,) each. `correct`, `scorable` and `equal_rewards` (whether nothing but the
        shaping teaches in that group), bool; `group_correct` and `group_scorable`, int64, see [`group_counts`].
    """
    accuracy = rewards_per_func[:, accuracy_index]
    scorable = ~accuracy.isnan()
    correct = accuracy >= threshold  # False where it is NaN
    group_correct, group_scorable = group_counts(correct, scorable, group_size)  # Eq. 2
    rewards = (rewards_per_func * weights.to(accuracy.device)).nansum(dim=1).view(-1, group_size)
    unscorable = rewards_per_func.isnan().all(dim=1).view(-1, group_size)  # TRL leaves these out of the baseline
    highest = rewards.masked_fill(unscorable, -torch.inf).amax(dim=1)
    lowest = rewards.masked_fill(unscorable, torch.inf).amin(dim=1)
    return {
        "correct": correct,
        "scorable": scorable,
        "group_correct": group_correct,
        "group_scorable": group_scorable,
        "equal_rewards": (highest <= lowest).repeat_interleave(group_size),
    }


def odd_reward(accuracy: Tensor) -> float | None:
    """The first of the rewards, shape (N,), that is a number and neither 0 nor 1; `None` if there is none."""
    odd = accuracy[~accuracy.isnan() & (accuracy != 0) & (accuracy != 1)]
    return odd[0].item() if odd.numel() > 0 else None
