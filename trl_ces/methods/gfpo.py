"""GFPO, Group Filtered Policy Optimization: sample more, and learn from the shortest.

"Sample More to Think Less", arXiv 2508.09726, Eq. 2 and Algorithm 1: of a group's G completions only the k best by a
metric get an advantage, with mean and deviation over those k:

    A_i = (R_i - mean_S R) / std_S R  for i in S, 0 elsewhere;  S = the k shortest, or those of most reward per token

The rejected completions stay in the divisor of the loss. The deviation is TRL's, of the sample, plus 1e-4.

Assumes G larger than k, as in the paper (k up to 8 of 8 to 24): the filter picks among what was sampled. Where all k
have one reward, A = 0 and the group teaches nothing, though the whole group would: the shortest of a hard problem may
all be wrong. Reward per token puts the longest first among negative rewards, and ties where all are wrong, at 0. A
completion without any reward is kept last; ties go to the earlier completion.
"""

import torch
from torch import Tensor

METRICS = ("length", "reward_per_token", "qlpo")  # the last in qlpo.py


def gfpo_rejected(lengths: Tensor, rewards: Tensor, keep: int, metric: str) -> Tensor:
    """
    The completions that GFPO gives no advantage.

    Args:
        lengths (`Tensor`): Shape (P, G), int64, the policy's own tokens. 0 counts as 1 in reward per token.
        rewards (`Tensor`): Shape (P, G), float, weighted sum over the reward functions; NaN where there is none.
        keep (`int`): k of each group, 1 <= k <= G.
        metric (`str`): `"length"`, shortest first, or `"reward_per_token"`, highest first.

    Returns:
        `Tensor`: Shape (P, G), bool; G - k in each row.
    """
    scores = -lengths.to(rewards.dtype) if metric == "length" else rewards / lengths.clamp(min=1)
    scores = scores.masked_fill(rewards.isnan(), -torch.inf)
    best = scores.argsort(dim=1, descending=True, stable=True)[:, :keep]  # Algorithm 1
    return torch.ones_like(rewards, dtype=torch.bool).scatter(1, best, False)
