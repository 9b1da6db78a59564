"""What training would meet in groups of G completions, from n >= G sampled answers per prompt.

Any G of a prompt's n answers are a group that training could have drawn. Means over all such groups need no drawing:
with c of n answers correct, a group is all incorrect with probability C(n - c, G) / C(n, G), and all correct with
C(c, G) / C(n, G). These estimates are unbiased.
"""

import math
from collections.abc import Sequence

import torch

from ...methods.ces import multiplier, selection_size
from .answers import SampledAnswer


def group_facts(
    answers: Sequence[SampledAnswer],
    correct: Sequence[bool | None] | None,
    *,
    size: int,
    tau: float,
    beta_incorrect: float = 0.4,
    dynamic_multiplier: bool = True,
) -> dict[str, float]:
    """
    Shares of equal groups; of the tokens that Eq. 5 selects; of these, of the ones in equal groups, and of the ones in
    wrong answers that Eq. 7 rewards. NaN where no prompt has G answers with a verdict.

    Prompts with fewer such answers are left out.
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
            tokens += len(answer.tokens)
            for among in range(size):  # correct ones among the G - 1 others, any of the n - 1
                ways = math.comb(c - verdict, among) * math.comb(n - 1 - (c - verdict), size - 1 - among)
                chance = ways / math.comb(n - 1, size - 1)
                selected = _selected(answer, verdict, among + verdict, size, tau, dynamic_multiplier)
                shaped += chance * len(selected)
                equal += chance * len(selected) * (among + verdict in (0, size))
                if not verdict:
                    advantage = _advantage_of_incorrect(among, size)
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
    """The entropies in S_H of an answer whose group has `right` correct ones, in bits."""
    length = torch.tensor([len(answer.tokens)])
    b = multiplier(torch.tensor([verdict]), torch.tensor([right]), torch.tensor([size])) if dynamic else None
    k = int(selection_size(length, tau, b).item())
    return sorted(answer.entropies, reverse=True)[:k]


def _advantage_of_incorrect(right: int, size: int) -> float:
    """A of an incorrect answer: rewards of 0 and 1, scaled by the group."""
    share = right / size
    return -math.sqrt(share / (1 - share) * (size - 1) / size)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
