"""
LASER, length-based step reward, "Learn to Reason Efficiently with Adaptive Length-based Reward Shaping", arXiv
2505.15612.

A correct completion gets a bonus if it keeps to a target length; nothing is taken from a longer one. So length only
counts between correct completions, and only at one point:

    reward_i = 1[correct] * alpha * 1[l_i <= target]

The authors' code (hkust-nlp/Laser) has alpha = 0.5, and targets of 2,048, 4,096 and 8,192 tokens for
R1-Distill-Qwen-1.5B.

Assumes a target that the policy sometimes meets: far below its lengths, no completion gets the bonus and nothing is
learned from it. LASER-D, which sets a target for each class of difficulty during training, is laser_d.py.

Degenerate cases: none correct: 0. All lengths equal, or one completion: unchanged, no other completion counts.
A truncated completion that is correct counts by its length.
"""

from torch import Tensor

from .groups import Groups


def laser_length_reward(groups: Groups, *, alpha: float, target: float) -> Tensor:
    """
    LASER's step reward.

    Args:
        groups ([`Groups`]): Reads `correct` and `lengths`.
        alpha (`float`): The bonus.
        target (`float`): Longest length that gets it, tokens.

    Returns:
        `Tensor`: Shape (P, G), float32, 0 or alpha. Undefined where a completion is unscored.
    """
    return alpha * (groups.correct & (groups.lengths <= target)).float()
