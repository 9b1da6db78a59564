"""A sample in numbers: its forking tokens by pair, the completions as a whole, and what training would meet in groups.

CES lowers the entropy of correct completions at their most uncertain tokens, which sharpens a fork towards the branch
that is already likelier. So it matters which branch that is: the one that ends the text, or the one that goes on.

Any G of a prompt's n >= G completions are a group that training could have drawn. Means over all such groups need no
drawing: with c of n completions correct, a group is all wrong with probability C(n - c, G) / C(n, G), and all correct
with C(c, G) / C(n, G). These estimates are unbiased.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from ...methods.ces import multiplier, selection_size
from .answers import SampledAnswer

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

    NaN if no pair had both of its branches drawn in completions that ended.
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
    """The completions as a whole."""
    lengths = [len(answer.tokens) for answer in answers]
    sizes = selection_size(torch.tensor(lengths), tau)
    return {
        "completions": len(answers),
        "mean_length": mean(lengths),
        "truncated": mean([not answer.ended for answer in answers]),
        "entropy": mean([bits for answer in answers for bits in answer.entropies]),
        "fork_entropy": mean([fork.entropy for answer in answers for fork in answer.forks]),
        "too_short": mean((sizes == 0).tolist()),
        "accuracy": mean([verdict for verdict in correct or [] if verdict is not None]),
    }


def group_facts(
    answers: Sequence[SampledAnswer],
    correct: Sequence[bool | None] | None,
    *,
    size: int,
    tau: float,
    beta_incorrect: float = 0.4,
    dynamic_multiplier: bool = True,
    mask_truncated: bool = False,
) -> dict[str, float]:
    """
    Shares of equal groups; of the tokens that Eq. 5 selects; of these, of the ones in equal groups, and of the ones in
    wrong completions that Eq. 7 rewards. Prompts with fewer than G verdicts are left out; NaN without others.
    """
    of_prompt: dict[int, list[tuple[SampledAnswer, bool]]] = {}
    for answer, verdict in zip(answers, correct or [None] * len(answers), strict=True):
        if verdict is not None:
            of_prompt.setdefault(answer.prompt, []).append((answer, verdict))
    prompts = [judged for judged in of_prompt.values() if len(judged) >= size]
    counts = [(len(judged), sum(verdict for _, verdict in judged)) for judged in prompts]
    shaped = equal = rewarded = tokens = 0.0
    for judged, (n, c) in zip(prompts, counts, strict=True):
        for answer, verdict in judged:
            if mask_truncated and not answer.ended:
                continue
            tokens += len(answer.tokens)
            for among in range(size):  # correct ones among the G - 1 others, any of the n - 1
                ways = math.comb(c - verdict, among) * math.comb(n - 1 - (c - verdict), size - 1 - among)
                chance = ways / math.comb(n - 1, size - 1)
                selected = _selected(answer, verdict, among + verdict, size, tau, dynamic_multiplier)
                shaped += chance * len(selected)
                equal += chance * len(selected) * (among + verdict in (0, size))
                if not verdict:
                    advantage = advantage_of_incorrect(among, size)
                    rewarded += chance * sum(advantage + beta_incorrect * bits > 0 for bits in selected)
    return {
        "num_generations": size,
        "groups_all_incorrect": mean([math.comb(n - c, size) / math.comb(n, size) for n, c in counts]),
        "groups_all_correct": mean([math.comb(c, size) / math.comb(n, size) for n, c in counts]),
        "shaped_share": shaped / tokens if tokens else math.nan,
        "shaped_in_equal_groups": equal / shaped if shaped else math.nan,
        "shaped_incorrect_rewarded": rewarded / shaped if shaped else math.nan,
    }


def _selected(answer: SampledAnswer, verdict: bool, right: int, size: int, tau: float, dynamic: bool) -> list[float]:
    """The entropies in S_H of a completion whose group has `right` correct ones, in bits."""
    length = torch.tensor([len(answer.tokens)])
    b = multiplier(torch.tensor([verdict]), torch.tensor([right]), torch.tensor([size])) if dynamic else None
    k = int(selection_size(length, tau, b).item())
    return sorted(answer.entropies, reverse=True)[:k]


def advantage_of_incorrect(right: int, size: int) -> float:
    """A of a wrong completion: rewards of 0 and 1, scaled by the group; 0 where all that were judged are correct."""
    if right == size:
        return 0.0
    share = right / size
    return -math.sqrt(share / (1 - share) * (size - 1) / size)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
