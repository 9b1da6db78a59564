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
    dynamic_multiplier: bool = True,
) -> dict[str, float]:
    """Shares of equal groups, and of the tokens that Eq. 5 selects; NaN where no prompt has G answers with a verdict.

    Prompts with fewer such answers are left out.
    """
    of_prompt: dict[int, list[tuple[int, bool]]] = {}
    for answer, verdict in zip(answers, correct or [None] * len(answers), strict=True):
        if verdict is not None:
            of_prompt.setdefault(answer.prompt, []).append((len(answer.tokens), verdict))
    prompts = [judged for judged in of_prompt.values() if len(judged) >= size]
    counts = [(len(judged), sum(verdict for _, verdict in judged)) for judged in prompts]
    return {
        "num_generations": size,
        "groups_all_incorrect": _mean([math.comb(n - c, size) / math.comb(n, size) for n, c in counts]),
        "groups_all_correct": _mean([math.comb(c, size) / math.comb(n, size) for n, c in counts]),
        "shaped_share": _shaped_share(prompts, size, tau, dynamic_multiplier),
    }


def _shaped_share(prompts: list[list[tuple[int, bool]]], size: int, tau: float, dynamic_multiplier: bool) -> float:
    """Expected share of tokens in S_H, over the groups that hold an answer: the other G - 1 are any of the n - 1."""
    judged = [(length, verdict) for prompt in prompts for length, verdict in prompt]
    if not judged:
        return math.nan
    lengths, right = torch.tensor([one[0] for one in judged]), torch.tensor([one[1] for one in judged])
    if not dynamic_multiplier:
        return selection_size(lengths, tau).sum().item() / lengths.sum().item()
    others = [  # how many, and how many of them are correct
        (len(prompt) - 1, sum(one for _, one in prompt) - verdict) for prompt in prompts for _, verdict in prompt
    ]
    expected = torch.zeros(len(judged), dtype=torch.float64)
    for among in range(size):  # correct ones among the G - 1 others
        b = multiplier(right, among + right.long(), torch.full_like(lengths, size))
        ways = [math.comb(c, among) * math.comb(n - c, size - 1 - among) / math.comb(n, size - 1) for n, c in others]
        expected += torch.tensor(ways, dtype=torch.float64) * selection_size(lengths, tau, b)
    return expected.sum().item() / lengths.sum().item()


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
