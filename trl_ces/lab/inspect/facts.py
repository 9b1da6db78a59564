"""Statistics of sampled completions: token pairs at high-entropy positions, lengths, entropies, and group statistics.

CES lowers the entropy of correct completions at their high-entropy tokens, which makes the likelier alternative at
each of these tokens even likelier. Completions get shorter if the likelier alternative leads to shorter completions.

Any G of a prompt's n >= G completions form a group that training could have sampled. Means over all such groups have
a closed form: if c of n completions are correct, a group is all incorrect with probability C(n - c, G) / C(n, G) and
all correct with probability C(c, G) / C(n, G). These estimates are unbiased.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from ...methods.ces import multiplier, selection_size
from .sampling import RecipeSample, SampledCompletion
from .settings import Sampling

if TYPE_CHECKING:
    from ...train.recipe import Recipe

PAIR, SIDES = ["low", "high"], ("likelier", "other")


def all_facts(recipe: Recipe, sample: RecipeSample, sampling: Sampling) -> dict[str, Any]:
    """Collect the settings and statistics of a sample, in the format of `inspect.json`."""
    tau = sampling.numeric_tau([len(completion.tokens) for completion in sample.completions])
    facts = {"model": sample.name, "num_prompts": len(sample.prompts), **asdict(sampling), "tau": tau}
    facts |= sample_facts(sample.completions, tau, sample.correct)
    return facts | group_facts(
        sample.completions,
        sample.correct,
        size=recipe.setting("num_generations"),
        tau=tau,
        beta_correct=recipe.setting("ces_beta_correct"),
        beta_incorrect=recipe.setting("ces_beta_incorrect"),
        capped=recipe.setting("ces_cap_incorrect") is not None,
        dynamic_multiplier=recipe.setting("ces_dynamic_multiplier"),
        mask_truncated=recipe.setting("mask_truncated_completions"),
    )


def count_pairs(
    completions: Sequence[SampledCompletion], correct: Sequence[bool | None] | None = None
) -> pd.DataFrame:
    """Group high-entropy positions by the unordered pair of their two likeliest tokens; sort by total entropy."""
    scores = [None] * len(completions) if correct is None else correct
    rows = []  # one row per position and alternative
    for completion, score in zip(completions, scores, strict=True):
        for top in completion.top_tokens:
            for rank, (token, probability) in enumerate(zip(top.pair, top.probabilities, strict=True)):
                sampled = top.sampled == token
                tokens_left = len(completion.tokens) - top.position if sampled and completion.ended else math.nan
                own_score = math.nan if score is None or not sampled else float(score)
                rows.append(
                    (*sorted(top.pair), token, rank, top.entropy, probability, sampled, tokens_left, own_score)
                )
    columns = [*PAIR, "token", "rank", "entropy", "probability", "sampled", "tokens_left", "correct"]
    positions = pd.DataFrame(rows, columns=columns)
    means = positions.groupby([*PAIR, "token"])[["probability", "sampled", "tokens_left", "correct"]].mean()
    ranked = means.reset_index("token").sort_values("probability", ascending=False, kind="stable").groupby(PAIR)
    likelier, other = (ranked.nth(rank).add_prefix(f"{side}_") for rank, side in enumerate(SIDES))
    first = positions[positions["rank"] == 0].join(likelier["likelier_token"], on=PAIR)
    # `leads`: share of the pair's entropy at positions where `likelier_token` is the likelier token.
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
    """Compute the entropy-weighted share of positions at which the likelier alternative has fewer tokens left."""
    difference = (pairs.likelier_tokens_left - pairs.other_tokens_left)[pairs.entropy > 0].dropna()
    if difference.empty:
        return math.nan
    pairs = pairs.loc[difference.index]
    # At the remaining positions (1 - leads), the other alternative is likelier, so the difference changes sign.
    shorter = pairs.leads.where(difference < 0, 1 - pairs.leads).where(difference != 0, 0.0)
    return float(np.average(shorter, weights=pairs["count"] * pairs.entropy))


def sample_facts(
    completions: Sequence[SampledCompletion], tau: float, correct: Sequence[bool | None] | None = None
) -> dict[str, float]:
    """Compute means over all completions: lengths in tokens, entropies in bits, all other values in [0, 1]."""
    lengths = [len(completion.tokens) for completion in completions]
    sizes = selection_size(torch.tensor(lengths), tau)
    return {
        "completions": len(completions),
        "mean_length": mean(lengths),
        "truncated": mean([not completion.ended for completion in completions]),
        "entropy": mean([bits for completion in completions for bits in completion.entropies]),
        "top_entropy": mean([top.entropy for completion in completions for top in completion.top_tokens]),
        "too_short": mean((sizes == 0).tolist()),
        "accuracy": mean([score for score in correct or [] if score is not None]),
    }


def group_facts(
    completions: Sequence[SampledCompletion],
    correct: Sequence[bool | None] | None,
    *,
    size: int,
    tau: float,
    beta_correct: float = 0.4,
    beta_incorrect: float = 0.4,
    capped: bool = False,
    dynamic_multiplier: bool = True,
    mask_truncated: bool = False,
) -> dict[str, float]:
    """
    Compute expected shares over groups of `size` completions; NaN if no prompt has enough scored completions.

    `shaped_share` is the share of tokens that CES shapes (Eq. 5). The last two values are shares of the shaped
    tokens: the share in all-correct or all-incorrect groups, and the share in incorrect completions with A' > 0
    (Eq. 7). The cap on incorrect completions (`capped`) prevents A' > 0.
    """
    by_prompt: dict[int, list[tuple[SampledCompletion, bool]]] = {}
    for completion, score in zip(completions, correct or [None] * len(completions), strict=True):
        if score is not None:
            by_prompt.setdefault(completion.prompt, []).append((completion, score))
    prompts = [scored for scored in by_prompt.values() if len(scored) >= size]
    counts = [(len(scored), sum(score for _, score in scored)) for scored in prompts]
    group_size, shaped, equal, rewarded, tokens = torch.tensor([size]), 0.0, 0.0, 0.0, 0
    for scored, (n, c) in zip(prompts, counts, strict=True):
        for completion, score in scored:
            if mask_truncated and not completion.ended:
                continue
            length, highest = len(completion.tokens), sorted(completion.entropies, reverse=True)
            tokens += length
            # The group's other G - 1 completions are drawn from n - 1, and `other_correct` of the G - 1 are correct.
            for other_correct in range(size):
                ways = math.comb(c - score, other_correct) * math.comb(n - 1 - (c - score), size - 1 - other_correct)
                probability = ways / math.comb(n - 1, size - 1)
                b = multiplier(torch.tensor([score]), torch.tensor([other_correct + score]), group_size)
                k = selection_size(torch.tensor([length]), tau, b if dynamic_multiplier else None)
                selected = highest[: int(k)] if (beta_correct if score else beta_incorrect) else []
                shaped += probability * len(selected)
                equal += probability * len(selected) * (other_correct + score in (0, size))
                if not score and not capped:
                    advantage = advantage_of_incorrect(other_correct, size)
                    rewarded += probability * sum(advantage + beta_incorrect * bits > 0 for bits in selected)
    return {
        "num_generations": size,
        "groups_all_incorrect": mean([math.comb(n - c, size) / math.comb(n, size) for n, c in counts]),
        "groups_all_correct": mean([math.comb(c, size) / math.comb(n, size) for n, c in counts]),
        "shaped_share": shaped / tokens if tokens else math.nan,
        "shaped_in_equal_groups": equal / shaped if shaped else math.nan,
        "shaped_incorrect_rewarded": rewarded / shaped if shaped else math.nan,
    }


def advantage_of_incorrect(group_correct: int, size: int) -> float:
    """Compute the advantage A of an incorrect completion for rewards of 0 and 1, with scaling by the group's std."""
    if group_correct == size:
        return 0.0
    accuracy = group_correct / size
    return -math.sqrt(accuracy / (1 - accuracy) * (size - 1) / size)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
