"""
ShorterBetter, arXiv 2504.21370.

The shortest correct completion of a group says how long one need be, its "sample optimal length" l*. Every
completion, correct or wrong, pays for its distance to it, in either direction:

    reward_i = -beta * abs(l_i - l*),    l* = shortest correct length, or the group's mean length if none is correct

The paper's whole reward is alpha * 1[correct] plus this. alpha is the weight of the accuracy reward in
`reward_weights`; its code has alpha = 2 and beta = 0.001 a token.

Assumes that the shortest correct completion reasoned: a lucky guess sets l* too. beta is per token, so it must fit the
lengths of the task.

Degenerate cases: none correct: pulled to the mean of all lengths, unscored ones included. All lengths equal, or one
completion: 0. All correct: l* is the shortest. A truncated completion counts as any other.
"""

import torch
from torch import Tensor

from .groups import Groups, from_mean, paid_by


def shorter_length_reward(groups: Groups, *, beta: float = 0.001, correct_only: bool = False) -> Tensor:
    """
    ShorterBetter's length term.

    Args:
        groups ([`Groups`]): Reads `correct` and `lengths`.
        beta (`float`): Penalty per token of distance.
        correct_only (`bool`, *optional*, defaults to `False`): Whether wrong completions get 0 instead.

    Returns:
        `Tensor`: Shape (P, G), float32, at most 0. Undefined where a completion is unscored.
    """
    too_long = torch.iinfo(groups.lengths.dtype).max
    shortest = groups.lengths.masked_fill(~groups.correct, too_long).amin(dim=1, keepdim=True)
    from_group_mean = from_mean(groups.lengths, torch.ones_like(groups.correct))
    any_correct = groups.correct.any(dim=1, keepdim=True)
    distance = torch.where(any_correct, groups.lengths - shortest, from_group_mean).abs()
    return paid_by(groups, -beta * distance, correct_only)
