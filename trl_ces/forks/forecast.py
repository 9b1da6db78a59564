"""Will training shorten the answers? The change of the mean length by DAPO and by CES, from the base model's sample.

The sampled answers are replayed under a policy that is trained, with no model: at each forking token the two likeliest
tokens have log-odds l, which become (1 + c) l + d, with one c (sharpness) and one d (lean) for every *kind* of fork, a
kind being the pair of tokens. An answer then counts with the importance weight w = product of new over old
probability, within its prompt, so that accuracy, advantages and mean length follow what the policy does at all its
forks together: once slips are rare, a check that mends them is worth less.

c and d climb the method's own objective (`gradient`), DAPO's or CES's with Eqs. 5-7 of arXiv 2605.19358.
docs/report.md has the formulas and what they assume.

Symbols: N answers, F forking tokens of theirs, K kinds. Entropies are in bits, lengths in tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .answers import SampledAnswer

METHODS = ("DAPO", "CES")
# How far a training goes: steps of the replay, and the logits that a step moves. Calibrated on recipes/arithmetic
# (docs/study/forecast.md). A longer training goes further on the same way, which can also turn.
STEPS, PACE = 60, 2.0
# Kinds with a lean of their own, by count x entropy; the rest share one sharpness.
KINDS = 20
# Keeps a kind that was met once or twice from taking steps as large as its noise.
RARE = 0.02
# Below, a fork decides nothing.
LEAST_BITS = 0.02
# Softens the division of advantages by a group's deviation, which a group of eight does by being small.
SOFTENING = 0.1
# Blocks of prompts, each left out once for the standard error.
BLOCKS = 8
# Standard errors that a change must exceed.
CERTAIN = 2.0


@dataclass(frozen=True)
class Forks:
    """A sample's forking tokens, as arrays."""

    lengths: np.ndarray  # (N,) float, the end token counts
    correct: np.ndarray  # (N,) float, 0 or 1
    prompts: np.ndarray  # (N,) int, from 0
    ended: np.ndarray  # (N,) bool
    answers: np.ndarray  # (F,) int, ascending
    places: np.ndarray  # (F,) int
    kinds: np.ndarray  # (F,) int; K - 1 is the rest
    pairs: list[tuple[int, int]]  # K - 1 pairs of tokens, the smaller id first
    probabilities: np.ndarray  # (F, 3): the pair's, in that order, and all others'
    sampled: np.ndarray  # (F,) int: 0, 1, or 2 for any other token
    others_bits: np.ndarray  # (F,) entropy of the choice among the others


@dataclass(frozen=True)
class Reason:
    """The kind of fork that moves the length most."""

    gains: int  # the branch that becomes likelier
    loses: int
    before: float  # its mean probability at such forks
    after: float
    gains_left: float  # mean tokens from there to the end, NaN if never drawn in an answer that ended
    loses_left: float
    change: float  # of the mean length, by this kind alone


@dataclass(frozen=True)
class Forecast:
    """What a method is expected to do to the mean length."""

    method: str
    length: float  # of the sample
    change: float  # tokens
    error: float  # standard error of the change: of the sample, not of the training
    reason: Reason | None  # `None` if no fork moves

    @property
    def verdict(self) -> str:
        """`"shortens"`, `"lengthens"`, or `"cannot tell"` where the interval of two standard errors covers 0."""
        if not abs(self.change) > CERTAIN * self.error:  # NaN: a single prompt
            return "cannot tell"
        return "shortens" if self.change < 0 else "lengthens"


def tabulate(answers: Sequence[SampledAnswer], correct: Sequence[bool | None]) -> Forks:
    """The forks of the answers that have a verdict."""
    judged = [(answer, verdict) for answer, verdict in zip(answers, correct, strict=True) if verdict is not None]
    rows: list[tuple[Any, ...]] = []
    for number, (answer, _) in enumerate(judged):
        for fork in answer.forks:
            if fork.entropy < LEAST_BITS:
                continue
            pair = tuple(sorted(fork.pair))
            first, second = fork.probabilities if pair == fork.pair else fork.probabilities[::-1]
            drawn = pair.index(fork.sampled) if fork.sampled in pair else 2
            rows.append((number, fork.place, pair, first, second, drawn, fork.entropy))
    weight: Counter[Any] = Counter()
    for row in rows:
        weight[row[2]] += row[6]
    pairs = [pair for pair, _ in weight.most_common(KINDS)]
    number_of = {pair: number for number, pair in enumerate(pairs)}
    two = np.array([row[3:5] for row in rows], dtype=float).reshape(-1, 2)
    probabilities = np.clip(np.column_stack([two, 1 - two.sum(axis=1)]), 1e-6, 1)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    bits = np.array([row[6] for row in rows], dtype=float)
    of_three = -(probabilities * np.log2(probabilities)).sum(axis=1)
    asked = np.array([answer.prompt for answer, _ in judged], dtype=int)
    return Forks(
        lengths=np.array([len(answer.tokens) for answer, _ in judged], dtype=float),
        correct=np.array([verdict for _, verdict in judged], dtype=float),
        prompts=np.unique(asked, return_inverse=True)[1],
        ended=np.array([answer.ended for answer, _ in judged], dtype=bool),
        answers=np.array([row[0] for row in rows], dtype=int),
        places=np.array([row[1] for row in rows], dtype=int),
        kinds=np.array([number_of.get(row[2], len(pairs)) for row in rows], dtype=int),
        pairs=pairs,
        probabilities=probabilities,
        sampled=np.array([row[5] for row in rows], dtype=int),
        others_bits=np.clip((bits - of_three) / probabilities[:, 2], 0, None),
    )


def policy(forks: Forks, theta: np.ndarray) -> np.ndarray:
    """
    The probabilities at each fork, (F, 3).

    Args:
        forks ([`Forks`]): The sample's.
        theta (`np.ndarray`): Shape (K, 2): lean d, in nats, and sharpness c of each kind.
    """
    shift = theta[forks.kinds, 0] + theta[forks.kinds, 1] * _log_odds(forks)
    logits = np.log(forks.probabilities) + np.column_stack([shift / 2, -shift / 2, np.zeros(len(shift))])
    moved = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.clip(moved / moved.sum(axis=1, keepdims=True), 1e-300, 1)


def weights(forks: Forks, moved: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """
    Importance weights of the answers, (N,), which sum to 1, and to the same for each prompt.

    Args:
        forks ([`Forks`]): The sample's.
        moved (`np.ndarray`): Shape (F, 3), from [`policy`].
        kept (`np.ndarray`): Shape (N,), 1 or 0: a prompt's answers are kept together, or not at all.
    """
    drawn = np.arange(len(forks.sampled)), forks.sampled
    logs = np.bincount(forks.answers, np.log(moved[drawn] / forks.probabilities[drawn]), minlength=len(forks.lengths))
    largest = np.full(forks.prompts.max() + 1, -np.inf)
    np.maximum.at(largest, forks.prompts, logs)
    raw = np.exp(logs - largest[forks.prompts])
    weight = kept * raw / np.bincount(forks.prompts, raw)[forks.prompts]
    return weight / weight.sum()


def advantages(forks: Forks, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eq. 3 with the groups reweighted: advantages (N,) and each answer's group accuracy a (N,), Eq. 2."""
    total = np.bincount(forks.prompts, weight)
    right = np.bincount(forks.prompts, weight * forks.correct)
    a = np.divide(right, total, out=np.zeros_like(total), where=total > 0)[forks.prompts]
    return (forks.correct - a) / (np.sqrt(np.clip(a * (1 - a), 0, None)) + SOFTENING), a


def gradient(forks: Forks, moved: np.ndarray, weight: np.ndarray, rule: dict[str, float] | None) -> np.ndarray:
    """
    The objective's gradient per forking token with respect to theta, (K, 2).

    A fork adds w (A' d log p + d A'), where A' = A for DAPO and A -+ beta H at the selected forks for CES (Eq. 7).

    Args:
        forks ([`Forks`]): The sample's.
        moved (`np.ndarray`): Shape (F, 3), from [`policy`].
        weight (`np.ndarray`): Shape (N,), from [`weights`].
        rule (`dict`, *optional*): CES's `tau`, `beta_correct` and `beta_incorrect`; `None` is DAPO.
    """
    advantage, a = advantages(forks, weight)
    # With the shift z of the log-odds, d log p_j / dz = slope_j.
    slope = np.array([0.5, -0.5, 0.0]) - (moved[:, :1] - moved[:, 1:2]) / 2
    shaped, along = advantage[forks.answers], np.zeros(len(forks.answers))
    if rule is not None:
        surprise = -np.log2(moved)
        surprise[:, 2] += forks.others_bits
        entropy, entropy_slope = (moved * surprise).sum(axis=1), (moved * slope * surprise).sum(axis=1)
        b = np.where(forks.correct > 0, a, 1 - a)  # Eq. 6
        selected = _highest(forks, entropy, np.floor(forks.lengths * rule["tau"] * b + 1e-9))  # Eq. 5
        beta = np.where(forks.correct > 0, -rule["beta_correct"], rule["beta_incorrect"])[forks.answers] * selected
        shaped, along = shaped + beta * entropy, beta * entropy_slope
    of_forks = weight[forks.answers]
    drawn_slope = slope[np.arange(len(forks.sampled)), forks.sampled]
    climb = of_forks * (shaped * drawn_slope + along) / of_forks.sum()
    kinds = len(forks.pairs) + 1
    lean = np.bincount(forks.kinds, climb, minlength=kinds)
    lean[-1] = 0.0  # the rest has no pair in common to lean within
    return np.column_stack([lean, np.bincount(forks.kinds, climb * _log_odds(forks), minlength=kinds)])


def _log_odds(forks: Forks) -> np.ndarray:
    return np.log(forks.probabilities[:, 0] / forks.probabilities[:, 1])


def _highest(forks: Forks, entropy: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Whether a fork is among its answer's highest entropies, as many as `sizes`, (N,), says; ties to the earlier."""
    order = np.lexsort((forks.places, -entropy, forks.answers))
    start = np.searchsorted(forks.answers, forks.answers)
    rank = np.empty(len(order), dtype=int)
    rank[order] = np.arange(len(order))
    return rank - start < sizes[forks.answers]


def train(forks: Forks, rule: dict[str, float] | None, kept: np.ndarray) -> np.ndarray:
    """Theta, (K, 2), after the replay, in which a kind steps by its gradient over the root of its share of the forks.

    That is what Adam does: it divides by the root mean square of the gradient, which grows as the root of how often a
    kind occurs.
    """
    kinds = len(forks.pairs) + 1
    share = np.bincount(forks.kinds, minlength=kinds) / len(forks.kinds)
    pace = PACE / (np.sqrt(share) + RARE)[:, None]
    theta = np.zeros((kinds, 2))
    for _ in range(STEPS):
        moved = policy(forks, theta)
        theta = theta + pace * gradient(forks, moved, weights(forks, moved, kept), rule)
    return theta


def forecast(
    answers: Sequence[SampledAnswer], correct: Sequence[bool | None], *, tau: float, betas: tuple[float, float]
) -> list[Forecast]:
    """
    What DAPO and CES are expected to do to the mean length. Deterministic.

    Args:
        answers (`Sequence[SampledAnswer]`): From [`sample_answers`], forks included.
        correct (`Sequence[bool | None]`): Verdict per answer; those without one are left out.
        tau (`float`): CES's, with which the forks were found.
        betas (`tuple[float, float]`): CES's, for correct and for incorrect answers.

    Returns:
        `list[Forecast]`: One per method of `METHODS`; empty if there is no fork in an answer with a verdict.
    """
    forks = tabulate(answers, correct)
    if not len(forks.answers):
        return []
    rules = {"DAPO": None, "CES": {"tau": tau, "beta_correct": betas[0], "beta_incorrect": betas[1]}}
    return [_forecast(method, forks, rules[method]) for method in METHODS]


def _forecast(method: str, forks: Forks, rule: dict[str, float] | None) -> Forecast:
    everyone = np.ones(len(forks.lengths))
    theta = train(forks, rule, everyone)
    groups = forks.prompts.max() + 1
    blocks = min(BLOCKS, groups)
    without = []
    for block in range(blocks if blocks > 1 else 0):
        kept = (forks.prompts * blocks // groups != block).astype(float)
        without.append(length_change(forks, train(forks, rule, kept), kept))
    error = math.sqrt((blocks - 1) * np.var(without)) if without else math.nan  # jackknife
    return Forecast(
        method=method,
        length=float(forks.lengths.mean()),
        change=length_change(forks, theta, everyone),
        error=error,
        reason=_reason(forks, theta),
    )


def length_change(forks: Forks, theta: np.ndarray, kept: np.ndarray) -> float:
    """The mean length of the kept answers under theta minus under the base policy; a millionth is rounding."""
    moved, still = (weights(forks, policy(forks, by), kept) for by in (theta, np.zeros_like(theta)))
    return round(float((moved - still) @ forks.lengths), 6)


def _reason(forks: Forks, theta: np.ndarray) -> Reason | None:
    """The kind that moves the length most when it alone moves."""
    everyone = np.ones(len(forks.lengths))
    changes = []
    for kind in range(len(forks.pairs)):
        alone = np.zeros_like(theta)
        alone[kind] = theta[kind]
        changes.append(length_change(forks, alone, everyone))
    if not any(changes):
        return None
    kind = int(np.argmax(np.abs(changes)))
    here = forks.kinds == kind
    before, after = forks.probabilities[here].mean(axis=0), policy(forks, theta)[here].mean(axis=0)
    gains = int(np.argmax((after - before)[:2]))
    left = [_tokens_left(forks, here & (forks.sampled == side)) for side in (gains, 1 - gains)]
    pair = forks.pairs[kind]
    return Reason(pair[gains], pair[1 - gains], before[gains], after[gains], left[0], left[1], changes[kind])


def _tokens_left(forks: Forks, where: np.ndarray) -> float:
    where = where & forks.ended[forks.answers]
    left = forks.lengths[forks.answers] - forks.places
    return float(left[where].mean()) if where.any() else math.nan
