"""The paper's baseline "Entropy Advantage", arXiv 2506.14758."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .rule import Rule, setting
from .shaped import ShapedAdvantages


def entropy_advantage(
    batch: dict[str, Tensor], entropies_nats: Tensor, mask: Tensor, *, alpha: float, kappa: float
) -> ShapedAdvantages:
    """
    The paper's baseline "Entropy Advantage": A + min(alpha * H, |A| / kappa) at every token, H in nats and detached.

    From Cheng et al., "Reasoning with Exploration: An Entropy Perspective", arXiv 2506.14758. For kappa > 1 the sign
    of A never changes; where A = 0 nothing is added.

    Args:
        batch (`dict[str, Tensor]`): `advantages`, shape (B,).
        entropies_nats (`Tensor`): Shape (B, T), nats, 0 on padding.
        mask (`Tensor`): Shape (B, T), the loss mask.
        alpha (`float`): Advantage per nat.
        kappa (`float`): The bonus is at most |A| / kappa.

    Returns:
        [`ShapedAdvantages`]
    """
    advantages = batch["advantages"].unsqueeze(1)
    bonus = torch.minimum(alpha * entropies_nats.detach(), advantages.abs() / kappa)
    return ShapedAdvantages(advantages + bonus * mask, mask.bool())


@dataclass(frozen=True)
class Settings:
    """The settings of Cheng et al., `entropy_advantage_*` in [`CESConfig`]."""

    alpha: float = setting(
        0.4,
        "alpha of Cheng et al.: advantage per nat, >= 0.",
        lambda value: 0 <= value < math.inf,
        "it is advantage per nat, a finite number >= 0; the paper uses 0.4.",
    )
    kappa: float = setting(
        2.0,
        "kappa of Cheng et al.: the bonus is at most |A| / kappa; > 1, so that no sign flips.",
        lambda value: 1 < value < math.inf,
        "it must be above 1, so that no advantage changes sign; use 2.0.",
    )


rule = Rule(
    name="entropy_advantage",
    title="the entropy advantage of Cheng et al. ([arXiv 2506.14758](https://arxiv.org/abs/2506.14758))",
    function=entropy_advantage,
    settings=Settings,
)
