"""Forking tokens counted by the pair of tokens between which the model hesitates.

CES lowers the entropy of correct answers at their most uncertain tokens, which sharpens a fork towards the branch that
is already likelier. So it matters which branch that is: the one that ends the answer, or the one that goes on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from ...methods.ces import selection_size
from .answers import SampledAnswer

# Branches whose probabilities differ by less count as close to a tie. Ours; it only affects what is printed.
CLOSE = 0.2
PAIR, SIDES = ["low", "high"], ("likelier", "other")


def count_pairs(answers: Sequence[SampledAnswer], correct: Sequence[bool | None] | None = None) -> pd.DataFrame:
    """The forking tokens by the pair of their two likeliest tokens, in either order."""
    verdicts = [None] * len(answers) if correct is None else correct
    rows = []  # one per place and branch
    for answer, verdict in zip(answers, verdicts, strict=True):
        for fork in answer.forks:
            lead = fork.probabilities[0] - fork.probabilities[1]
            for rank, (token, probability) in enumerate(zip(fork.pair, fork.probabilities, strict=True)):
                drawn = fork.sampled == token
                left = len(answer.tokens) - fork.place if drawn and answer.ended else math.nan
                right = math.nan if verdict is None or not drawn else float(verdict)
                rows.append((*sorted(fork.pair), token, rank, fork.entropy, lead, probability, drawn, left, right))
    columns = [*PAIR, "token", "rank", "entropy", "lead", "probability", "sampled", "tokens_left", "correct"]
    places = pd.DataFrame(rows, columns=columns)
    branches = places.groupby([*PAIR, "token"])[["probability", "sampled", "tokens_left", "correct"]].mean()
    ranked = branches.reset_index("token").sort_values("probability", ascending=False, kind="stable").groupby(PAIR)
    likelier, other = (ranked.nth(rank).add_prefix(f"{side}_") for rank, side in enumerate(SIDES))
    first = places[places["rank"] == 0].join(likelier["likelier_token"], on=PAIR)
    first["leads"] = first.entropy.where(first.token == first.likelier_token, 0.0)
    first["close"] = first.entropy.where(first.lead < CLOSE, 0.0)
    pairs = first.groupby(PAIR, sort=False).agg(
        count=("entropy", "size"),
        share=("entropy", lambda entropy: len(entropy) / len(first)),
        entropy=("entropy", "sum"),
        leads=("leads", "sum"),
        close=("close", "sum"),
    )
    pairs = pairs.sort_values("entropy", ascending=False, kind="stable")
    pairs[["leads", "close"]] = pairs[["leads", "close"]].div(pairs.entropy, axis=0)
    pairs["entropy"] /= pairs["count"]
    return pairs.join([likelier, other]).reset_index(drop=True)


@dataclass(frozen=True)
class Direction:
    """Where the likelier branch of each place leads, weighted by entropy. A mean of nothing is NaN."""

    comparable: float  # share of the places whose pair had both branches drawn in answers that ended
    shorter: float  # share of those at which the likelier branch has fewer tokens left
    longer: float  # share of those at which it has more
    difference: float  # mean over those of tokens left, likelier minus other branch
    # Share of all places at which the probabilities are less than `CLOSE` apart. There the entropy is near its maximum
    # over the two, so its slope is small and other parts of the gradient decide.
    close: float


def direction(pairs: pd.DataFrame) -> Direction:
    """Where the likelier branches of [`count_pairs`]'s rows lead."""
    pairs = pairs[pairs.entropy > 0]
    weight = pairs["count"] * pairs.entropy
    known = (pairs.likelier_tokens_left - pairs.other_tokens_left).dropna()
    if weight.empty:
        return Direction(0.0, math.nan, math.nan, math.nan, math.nan)
    close = float(np.average(pairs.close, weights=weight))
    if known.empty:
        return Direction(0.0, math.nan, math.nan, math.nan, close)
    of_known, leads = weight[known.index], pairs.leads[known.index]
    # At the places where the other branch is the likelier one, the gap is the same with the other sign.
    shorter = leads.where(known < 0, 1 - leads).where(known != 0, 0.0)
    longer = leads.where(known > 0, 1 - leads).where(known != 0, 0.0)
    return Direction(
        comparable=float(of_known.sum() / weight.sum()),
        shorter=float(np.average(shorter, weights=of_known)),
        longer=float(np.average(longer, weights=of_known)),
        difference=float(np.average(known * (2 * leads - 1), weights=of_known)),
        close=close,
    )


def sample_facts(
    answers: Sequence[SampledAnswer], tau: float, correct: Sequence[bool | None] | None = None
) -> dict[str, float]:
    """The answers as a whole."""
    lengths = [len(answer.tokens) for answer in answers]
    sizes = selection_size(torch.tensor(lengths), tau)
    return {
        "answers": len(answers),
        "mean_length": _mean(lengths),
        "truncated": _mean([not answer.ended for answer in answers]),
        "entropy": _mean([bits for answer in answers for bits in answer.entropies]),
        "fork_entropy": _mean([fork.entropy for answer in answers for fork in answer.forks]),
        "too_short": _mean((sizes == 0).tolist()),
        "accuracy": _mean([verdict for verdict in correct or [] if verdict is not None]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
