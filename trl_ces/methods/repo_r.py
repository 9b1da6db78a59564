"""REPO-R, arXiv 2603.11682, appendix D.2: advantages rescaled by surprisal, which a controller keeps entropy with.

With L = log pi of the token, detached, and zeta the controller's:

    A' = max(0, A (1 - zeta L)) if A > 0,  min(0, A (1 + zeta L)) if A < 0

L is at most 0, so zeta > 0 amplifies what is rare and good and softens what is rare and bad, and entropy rises;
zeta < 0 does the reverse. After each rollout |zeta| is doubled if the mean entropy asks for more of its sign, else
halved: below the target entropy zeta > 0 is right, above it zeta < 0. It is at most 1, and changes its sign at 1e-4.
The target is the entropy of the first rollout, as in the paper.

Ours where the sources (the paper, and SkyRL's pull request 1896) leave it open: an entropy is the mean over the tokens
of a rollout's optimizer steps, over all processes; at the target itself zeta stays; one halved below 1e-4 becomes 1e-4
of the other sign. The first zeta is that of SkyRL's example.

Degenerate cases: A = 0 stays, and so does a token with log pi = 0. Two tokens of one completion may differ in A', but
never in its sign.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .rule import Need, Rule, setting
from .shaped import ShapedAdvantages

LOWEST, HIGHEST = 1e-4, 1.0  # of |zeta|


def repo_r(
    batch: dict[str, Tensor],
    entropies_nats: Tensor,
    mask: Tensor,
    *,
    zeta: float,
    target: float | None,
    state: dict[str, Any],
) -> ShapedAdvantages:
    """
    A' by the surprisal of each token.

    Args:
        batch (`dict[str, Tensor]`): `advantages`, shape (B,); `logps`, shape (B, T), natural logs.
        entropies_nats (`Tensor`): Not used.
        mask (`Tensor`): Shape (B, T), the loss mask.
        zeta (`float`): The first zeta.
        target (`float`, *optional*): The controller's alone.
        state (`dict`): The current `zeta`, once it has moved.

    Returns:
        [`ShapedAdvantages`]
    """
    advantages, logps = batch["advantages"].unsqueeze(1), batch["logps"].detach()
    scaled = advantages * (1 - advantages.sign() * state.get("zeta", zeta) * logps)
    kept = torch.where(scaled.sign() == advantages.sign(), scaled, 0.0)
    changed = mask.bool() & (kept != advantages)
    return ShapedAdvantages(torch.where(changed, kept, advantages), changed)


def control(state: dict[str, Any], entropy: float, *, zeta: float, target: float | None) -> None:
    """Moves `state["zeta"]` after a rollout of mean `entropy`, nats."""
    goal = state["target"] = state.get("target", entropy) if target is None else target
    now = state.setdefault("zeta", zeta)
    if entropy == goal:
        return
    if (now > 0) == (entropy < goal):
        state["zeta"] = math.copysign(min(HIGHEST, 2 * abs(now)), now)
    elif abs(now) / 2 >= LOWEST:
        state["zeta"] = now / 2
    else:
        state["zeta"] = -math.copysign(LOWEST, now)


@dataclass(frozen=True)
class Settings:
    """The settings of REPO-R, `repo_r_*` in [`CESConfig`]."""

    zeta: float = setting(
        0.01,
        "First zeta of REPO-R, from 0.0001 to 1 or the same below 0; above 0 entropy rises.",
        lambda value: LOWEST <= abs(value) <= HIGHEST,
        "it must be from 0.0001 to 1, or from -1 to -0.0001; use 0.01.",
    )
    target: float | None = setting(
        None,
        "Nats, the mean entropy that REPO-R's controller steers to. `None`: that of the first rollout.",
        lambda value: 0 <= value < math.inf,
        "it is an entropy in nats, a finite number >= 0, or None.",
    )


rule = Rule(
    name="repo_r",
    title="REPO-R ([arXiv 2603.11682](https://arxiv.org/abs/2603.11682))",
    function=repo_r,
    settings=Settings,
    needs=frozenset({Need.RATIOS}),
    control=control,
)
