"""Clip-Cov, arXiv 2505.22617, section 4.2: no gradient through a few tokens of high covariance.

The entropy of a policy collapses through the tokens where log-prob and advantage rise together. Clip-Cov takes a small
random share of them out of the update, Eqs. 10-12:

    A' = 0 at max(1, floor(r N)) tokens drawn at random from those with low < cov < high, A elsewhere

N counts the micro-batch's tokens in the loss; the divisor of the loss stays. Bounds and minimum are those of verl's
`clip_cov`: the paper's Eq. 11 has closed bounds and no minimum. Tokens that the clip holds already, TRL's upper
bound `delta` included, are not drawn.

Assumes that a micro-batch holds completions of different advantage. With one completion, or one advantage, every
covariance is 0. Where no covariance lies between the bounds, this is DAPO.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .covariance import TITLE, share_of_tokens, token_covariances
from .rule import Need, Refuse, Rule, setting, share
from .shaped import ShapedAdvantages


def clip_cov(
    batch: dict[str, Tensor],
    entropies_nats: Tensor,
    mask: Tensor,
    *,
    ratio: float,
    low: float,
    high: float,
    epsilon_low: float,
    epsilon_high: float,
    delta: float = math.inf,
) -> ShapedAdvantages:
    """
    A' = 0 at the tokens that are drawn, which thus have loss 0 and no gradient. Draws from torch's global generator.

    Args:
        batch (`dict[str, Tensor]`): `advantages`, shape (B,); `logps` and `old_logps`, shape (B, T), natural logs.
        entropies_nats (`Tensor`): Not used.
        mask (`Tensor`): Shape (B, T), the loss mask.
        ratio (`float`): r, share of the tokens.
        low, high (`float`): Bounds of the covariance, exclusive.
        epsilon_low, epsilon_high (`float`): Clip range of the importance ratio.
        delta (`float`, *optional*): TRL's bound of the ratio where the clip range leaves it free.

    Returns:
        [`ShapedAdvantages`]
    """
    advantages, logps = batch["advantages"].unsqueeze(1), batch["logps"].detach()
    importance = torch.exp(logps - batch["old_logps"])
    # TRL's loss is -min(min(ratio, delta) A, clip(ratio) A): constant in the ratio beyond these.
    held_above = (importance > min(1 + epsilon_high, delta)) & (advantages > 0)
    outside = (importance < 1 - epsilon_low) | (importance > max(1 + epsilon_high, delta))
    held_below = outside & (advantages < 0)
    covariances = token_covariances(batch["advantages"], logps, mask)
    inside = (covariances > low) & (covariances < high)  # Eq. 11
    candidates = mask.bool() & inside & ~held_above & ~held_below
    drawn = share_of_tokens(torch.rand_like(covariances), candidates, mask, ratio)
    return ShapedAdvantages(torch.where(drawn, 0.0, advantages), drawn)  # Eq. 12


@dataclass(frozen=True)
class Settings:
    """The settings of Clip-Cov, `clip_cov_*` in [`CESConfig`]."""

    ratio: float = share(
        0.0002,
        "r of Clip-Cov, Eq. 11: share of a micro-batch's tokens that get no gradient, in (0, 1], at most nine "
        "decimals; at least one token, if any qualifies.",
        zero=False,
    )
    low: float = setting(
        1.0,
        "omega_low of Clip-Cov, Eq. 11: these tokens' covariance of log-prob and advantage is above this.",
        lambda value: not math.isnan(value),
        "it must be a number.",
    )
    high: float = setting(
        5.0,
        "omega_high of Clip-Cov, Eq. 11: these tokens' covariance is below this.",
        lambda value: not math.isnan(value),
        "it must be a number.",
    )


def check(args: Any, refuse: Refuse) -> None:
    """Refuses an empty range of covariances."""
    if not args.clip_cov_low < args.clip_cov_high:
        refuse("clip_cov_low", f"it must be below `clip_cov_high`, {args.clip_cov_high}; the paper: 1.0 and 5.0.")


def clip_range(args: Any) -> dict[str, float]:
    """TRL's clip range, as TRL resolves it."""
    return {
        "epsilon_low": args.epsilon,
        "epsilon_high": args.epsilon if args.epsilon_high is None else args.epsilon_high,
        "delta": math.inf if args.delta is None else args.delta,
    }


rule = Rule(
    name="clip_cov",
    title=f"Clip-Cov {TITLE}",
    function=clip_cov,
    settings=Settings,
    needs=frozenset({Need.RATIOS, Need.WHOLE_MICRO_BATCHES}),
    check=check,
    given=clip_range,
)
