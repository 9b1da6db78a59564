"""DLER's advantages, arXiv 2510.15110, by its public code (NVlabs/DLER, on verl): whitened over the tokens of a batch.

    A_i = (d_i - mean d) / sqrt(var d + 1e-8),   d_i = R_i - the group's mean reward

with mean and variance over all tokens in the loss of a rollout, so that a completion counts by its length; the
variance divides by the tokens less one. The paper's text has a deviation over the batch's rewards; this is what its
code runs. Of the code, two things that the paper's text lacks are not here: it adds 0.1 to the A of a correct
completion, and multiplies the reward of one that did not end by 0.1.

Assumes that groups of one reward were dropped, as in DLER: d = 0 otherwise becomes -mean / deviation, a push at a
completion that nothing was learned about. Degenerate case: one d for all, A = 0.
"""

from torch import Tensor


def whitened(differences: Tensor, tokens: Tensor) -> Tensor:
    """
    DLER's advantages.

    Args:
        differences (`Tensor`): Shape (N,), float, d: a rollout's, of all processes.
        tokens (`Tensor`): Shape (N,), int64, tokens in the loss of each completion.

    Returns:
        `Tensor`: Shape (N,), the dtype of `differences`.
    """
    d, count = differences.double(), tokens.sum()
    mean = (d * tokens).sum() / count.clamp(min=1)
    variance = ((d - mean) ** 2 * tokens).sum() / (count - 1).clamp(min=1)
    return ((d - mean) * (variance + 1e-8).rsqrt()).to(differences.dtype)
