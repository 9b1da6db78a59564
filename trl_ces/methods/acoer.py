"""
ACOER, Adaptive Correct-Only Efficiency Reward, arXiv 2606.22716, by its code (js-lee-AI/ACOER, acoer/reward.py).

Only correct completions are paid for being short, against a budget B that follows their mean length. The price alpha
rises while accuracy holds and falls when it drops:

    reward_i = alpha * log(1 + 5 (1 - min(l_i / B, 1))) / log 6 if correct, 0 if wrong

    after a rollout: accuracy and mean correct length enter moving averages of span 50 (decay 2 / 51); then, from the
    200th rollout on, alpha <- max(0.01, 0.95 alpha) if the average accuracy fell by more than 0.02 over the last 100
    rollouts, else min(0.5, 1.02 alpha); B <- max(B_0 / 8, 0.85 * average length)

The paper's finding: a length term on wrong completions collapsed 8 of 8 runs, on correct ones alone 1 of 6.

Differs from the code: a length is the completion's tokens, not the characters of its thinking (B_0 is 16,384 of those,
4 a token). The moving averages are over the rollout of all processes, not over one process's call, and count rollouts
where the code counts steps. Without a correct completion the average length stays, where the code averages a 0 in.

Degenerate cases: none correct: 0. All correct: the shortest gets most. A completion of B tokens or more: 0.
"""

import math
from typing import Any

from torch import Tensor

from .groups import Groups

DECAY, DROP, RATIO, SCALE = 2 / 51, 0.02, 0.85, 5.0
FIRST, LOWEST, HIGHEST = 0.02, 0.01, 0.5  # of alpha


def acoer_length_reward(
    groups: Groups,
    *,
    state: dict[str, Any] | None = None,
    budget: float = 4096.0,
    warmup: int = 200,
    window: int = 100,
) -> Tensor:
    """
    ACOER's bonus for short correct completions.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored` and `lengths`.
        state (`dict`, *optional*): What is carried from rollout to rollout, as JSON; changed in place. Empty at first.
        budget (`float`, *optional*, defaults to 4096): B_0, tokens.
        warmup (`int`, *optional*, defaults to 200): Rollouts before alpha and B move.
        window (`int`, *optional*, defaults to 100): Rollouts over which a drop of the accuracy is measured.

    Returns:
        `Tensor`: Shape (P, G), float32, in [0, alpha]. Undefined where a completion is unscored.
    """
    state = {} if state is None else state
    if not state:
        state.update(alpha=FIRST, budget=None, accuracy=None, length=None, history=[], rollouts=0)
    left = 1 - (groups.lengths / (state["budget"] or budget)).clamp(max=1)
    rewards = groups.correct * (state["alpha"] / math.log(1 + SCALE)) * (SCALE * left).log1p()

    correct = groups.correct & groups.scored
    if groups.scored.any():
        accuracy = correct.sum().item() / groups.scored.sum().item()
        state["accuracy"] = _averaged(state["accuracy"], accuracy)
        state["history"] = [*state["history"], state["accuracy"]][-window:]
    if correct.any():
        state["length"] = _averaged(state["length"], groups.lengths[correct].double().mean().item())
    state["rollouts"] += 1
    if state["rollouts"] >= warmup and len(state["history"]) == window:
        fell = state["history"][0] - state["history"][-1] > DROP
        state["alpha"] = max(LOWEST, 0.95 * state["alpha"]) if fell else min(HIGHEST, 1.02 * state["alpha"])
        if state["length"] is not None:
            state["budget"] = max(budget / 8, RATIO * state["length"])
    return rewards.float()


def _averaged(average: float | None, value: float) -> float:
    """The moving average with one more value."""
    return value if average is None else DECAY * value + (1 - DECAY) * average
