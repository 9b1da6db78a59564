"""Conditional Entropy Shaping, Eqs. 2 and 4-7 of arXiv 2605.19358, as pure functions on tensors.

What differs from DAPO is one tensor: the advantage, (B,) in DAPO, becomes (B, T) and carries the entropy of the
policy, with its gradient, at the few tokens where the policy was least sure. Everything else is TRL's.

Symbols: B completions, T token positions, G completions of one prompt (a group). Entropies are in bits (Eq. 4 has
log2) unless a name says nats. A mask is 1 on the tokens that count in the loss and 0 on padding and on tool output.
"""

import math
from fractions import Fraction

import torch
from torch import Tensor

from .shaped import ShapedAdvantages, entropy_in_bits

# With at most nine decimals in tau, the numerator of len * tau * b stays inside int64 while len * G < nine billion.
MAX_TAU_DECIMALS = 9


def dynamic_multiplier(correct: Tensor, group_correct: Tensor, group_scorable: Tensor) -> tuple[Tensor, Tensor]:
    """
    Eq. 6, b = a for a correct completion and 1 - a for a wrong one, as an exact fraction.

    Returns:
        `tuple[Tensor, Tensor]`: numerator and denominator of b, shape (B,), int64; b = 0 where nothing was scorable.
    """
    numerator = torch.where(correct, group_correct, group_scorable - group_correct)
    return numerator, group_scorable.clamp(min=1)


def top_rate(tau: float) -> Fraction:
    """tau as the exact decimal that the user wrote, which a float is not."""
    return Fraction(repr(float(tau)))


def selection_size(lengths: Tensor, tau: float, multiplier: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """
    Eq. 5, k = floor(|y| * tau * b), exactly.

    tau is read as the decimal that the user wrote and b as a fraction of counts, so the floor is taken of an integer
    quotient. In float32, 300 tokens at tau 0.01 and b = 1 - 2/3 give 0 instead of 1.

    Args:
        lengths (`Tensor`): Shape (B,), int64, |y|: tokens in the loss mask.
        tau (`float`): Top-rate in [0, 1], at most nine decimals.
        multiplier (`tuple[Tensor, Tensor]`, *optional*):
            Numerator and denominator of b, shape (B,), int64. `None` is b = 1, the paper's "w/o Dynamic b".

    Returns:
        `Tensor`: k, shape (B,), int64.
    """
    rate = top_rate(tau)
    if multiplier is None:
        return lengths * rate.numerator // rate.denominator
    numerator, denominator = multiplier
    return lengths * rate.numerator * numerator // (rate.denominator * denominator)  # Eq. 5


def top_entropy_tokens(entropies: Tensor, mask: Tensor, sizes: Tensor, largest: int | None = None) -> Tensor:
    """
    S_H of Eq. 7: the k tokens of highest entropy in each completion, exactly k, the earlier one first on a tie.

    Args:
        entropies (`Tensor`): Shape (B, T), any unit. Only their order counts; no gradient flows.
        mask (`Tensor`): Shape (B, T), 1 on the tokens that can be chosen. At least `sizes` of them in each row.
        sizes (`Tensor`): Shape (B,), int64, k.
        largest (`int`, *optional*): No k is above this. The fewer, the faster; T if not given.

    Returns:
        `Tensor`: Shape (B, T), bool.
    """
    candidates = entropies.detach().masked_fill(mask == 0, -math.inf)
    k = sizes.unsqueeze(1)
    highest = candidates.topk(candidates.size(1) if largest is None else largest, dim=1).values
    # The k-th highest of each row. With k = 0 nothing is above +inf.
    ends = torch.nn.functional.pad(highest, (1, 0), value=math.inf).gather(1, k)
    above, tied = candidates > ends, candidates == ends
    return above | tied & (tied.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True))


def ces_advantages(
    advantages: Tensor,
    entropies: Tensor,
    selected: Tensor,
    correct: Tensor,
    beta_correct: float,
    beta_incorrect: float,
) -> Tensor:
    """
    Eq. 7: A' = A - beta_1 H on the selected tokens of correct completions, A + beta_2 H on those of wrong ones.

    Args:
        advantages (`Tensor`): Shape (B,), A of Eq. 3.
        entropies (`Tensor`): Shape (B, T), bits. The gradient flows through them, unless the caller detached them.
        selected (`Tensor`): Shape (B, T), bool, S_H.
        correct (`Tensor`): Shape (B,), bool, r_acc = 1.
        beta_correct (`float`): beta_1, advantage per bit.
        beta_incorrect (`float`): beta_2, advantage per bit.

    Returns:
        `Tensor`: A', shape (B, T).
    """
    signed_beta = torch.where(correct, -beta_correct, beta_incorrect).unsqueeze(1)
    return advantages.unsqueeze(1) + torch.where(selected, signed_beta * entropies, 0.0)


def conditional_entropy_shaping(
    batch: dict[str, Tensor],
    entropies_nats: Tensor,
    mask: Tensor,
    *,
    tau: float,
    beta_correct: float,
    beta_incorrect: float,
    dynamic_multiplier_on: bool = True,
    entropy_gradient: bool = True,
) -> ShapedAdvantages:
    """
    Algorithm 1 of the paper on one micro-batch.

    Args:
        batch (`dict[str, Tensor]`):
            Shape (B,) each: `advantages`; `correct`, `scorable` (bool); `group_correct`, `group_scorable` (int64).
        entropies_nats (`Tensor`): Shape (B, T), of the policy that is being updated, nats, 0 on padding.
        mask (`Tensor`): Shape (B, T), the loss mask.
        tau, beta_correct, beta_incorrect: See [`CESConfig`].
        dynamic_multiplier_on (`bool`): `False` is the paper's "w/o Dynamic b".
        entropy_gradient (`bool`): `False` is the paper's "w/o Entropy Gradient".

    Returns:
        [`ShapedAdvantages`]
    """
    correct, scorable = batch["correct"], batch["scorable"]
    entropies = entropy_in_bits(entropies_nats)  # Eq. 4
    if not entropy_gradient:
        entropies = entropies.detach()
    b = dynamic_multiplier(correct, batch["group_correct"], batch["group_scorable"]) if dynamic_multiplier_on else None
    lengths = mask.sum(dim=1, dtype=torch.int64)
    k = selection_size(lengths, tau, b) * scorable
    largest = math.floor(mask.size(1) * top_rate(tau))  # known without a wait for the device
    selected = top_entropy_tokens(entropies, mask, k, largest)
    shaped = ces_advantages(batch["advantages"], entropies, selected, correct, beta_correct, beta_incorrect)
    return ShapedAdvantages(shaped, selected)
