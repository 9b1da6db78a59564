"""
Adaptive Length Penalty (ALP), "Just Enough Thinking", arXiv 2506.05256.

A token costs more on a problem that the policy solves more often, so easy problems get short and hard ones keep their
length. It is the length twin of CES's Eq. 6, whose b is the same solve rate:

    reward_i = -(beta / N) * max(p, 1 / G) * l_i

p is the share of correct completions among the scored ones, N a normalizing length. Correct and wrong completions
pay alike. The floor 1 / G keeps some pressure on problems that nothing solved.

Assumes that G is large enough for p to say how hard a problem is. With N = the longest completion allowed, beta is
what the longest completion to a problem that is always solved pays.

Degenerate cases: none correct: p = 1 / G. All correct: p = 1. All lengths equal: the same for all, so no advantage.
One completion: the full price, correct or not. Nothing scored: the floor. A truncated completion pays its length.
"""

from torch import Tensor

from .groups import Groups, paid_by


def alp_length_reward(
    groups: Groups, *, beta: float, normalizer: float | None = None, correct_only: bool = False
) -> Tensor:
    """
    Adaptive Length Penalty.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored`, `lengths`, and `max_length` if `normalizer` is `None`.
        beta (`float`): Penalty of a completion of N tokens where p = 1.
        normalizer (`float`, *optional*): N, tokens. Default: `groups.max_length`.
        correct_only (`bool`, *optional*, defaults to `False`): Whether wrong completions get 0 instead.

    Returns:
        `Tensor`: Shape (P, G), float32, at most 0. Undefined where a completion is unscored.

    Raises:
        `ValueError`: Neither `normalizer` nor a longest completion is given.
    """
    if normalizer is None:
        normalizer = groups.max_length
    if normalizer is None:
        raise ValueError(
            "alp_length_reward divides lengths by the longest completion allowed, and `max_completion_length` sets "
            "none: set it, or give `normalizer`, a number of tokens."
        )
    price = groups.solve_rate.clamp(min=1 / groups.lengths.size(1)).unsqueeze(1)
    return paid_by(groups, -beta / normalizer * price * groups.lengths, correct_only)
