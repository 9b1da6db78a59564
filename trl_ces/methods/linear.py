"""
The linear length penalty of prime-rl (`length_penalty` in its page on algorithms; its term for output tokens).

As in ALP, a token costs more where the policy solves more often; but lengths are measured against the group's own
longest completion, and a problem that nothing solved costs nothing:

    reward_i = -c * p * l_i / max l

p is the share of correct completions among the scored ones. prime-rl takes the group's mean reward there, which is
the same for an accuracy reward of 0 and 1. Its default for c is 0.25.

Assumes comparable lengths within a group: one very long completion makes all others cheap.

Degenerate cases: none correct, or nothing scored: 0. All lengths equal, or one completion: -c * p for all, so no
advantage. All correct: p = 1. Unscored and truncated completions count in max l.
"""

from torch import Tensor

from .groups import Groups, paid_by


def linear_length_reward(groups: Groups, *, coefficient: float = 0.25, correct_only: bool = False) -> Tensor:
    """
    prime-rl's linear length penalty.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored` and `lengths`.
        coefficient (`float`): c, penalty of the longest completion where p = 1.
        correct_only (`bool`, *optional*, defaults to `False`): Whether wrong completions get 0 instead.

    Returns:
        `Tensor`: Shape (P, G), float32, in [-c, 0]. Undefined where a completion is unscored.
    """
    longest = groups.lengths.amax(dim=1, keepdim=True).clamp(min=1)
    price = -coefficient * groups.solve_rate.unsqueeze(1)
    return paid_by(groups, price * (groups.lengths / longest), correct_only)
