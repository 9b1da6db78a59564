"""ALP: a price on every token, higher where the problem is easy.

"Just Enough Thinking", arXiv 2506.05256: -beta * max(p, 1/G) * length / N, with p the group's solve rate. It is to
length what Eq. 6 of CES is to entropy: the multiplier of a correct completion there is p as well.

Assumes that the solve rate of G completions tells how much thinking a problem needs. p is over the scorable
completions. Where none is right, the price is that of one right completion. Right and wrong ones pay alike.
"""

from torch import Tensor

from .groups import Groups


def alp_length_reward(groups: Groups, *, beta: float, normalizer: float | None = None) -> Tensor:
    """
    -beta * max(p, 1/G) * length / N.

    Args:
        groups ([`Groups`]): P groups of G completions.
        beta (`float`): Price of N tokens where every completion is right.
        normalizer (`float`, *optional*): N, tokens. Default: the longest length allowed.

    Returns:
        `Tensor`: Shape (P, G), float32, in [-beta, 0] by default.

    Raises:
        `ValueError`: No `normalizer` is given and completions have no longest length.
    """
    longest = groups.max_length if normalizer is None else normalizer
    if longest is None:
        raise ValueError("`normalizer` is missing, and `max_completion_length` is None: set one.")
    size = groups.lengths.size(1)
    price = groups.solve_rate.clamp(min=1 / size).unsqueeze(1)
    return -beta / longest * price * groups.lengths
