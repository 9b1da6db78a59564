"""
The pass-rate-scaled length penalty of MAI-Thinking-1's report (2026), by NeMo-RL's code
(`pass_rate_length_penalty_weight`).

Only correct completions pay, by their length relative to the longest correct one, and more where more of the group is
correct:

    reward_i = -w * p * l_i / (max l over correct) if correct, 0 if wrong

A wrong completion can gain nothing by its length, so a group without a correct one teaches nothing: length terms on
wrong completions get unit variance there by group scaling, whatever their weight (arXiv 2606.22716).

Degenerate cases: none correct: 0. All correct: up to -w. One correct: it pays w p, whatever its length. Unscored
completions do not count in p. A truncated completion is what the accuracy reward says it is.
"""

from torch import Tensor

from .groups import Groups


def mai_length_reward(groups: Groups, *, weight: float = 0.25) -> Tensor:
    """
    MAI-Thinking-1's length penalty, on correct completions only.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored` and `lengths`.
        weight (`float`, *optional*, defaults to 0.25): w, what the longest correct completion pays where all are.

    Returns:
        `Tensor`: Shape (P, G), float32, in [-w, 0]. Undefined where a completion is unscored.
    """
    longest = (groups.lengths * groups.correct).amax(dim=1, keepdim=True).clamp(min=1)
    return -weight * groups.solve_rate.unsqueeze(1) * groups.lengths / longest * groups.correct
