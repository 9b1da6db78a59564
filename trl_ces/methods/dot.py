"""DOT, dynamic outlier truncation, arXiv 2601.03969, by its code (`projects/dot/length_truncation.py`, on verl).

Where all of a group's completions are correct, one that is far longer than the others is cut, and graded again:

    T = floor(mean l + alpha std l), std over n - 1;  where l - T >= least: the first T tokens are kept

A cut completion has no answer, so it is wrong, and a group that taught nothing now says that it should have been
shorter. What is cut off is in neither the loss nor the attention, and all rewards see what is left.

The authors train with alpha = 3, least = 32 tokens, G = 32, KL-Cov, clip 0.2, seq-mean-token-mean and dynamic
sampling. Ours: an unscored completion is not correct, so its group is left alone; lengths are the policy's own
tokens.

Degenerate cases: a deviation is at most (G - 1) / sqrt(G) standard deviations, so with alpha = 3 nothing is ever cut
in groups of ten or fewer. Equal lengths: T is that length. A group with one wrong completion is left alone.
"""

import math

import torch
from torch import Tensor


def dot_limits(lengths: Tensor, correct: Tensor, alpha: float, least: int) -> Tensor:
    """
    How many tokens of each completion stay.

    Args:
        lengths (`Tensor`): Shape (P, G), int64, tokens.
        correct (`Tensor`): Shape (P, G), bool.
        alpha (`float`): Standard deviations above the mean.
        least (`int`): Fewest tokens that are cut off.

    Returns:
        `Tensor`: Shape (P, G), int64; `lengths` where nothing is cut.
    """
    exact = lengths.double()
    longest = (exact.mean(dim=1) + alpha * exact.std(dim=1)).floor().long().unsqueeze(1)
    cut = correct.all(dim=1, keepdim=True) & (lengths - longest >= least)
    return torch.where(cut, longest, lengths)


def largest_deviation(size: int) -> float:
    """Of one of `size` numbers from their mean, in their standard deviations over n - 1."""
    return (size - 1) / math.sqrt(size)
