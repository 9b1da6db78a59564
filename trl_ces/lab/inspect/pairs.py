"""Forking tokens counted by the pair of tokens between which the model hesitates.

CES lowers the entropy of correct answers at their most uncertain tokens, which sharpens a fork towards the branch that
is already likelier. So it matters which branch that is: the one that ends the answer, or the one that goes on.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from ...methods.ces import selection_size
from .answers import SampledAnswer
from .groups import mean

PAIR, SIDES = ["low", "high"], ("likelier", "other")


def count_pairs(answers: Sequence[SampledAnswer], correct: Sequence[bool | None] | None = None) -> pd.DataFrame:
    """The forking tokens by the pair of their two likeliest tokens, in either order."""
    verdicts = [None] * len(answers) if correct is None else correct
    rows = []  # one per place and branch
    for answer, verdict in zip(answers, verdicts, strict=True):
        for fork in answer.forks:
            for rank, (token, probability) in enumerate(zip(fork.pair, fork.probabilities, strict=True)):
                drawn = fork.sampled == token
                left = len(answer.tokens) - fork.place if drawn and answer.ended else math.nan
                right = math.nan if verdict is None or not drawn else float(verdict)
                rows.append((*sorted(fork.pair), token, rank, fork.entropy, probability, drawn, left, right))
    columns = [*PAIR, "token", "rank", "entropy", "probability", "sampled", "tokens_left", "correct"]
    places = pd.DataFrame(rows, columns=columns)
    branches = places.groupby([*PAIR, "token"])[["probability", "sampled", "tokens_left", "correct"]].mean()
    ranked = branches.reset_index("token").sort_values("probability", ascending=False, kind="stable").groupby(PAIR)
    likelier, other = (ranked.nth(rank).add_prefix(f"{side}_") for rank, side in enumerate(SIDES))
    first = places[places["rank"] == 0].join(likelier["likelier_token"], on=PAIR)
    first["leads"] = first.entropy.where(first.token == first.likelier_token, 0.0)
    pairs = first.groupby(PAIR, sort=False).agg(
        count=("entropy", "size"),
        share=("entropy", lambda entropy: len(entropy) / len(first)),
        entropy=("entropy", "sum"),
        leads=("leads", "sum"),
    )
    pairs = pairs.sort_values("entropy", ascending=False, kind="stable")
    pairs["leads"] /= pairs.entropy
    pairs["entropy"] /= pairs["count"]
    return pairs.join([likelier, other]).reset_index(drop=True)


def shorter_share(pairs: pd.DataFrame) -> float:
    """Share of [`count_pairs`]'s places, weighted by entropy, whose likelier branch has fewer tokens left.

    NaN if no pair had both of its branches drawn in answers that ended.
    """
    gap = (pairs.likelier_tokens_left - pairs.other_tokens_left)[pairs.entropy > 0].dropna()
    if gap.empty:
        return math.nan
    known = pairs.loc[gap.index]
    # At the places where the other branch is the likelier one, the gap is the same with the other sign.
    shorter = known.leads.where(gap < 0, 1 - known.leads).where(gap != 0, 0.0)
    return float(np.average(shorter, weights=known["count"] * known.entropy))


def sample_facts(
    answers: Sequence[SampledAnswer], tau: float, correct: Sequence[bool | None] | None = None
) -> dict[str, float]:
    """The answers as a whole."""
    lengths = [len(answer.tokens) for answer in answers]
    sizes = selection_size(torch.tensor(lengths), tau)
    return {
        "answers": len(answers),
        "mean_length": mean(lengths),
        "truncated": mean([not answer.ended for answer in answers]),
        "entropy": mean([bits for answer in answers for bits in answer.entropies]),
        "fork_entropy": mean([fork.entropy for answer in answers for fork in answer.forks]),
        "too_short": mean((sizes == 0).tolist()),
        "accuracy": mean([verdict for verdict in correct or [] if verdict is not None]),
    }
