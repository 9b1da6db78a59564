"""
Group Relative Reward Rescaling (GR3), arXiv 2603.10535.

Multiplies the reward by a factor that falls with the length relative to the group's mean, instead of adding a penalty:
where the reward is 0 length changes nothing, so a short wrong completion gains nothing.

    R'_i = R_i * S_i,    S_i = 1 / (1 + alpha * l_i / mean l)

Rewards are columns that TRL adds up, so this one is the difference, R_i * (S_i - 1): with the weight of the accuracy
reward, the two sum to R'_i exactly. The mean is over the whole group. alpha = 0.33 is what prime-rl's implementation
(its pull request 2029) recommends; the paper's calibration of alpha on the advantages is not here.

Assumes that the accuracy reward is the reward to rescale: other rewards are not touched. Where all are correct only
length tells them apart; prime-rl drops such groups, as `dynamic_sampling` does.

A reward below 0 stays as it is: scaled towards 0 it would pay for length.

Degenerate cases: none correct: 0. All lengths equal, or one completion: R_i * -alpha / (1 + alpha), so no advantage
beyond the accuracy's. All correct: shorter is better. Unscored and truncated completions count in the mean.
"""

from torch import Tensor

from .groups import Groups


def gr3_length_reward(groups: Groups, *, alpha: float = 0.33) -> Tensor:
    """
    What GR3 takes from the accuracy reward.

    Args:
        groups ([`Groups`]): Reads `lengths` and `rewards`.
        alpha (`float`): Strength. A correct completion of the mean length keeps 1 / (1 + alpha) of its reward.

    Returns:
        `Tensor`: Shape (P, G), float32. Undefined where a completion is unscored.
    """
    total = groups.lengths.sum(dim=1, keepdim=True).clamp(min=1)
    relative = alpha * (groups.lengths * groups.lengths.size(1) / total)
    return -groups.rewards.clamp(min=0) * relative / (1 + relative)  # R * (S - 1)
