"""
The length penalty of Arora & Zanette, "Training Language Models to Reason Efficiently", arXiv 2502.04463.

A correct completion loses by how long it is among the correct ones of its group; a wrong one loses nothing. The
paper's whole reward is 1[correct] * (1 - alpha * sigmoid(z)); what it adds to the accuracy reward is

    reward_i = -1[correct] * alpha * sigmoid(z_i),    z_i = (l_i - mean) / (std + 1e-7)

with mean and std over the group's correct lengths, std dividing by n, as in the authors' code (efficient-reasoning,
reward_server/math_server.py). The weight in `reward_weights` is that of the accuracy reward.

Assumes several correct completions a group. The paper trains with alpha from 0.05 to 0.4. Its code counts a completion
without an end-of-sequence token as wrong; here the accuracy reward decides, and `accuracy_reward` gives 0 to unclosed
thinking.

Degenerate cases: none correct: 0. One correct, or all correct lengths equal: z = 0, so -alpha / 2, which favours no
length. All correct: as above. Wrong and unscored completions have no part in mean and std; a
truncated one has if it is correct.
"""

import torch
from torch import Tensor

from .groups import Groups, z_scores


def arora_length_reward(groups: Groups, *, alpha: float) -> Tensor:
    """
    The length penalty of Arora & Zanette.

    Args:
        groups ([`Groups`]): Reads `correct` and `lengths`.
        alpha (`float`): Largest penalty. Below 1, a correct completion stays above a wrong one.

    Returns:
        `Tensor`: Shape (P, G), float32, in (-alpha, 0]. Undefined where a completion is unscored.
    """
    return -alpha * torch.sigmoid(z_scores(groups.lengths, groups.correct)) * groups.correct
