"""
LASER-D's step reward, arXiv 2505.15612, by its code (hkust-nlp/Laser): a target that follows the difficulty.

    reward_i = alpha if correct and l_i <= L(class), else 0;   class: easy if p >= 2/3, medium if p >= 1/3, hard below

p is the group's solve rate. The target of a class is the smallest L of step, 2 step, ... with int(share(L) n) >= 1,
where share(L) is the part of the class's completions, correct or not, within L tokens, and n is how many of G are
expected to be correct: int(2 G / 3), int(G / 3), 1. So of easy problems a completion may be as long as one in n of
them, of hard ones as long as all.

Differs from the code: the authors sample a monitor set every few steps, and put a p of exactly 1/3 or 2/3 in its lower
class; here the rollouts since the last update stand in for it, so no second generation is needed, and a class without
a completion in them keeps its target. A completion without a verdict is not counted.
Verdicts stay the accuracy reward's, theirs are 1 and -0.5. LASER-DE, which also rewards long wrong completions that do
not repeat n-grams, is not here: a group reward sees no tokens, and lengthening a wrong completion would pay.

Degenerate cases: until the first update every target is the longest completion allowed, so that all correct ones gain
alpha. A wrong completion gets 0, whatever its length.
"""

import math
from typing import Any

import torch
from torch import Tensor

from .groups import Groups

CLASSES = ("hard", "medium", "easy")


def laser_d_length_reward(
    groups: Groups,
    *,
    state: dict[str, Any] | None = None,
    alpha: float = 0.5,
    step: float = 1024,
    every: float = 20,
) -> Tensor:
    """
    LASER-D's bonus for correct completions within their class's target.

    Args:
        groups ([`Groups`]): Reads `correct`, `scored` and `lengths`.
        state (`dict`, *optional*): What is carried from rollout to rollout, as JSON; changed in place. Empty at first.
        alpha (`float`, *optional*, defaults to 0.5): The bonus.
        step (`float`, *optional*, defaults to 1024): Tokens between the targets that are tried.
        every (`float`, *optional*, defaults to 20): Rollouts between updates of the targets.

    Returns:
        `Tensor`: Shape (P, G), float32, 0 or alpha. Undefined where a completion is unscored.
    """
    state = {} if state is None else state
    if not state:
        state.update(rollouts=0, targets=dict.fromkeys(CLASSES), seen={name: {} for name in CLASSES})
    correct = groups.correct & groups.scored
    classes = [
        CLASSES[(3 * right >= scored) + (3 * right >= 2 * scored)] if scored else "hard"
        for right, scored in zip(correct.sum(dim=1).tolist(), groups.scored.sum(dim=1).tolist(), strict=True)
    ]
    targets = [math.inf if state["targets"][name] is None else state["targets"][name] for name in classes]
    within = groups.lengths <= torch.tensor(targets, dtype=torch.float64, device=correct.device).unsqueeze(1)
    for name, known, lengths in zip(classes, groups.scored, groups.lengths, strict=True):
        for length in lengths[known].tolist():
            place = str(math.ceil(length / step))
            state["seen"][name][place] = state["seen"][name].get(place, 0) + 1
    state["rollouts"] += 1
    if state["rollouts"] % every == 0:
        _update(state, groups.correct.size(1), step)
    return alpha * (correct & within).float()


def _update(state: dict[str, Any], size: int, step: float) -> None:
    """New targets, from the completions seen since the last."""
    for name, expected in zip(CLASSES, (1, size // 3, 2 * size // 3), strict=True):
        counts = {int(place): count for place, count in state["seen"][name].items()}
        found, total = 0, sum(counts.values())
        for place in sorted(counts):
            found += counts[place]
            if found * max(expected, 1) >= total:
                state["targets"][name] = place * step
                break
        state["seen"][name] = {}
