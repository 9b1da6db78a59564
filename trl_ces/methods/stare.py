"""STARE, arXiv 2606.19236: more weight for surprising tokens of good completions, while entropy is low.

By its code (hp-luo/STARE, `verl/trainer/ppo/core_algos.py`), variant O1. Of the N tokens of a micro-batch with A > 0,
the ceil(r N) of highest surprisal, -log pi, are amplified, while the policy's mean entropy is below a target:

    A' = w A at these tokens, A elsewhere

The code gates by the entropy of the batch before its update; here it is the mean over the steps of the latest rollout,
over all processes. As there, the gate is open until an entropy is known. The two-sided variant and the moving weight,
which the authors leave off, are not here.

Degenerate cases: without a token of A > 0, or at an entropy of the target or above, this is DAPO.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .ces import top_entropy_tokens
from .rule import Need, Rule, exact, setting, share
from .shaped import ShapedAdvantages


def stare(
    batch: dict[str, Tensor],
    entropies_nats: Tensor,
    mask: Tensor,
    *,
    ratio: float,
    weight: float,
    target: float,
    state: dict[str, Any],
) -> ShapedAdvantages:
    """
    A' = w A at the most surprising tokens with A > 0.

    Args:
        batch (`dict[str, Tensor]`): `advantages`, shape (B,); `logps`, shape (B, T), natural logs.
        entropies_nats (`Tensor`): Not used.
        mask (`Tensor`): Shape (B, T), the loss mask.
        ratio (`float`): r, share of the tokens with A > 0, rounded up.
        weight (`float`): w.
        target (`float`): Nats, entropy below which the tokens are amplified.
        state (`dict`): The `entropy` of the latest rollout, if there was one.

    Returns:
        [`ShapedAdvantages`]
    """
    advantages = batch["advantages"].unsqueeze(1)
    candidates = mask.bool() & (advantages > 0)
    if state.get("entropy", -math.inf) >= target:
        candidates = torch.zeros_like(candidates)
    rate = exact(ratio)
    size = (candidates.sum() * rate.numerator + rate.denominator - 1) // rate.denominator
    surprisal = -batch["logps"].detach()
    chosen = top_entropy_tokens(surprisal.view(1, -1), candidates.view(1, -1), size.view(1)).view(mask.shape)
    return ShapedAdvantages(torch.where(chosen, weight * advantages, advantages), chosen)


def control(state: dict[str, Any], entropy: float, **_settings: Any) -> None:
    """Remembers a rollout's entropy, nats."""
    state["entropy"] = entropy


@dataclass(frozen=True)
class Settings:
    """The settings of STARE, `stare_*` in [`CESConfig`]."""

    ratio: float = share(
        0.1,
        "P of STARE: share of a micro-batch's tokens with a positive advantage, those of highest surprisal, that are "
        "amplified, in (0, 1], at most nine decimals; rounded up.",
        zero=False,
    )
    weight: float = setting(
        1.1,
        "W of STARE: factor of their advantage, >= 1.",
        lambda value: 1 <= value < math.inf,
        "it amplifies, a finite number >= 1; the paper uses 1.1.",
    )
    target: float = setting(
        0.3,
        "H_tgt of STARE: nats; tokens are amplified while the latest rollout's mean entropy is below it, > 0.",
        lambda value: value > 0,
        "it is an entropy in nats, above 0; the paper uses 0.3.",
    )


rule = Rule(
    name="stare",
    title="STARE ([arXiv 2606.19236](https://arxiv.org/abs/2606.19236))",
    function=stare,
    settings=Settings,
    needs=frozenset({Need.RATIOS, Need.WHOLE_MICRO_BATCHES}),
    control=control,
)
