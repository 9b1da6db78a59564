"""QLPO: of each group, keep more of the short correct and of the long wrong completions. arXiv 2607.21793, no code.

A selector beside GFPO, which keeps the mix of verdicts. Of a group's n completions with c correct ones, M are kept:
N+ = round(M c / n) correct and N- = M - N+ wrong ones. Each class is cut at its median length, and

    ceil(s N+) are drawn from the short half of the correct ones, ceil(s N-) from the long half of the wrong ones,
    the others from the other halves, each half uniformly;  s = 1 / (1 + alpha)

The advantages are normalized over those kept. The paper's alpha is 1/3, so s = 0.75; with alpha = 1 both halves are
drawn from alike. Short correct completions are learned, long wrong ones unlearned.

Ours where the paper is silent: halves round up, and the middle of an odd class is in the half that is preferred; a
half that is too small is taken whole, and the other gives the rest; a completion without a verdict is never kept, and
n does not count it. The draws are made from a hash of the rollout: the same on every process and after a restart.

Degenerate cases: n <= M: all of the n are kept. One verdict in a group: half of it is kept, and A = 0 as without.
"""

from fractions import Fraction

import torch
from torch import Tensor

from .groups import Groups, prompt_number
from .rule import exact


def qlpo_rejected(groups: Groups, draws: Tensor, keep: int, preferred: float) -> Tensor:
    """
    The completions that QLPO gives no advantage.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored` and `lengths`.
        draws (`Tensor`): Shape (P, G), float, random, see [`qlpo_draws`]: the lowest of a half are drawn.
        keep (`int`): M, completions of each group, 1 <= M <= G.
        preferred (`float`): s, the share that comes from the preferred half of each class, at most 1.

    Returns:
        `Tensor`: Shape (P, G), bool.
    """
    right, wrong = groups.correct & groups.scored, ~groups.correct & groups.scored
    scored = groups.scored.sum(dim=1)
    kept, known = scored.clamp(max=keep), scored.clamp(min=1)
    kept_right = (2 * kept * right.sum(dim=1) + known) // (2 * known)  # rounded, halves up
    share = exact(preferred)
    chosen = _drawn(right, groups.lengths, draws, kept_right, share)
    return ~(chosen | _drawn(wrong, -groups.lengths, draws, kept - kept_right, share))


def qlpo_draws(groups: Groups, seed: int) -> Tensor:
    """Numbers in [0, 1), shape (P, G), float64, that depend on `seed`, the prompts and the lengths alone."""
    rollout = [seed, groups.prompts.tolist(), groups.lengths.tolist()]
    generator = torch.Generator().manual_seed(prompt_number(rollout))
    return torch.rand(groups.lengths.shape, generator=generator, dtype=torch.float64).to(groups.lengths.device)


def _drawn(members: Tensor, order: Tensor, draws: Tensor, count: Tensor, share: Fraction) -> Tensor:
    """`count`, (P,), of the members of each group, more from the half that is first in `order`. (P, G), bool."""
    half = (members.sum(dim=1) + 1) // 2
    first = members & (_ranks(order, members) < half.unsqueeze(1))
    other = members & ~first
    wanted = (count * share.numerator + share.denominator - 1) // share.denominator
    of_other = torch.minimum(count - torch.minimum(wanted, half), other.sum(dim=1))
    of_first = count - of_other
    taken = first & (_ranks(draws, first) < of_first.unsqueeze(1))
    return taken | other & (_ranks(draws, other) < of_other.unsqueeze(1))


def _ranks(values: Tensor, members: Tensor) -> Tensor:
    """Each member's place among the members of its group, lowest value first; ties go to the earlier. (P, G)."""
    ordered = values.double().masked_fill(~members, torch.inf).argsort(dim=1, stable=True)
    return ordered.argsort(dim=1)
