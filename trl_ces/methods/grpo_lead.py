"""
GRPO-LEAD's length-dependent accuracy, arXiv 2504.09696.

A whole reward, not a column that is added: a correct completion earns less the longer it is among the correct ones of
its group, and a wrong one earns -1. Give the accuracy reward, from which the verdicts come, the weight 0.

    reward_i = exp(-alpha z_i) if correct, -1 if wrong,    z_i = (l_i - mean) / (std + 1e-7)

with mean and std (dividing by n) over the group's correct lengths. By the paper: its public code has no length term.
The paper's third part, which weights advantages by the difficulty of the problem, is not here.

Degenerate cases: one correct, or all correct lengths equal: z = 0, so 1. None correct: -1 for all, so A = 0. A wrong
completion gains nothing by its length. Unscored completions have no part in mean and std.
"""

import torch
from torch import Tensor

from .groups import Groups, z_scores


def grpo_lead_length_reward(groups: Groups, *, alpha: float) -> Tensor:
    """
    GRPO-LEAD's reward.

    Args:
        groups ([`Groups`]): Reads `correct` and `lengths`.
        alpha (`float`): How much a correct completion loses a standard deviation.

    Returns:
        `Tensor`: Shape (P, G), float32, above 0 or -1. Undefined where a completion is unscored.
    """
    shortened = torch.exp(-alpha * z_scores(groups.lengths, groups.correct))
    return torch.where(groups.correct, shortened, -1.0)
