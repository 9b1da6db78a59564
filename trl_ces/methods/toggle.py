"""
Toggle, Kimi K2.5's report, arXiv 2602.02276, section 4.4.2: phases with a budget alternate with free ones.

    reward_i = r_i 1[p < lambda or l_i <= budget(x)] - r_i  where floor(t / m) is even, 0 where it is odd

beside the accuracy reward r; p is the group's solve rate and t counts rollouts. budget(x) is the rho-th percentile of
the lengths of prompt x's correct completions, estimated once and then fixed. The free phases let completions grow
again, so that the model does not unlearn to think longer where it has to.

The report says neither lambda, m nor rho, nor how the percentile is taken: the defaults are ours, the percentile is
the shortest of the correct lengths that a share rho does not exceed, and a prompt gets its budget, in a phase of
either kind, from the first rollout in which it is solved. With dynamic sampling a round counts as a rollout.

Degenerate cases: a prompt that was never solved has no budget, and a group below lambda is free. A reward of 0 or
below is left alone, so no wrong completion can gain by its length.
"""

import math
from typing import Any

import torch
from torch import Tensor

from .groups import Groups
from .rule import exact


def toggle_length_reward(
    groups: Groups,
    *,
    state: dict[str, Any] | None = None,
    solved: float = 0.75,
    every: float = 10,
    percentile: float = 0.5,
) -> Tensor:
    """
    Takes the reward of completions over their prompt's budget, in every other phase.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored`, `lengths`, `rewards` and `prompts`.
        state (`dict`, *optional*): What is carried from rollout to rollout, as JSON; changed in place. Empty at first.
        solved (`float`, *optional*, defaults to 0.75): lambda, solve rate from which the budget holds.
        every (`float`, *optional*, defaults to 10): m, rollouts of a phase.
        percentile (`float`, *optional*, defaults to 0.5): rho, as a share.

    Returns:
        `Tensor`: Shape (P, G), float32, -r or 0. Undefined where a completion is unscored.
    """
    state = {} if state is None else state
    if not state:
        state.update(rollouts=0, budgets={})
    correct = groups.correct & groups.scored
    budgets = []
    for number, right, lengths in zip(groups.prompts.tolist(), correct, groups.lengths, strict=True):
        if str(number) not in state["budgets"] and right.any():
            ordered = lengths[right].sort().values
            place = math.ceil(exact(min(percentile, 1.0)) * len(ordered))
            state["budgets"][str(number)] = ordered[place - 1].item()
        budgets.append(state["budgets"].get(str(number), math.inf))
    limited = state["rollouts"] // every % 2 == 0
    state["rollouts"] += 1
    rate = correct.sum(dim=1).double() / groups.scored.sum(dim=1)  # NaN where none is scored
    over = groups.lengths > torch.tensor(budgets, device=rate.device, dtype=rate.dtype).unsqueeze(1)
    taken = limited & over & (rate >= solved).unsqueeze(1)
    return torch.where(taken, -groups.rewards.clamp(min=0), 0.0).float()
