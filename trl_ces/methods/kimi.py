"""
Kimi k1.5's length reward, arXiv 2501.12599, section 2.3.3 "Length Penalty".

The shortest completion of a group gets +0.5, the longest -0.5, those between are on the line that joins them. A wrong
completion gains nothing by being short, and loses by being long:

    lambda_i = 0.5 - (l_i - min l) / (max l - min l)
    reward_i = lambda_i if correct, min(0, lambda_i) if wrong

Assumes that lengths within a group are comparable, and that one very long completion may set the scale for the rest.
Its strength is its entry in `reward_weights`; the paper adds it to the accuracy reward with a weight, after some steps
without it. open-r1's copy, `len_reward`, takes min and max over the whole call, and in characters.

Degenerate cases: all lengths equal, or one completion: 0. None correct: never above 0. All correct: from -0.5 to 0.5.
Unscored and truncated completions count in min and max.
"""

import torch
from torch import Tensor

from .groups import Groups, paid_by


def kimi_length_reward(groups: Groups, *, correct_only: bool = False) -> Tensor:
    """
    Kimi k1.5's length reward.

    Args:
        groups ([`Groups`]): Reads `correct` and `lengths`.
        correct_only (`bool`, *optional*, defaults to `False`): Whether wrong completions get 0 instead.

    Returns:
        `Tensor`: Shape (P, G), float32, in [-0.5, 0.5]. Undefined where a completion is unscored.
    """
    shortest = groups.lengths.amin(dim=1, keepdim=True)
    span = groups.lengths.amax(dim=1, keepdim=True) - shortest
    lam = 0.5 - (groups.lengths - shortest) / span.clamp(min=1)
    return paid_by(groups, torch.where(groups.correct, lam, lam.clamp(max=0)) * (span > 0), correct_only)
