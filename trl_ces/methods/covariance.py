"""What Clip-Cov and KL-Cov share: the covariance of each token, and a share of the tokens.

From "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models", arXiv 2505.22617: the policy's
entropy falls in proportion to the covariance of log-prob and advantage, and a few tokens carry most of it.
"""

import math

import torch
from torch import Tensor

from .ces import selection_size, top_entropy_tokens
from .rule import exact

# In model cards, after the name.
TITLE = "of Cui et al. ([arXiv 2505.22617](https://arxiv.org/abs/2505.22617))"


def token_covariances(advantages: Tensor, logps: Tensor, mask: Tensor) -> Tensor:
    """
    Eq. 10 of arXiv 2505.22617: (logp - mean logp) (A - mean A), with means over the micro-batch's tokens in the loss.

    As in verl, the means are of one micro-batch. They couple its rows: with one row, or one advantage, all are
    exactly 0.

    Args:
        advantages (`Tensor`): Shape (B,), A of Eq. 3.
        logps (`Tensor`): Shape (B, T), natural log-probs of the policy being updated; detached.
        mask (`Tensor`): Shape (B, T), the loss mask.

    Returns:
        `Tensor`: Shape (B, T), the advantages' dtype; without meaning outside the mask.
    """
    logps, advantages = logps.detach().to(advantages.dtype), advantages.unsqueeze(1)
    tokens = mask.sum().clamp(min=1)
    mean_logp = torch.where(mask.bool(), logps, 0.0).sum() / tokens
    mean_advantage = (advantages * mask).sum() / tokens
    # One advantage differs from its own rounded mean: the sign of that rounding would choose the tokens.
    in_loss = mask.bool().any(dim=1, keepdim=True)
    lowest = torch.where(in_loss, advantages, torch.inf).amin()
    highest = torch.where(in_loss, advantages, -torch.inf).amax()
    return torch.where(lowest == highest, 0.0, (logps - mean_logp) * (advantages - mean_advantage))


def share_of_tokens(scores: Tensor, candidates: Tensor, mask: Tensor, share: float) -> Tensor:
    """
    The max(1, floor(share * N)) candidates of highest score in the micro-batch; all of them if there are fewer.

    Args:
        scores (`Tensor`): Shape (B, T). Ties go to the earlier token, row by row.
        candidates (`Tensor`): Shape (B, T), bool, tokens to choose from.
        mask (`Tensor`): Shape (B, T), the loss mask; N is its sum.
        share (`float`): Above 0, at most 1, at most nine decimals.

    Returns:
        `Tensor`: Shape (B, T), bool.
    """
    size = selection_size(mask.sum(dtype=torch.int64), share).clamp(min=1)
    size = torch.minimum(size, candidates.sum()).view(1)
    largest = max(1, math.floor(mask.numel() * exact(share)))  # no device synchronization
    return top_entropy_tokens(scores.reshape(1, -1), candidates.reshape(1, -1), size, largest).view(mask.shape)
