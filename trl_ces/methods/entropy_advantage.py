"""The paper's baseline "Entropy Advantage", arXiv 2506.14758."""

import torch
from torch import Tensor

from .rule import Rule, ShapedAdvantages


def entropy_advantage(
    batch: dict[str, Tensor], entropies_nats: Tensor, mask: Tensor, *, alpha: float, kappa: float
) -> ShapedAdvantages:
    """
    Compute A + min(alpha * H, |A| / kappa) at every token, where H is detached and in nats.

    From Cheng et al., "Reasoning with Exploration: An Entropy Perspective", arXiv 2506.14758. For kappa > 1, the sign
    of A never changes. If A = 0, nothing is added.

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


rule = Rule(
    name="entropy_advantage",
    title="the entropy advantage of Cheng et al. ([arXiv 2506.14758](https://arxiv.org/abs/2506.14758))",
    function=entropy_advantage,
    config_fields=("alpha", "kappa"),
)
