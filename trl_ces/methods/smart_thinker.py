"""
SmartThinker's length penalty, arXiv 2603.08000 (ICML 2026), by its public code (SJTU-RTEAS/SmartThinker,
src/workers/reward_manager/SmartThinker.py).

Fits one normal density to the lengths of all completions of a group and one to those of the correct ones. The length
at which correct completions are most over-represented is the target l*; a correct completion pays for the tokens
beyond it, at a price that keeps the longest correct one above the mean of the group:

    reward_i = -Lambda * pen_i,    pen_i = max(0, l_i - l*) if correct, 0 if wrong
    Lambda = (1 - p) / (max pen - mean pen + 1e-6)

    l* = min l                                      if all are correct, or v2 > v1
       = (v1 mu2 - v2 mu1) / (v1 - v2), in [min l, max l]    if v2 < v1
       = max l if mu2 < mu1, else min l             if v2 = v1 up to 1e-6

mu1, v1 are the mean and variance (dividing by n) of all lengths, mu2, v2 those of the correct ones.

Degenerate cases: all correct: 0, because Lambda is 0. All wrong: 0, because nobody pays. One correct: v2 = 0, so l* is
its own length and it pays nothing. Unscored completions count in mu1, v1, min and max, as their length is known, and
nowhere else.
"""

import torch
from torch import Tensor

from .groups import Groups


def smart_thinker_length_reward(groups: Groups) -> Tensor:
    """
    SmartThinker's length penalty.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored` and `lengths`.

    Returns:
        `Tensor`: Shape (P, G), float32, at most 0. Undefined where a completion is unscored.
    """
    lengths, correct = groups.lengths.double(), groups.correct
    shortest, longest = lengths.amin(dim=1), lengths.amax(dim=1)
    mean, variance = _moments(lengths, torch.ones_like(correct))
    mean_correct, variance_correct = _moments(lengths, correct)
    gap = variance - variance_correct
    crossing = (variance * mean_correct - variance_correct * mean) / gap
    target = torch.where(gap < 0, shortest, crossing.clamp(shortest, longest))
    equal = torch.where(mean_correct < mean, longest, shortest)
    target = torch.where(gap.abs() < 1e-6, equal, target)

    penalty = (lengths - target.unsqueeze(1)).clamp(min=0) * correct
    mean_penalty = penalty.sum(dim=1) / groups.scored.sum(dim=1).clamp(min=1)
    price = (1 - groups.solve_rate) / (penalty.amax(dim=1) - mean_penalty + 1e-6)
    return -(price.unsqueeze(1) * penalty).float()


def _moments(lengths: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance, dividing by n, of each row's counted lengths; 0 where none is counted."""
    n = counted.sum(dim=1).clamp(min=1)
    mean = (lengths * counted).sum(dim=1) / n
    return mean, ((lengths - mean.unsqueeze(1)) ** 2 * counted).sum(dim=1) / n
