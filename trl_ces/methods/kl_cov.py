"""KL-Cov, arXiv 2505.22617, section 4.2: a KL penalty on the tokens of highest covariance, and no clipping.

The loss at a token is -ratio A, and where the covariance of log-prob and advantage is among the max(1, floor(k N))
highest of the micro-batch's N tokens, -ratio A + coef |logp - old logp|: Eqs. 13 and 14 with verl's estimate of the
KL. TRL's loss multiplies A' by the ratio, so that with ratio and log-probs in the graph

    A' = A - coef |logp - old logp| / ratio

gives that loss and its gradient exactly, if TRL's clip never acts. [`CESConfig`] asks for a clip range wide enough.

Assumes several optimizer steps per rollout: while the policy is the one that sampled, the penalty and its gradient are
0. With one advantage in a micro-batch every covariance is 0 and the earliest tokens are chosen.

A token whose log ratio is below -64 nats gets no penalty: 1 / ratio would soon overflow float32.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .covariance import TITLE, share_of_tokens, token_covariances
from .rule import OR_OFF, Need, Refuse, Rule, setting, share
from .shaped import ShapedAdvantages

# Nats. The penalty at this log ratio, coef * 64 * e^64, is about 4e29 * coef, far inside float32.
LOWEST_LOG_RATIO = -64.0
# An `epsilon_high` that no importance ratio reaches.
NO_CLIP = 1e6


def kl_cov(
    batch: dict[str, Tensor], entropies_nats: Tensor, mask: Tensor, *, ratio: float, coef: float
) -> ShapedAdvantages:
    """
    A' = A - coef |logp - old logp| / importance ratio at the tokens of highest covariance.

    Args:
        batch (`dict[str, Tensor]`):
            `advantages`, shape (B,); `logps` (in the graph) and `old_logps`, shape (B, T), natural logs.
        entropies_nats (`Tensor`): Not used.
        mask (`Tensor`): Shape (B, T), the loss mask.
        ratio (`float`): k, share of the tokens.
        coef (`float`): beta of Eq. 14, advantage per nat.

    Returns:
        [`ShapedAdvantages`]
    """
    covariances = token_covariances(batch["advantages"], batch["logps"], mask)
    chosen = share_of_tokens(covariances, mask.bool(), mask, ratio)  # Eq. 13
    log_ratios = batch["logps"] - batch["old_logps"]
    chosen = chosen & (log_ratios.detach() >= LOWEST_LOG_RATIO)
    # 0 elsewhere before the exponential: there it could overflow, and its gradient become NaN.
    log_ratios = torch.where(chosen, log_ratios, 0.0)
    penalties = coef * log_ratios.abs() * torch.exp(-log_ratios)
    return ShapedAdvantages(batch["advantages"].unsqueeze(1) - penalties, chosen)  # Eq. 14


@dataclass(frozen=True)
class Settings:
    """The settings of KL-Cov, `kl_cov_*` in [`CESConfig`]."""

    ratio: float = share(
        0.0002,
        "k of KL-Cov, Eq. 13: share of a micro-batch's tokens, those of highest covariance, that get a KL penalty, in "
        "(0, 1], at most nine decimals; at least one token. The paper has 0.002 for 7B and 0.0002 for 32B.",
        zero=False,
    )
    coef: float = setting(
        1.0,
        "beta of KL-Cov, Eq. 14: loss per nat of |log-prob - old log-prob|, >= 0.",
        lambda value: 0 <= value < math.inf,
        "it is loss per nat, a finite number >= 0; the paper uses 1.0.",
    )


def refuse_clipping(method: str, args: Any, refuse: Refuse) -> None:
    """Refuses a clip range that may act."""
    wide = f"{method} has no clipping: set `epsilon=1.0`, `epsilon_high={NO_CLIP}` and `delta=None`, {OR_OFF}."
    if args.epsilon < 1:
        refuse("epsilon", wide)
    if (args.epsilon if args.epsilon_high is None else args.epsilon_high) < NO_CLIP:
        refuse("epsilon_high", wide)
    if args.delta is not None:
        refuse("delta", wide)
    if args.epsilon_high_target_entropy is not None:
        refuse("epsilon_high_target_entropy", f"{method} has no clip range that may move: set it to None.")


def check(args: Any, refuse: Refuse) -> None:
    """Refuses a clip range, and rollouts of one step, where the KL is 0."""
    refuse_clipping("KL-Cov", args, refuse)
    accumulated = args.gradient_accumulation_steps
    micro_steps = args.steps_per_generation and args.steps_per_generation * args.num_iterations  # TRL derives it
    if micro_steps and accumulated % micro_steps == 0:
        refuse(
            "shaping",
            "each rollout is used in one optimizer step, where its KL is 0: set `steps_per_generation` x "
            f"`num_iterations`, {micro_steps}, above `gradient_accumulation_steps`, {accumulated} (in a recipe, "
            "`responses_per_rollout` above `responses_per_step`).",
        )


rule = Rule(
    name="kl_cov",
    title=f"KL-Cov {TITLE}",
    function=kl_cov,
    settings=Settings,
    needs=frozenset({Need.RATIOS, Need.WHOLE_MICRO_BATCHES}),
    differentiates="logps",
    check=check,
)
