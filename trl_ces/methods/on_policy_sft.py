"""On-policy SFT, arXiv 2602.13407: the likelihood of correct completions, and nothing else.

The loss is -log pi, averaged over the tokens of the batch, at correct completions alone: A = 1 there and 0 at wrong
ones, without importance ratio, clip or KL. What makes completions short is a low `max_completion_length`: one that has
not ended by then is wrong. The authors' script (EIT-NLP/On-Policy-SFT) has 3,500 tokens. TRL's loss is -ratio A' where
its clip does not act, so

    A' = 1 / ratio at correct completions, 0 elsewhere

with the ratio detached has value -1 and gradient -grad log pi. The clip range must be wide enough never to act.

Differs from the code: it drops wrong completions before the mean over tokens; here their tokens stay in the divisor,
so a batch counts by its share of correct ones.

Degenerate cases: where nothing is correct there is no gradient, and where all is, still one. Below a log ratio of -64
nats a token counts less, because its 1 / ratio would overflow. TRL's correction for vLLM multiplies this loss too:
turn `vllm_importance_sampling_correction` off.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .kl_cov import LOWEST_LOG_RATIO, refuse_clipping
from .rule import OR_OFF, Need, Refuse, Rule
from .shaped import ShapedAdvantages


def on_policy_sft(batch: dict[str, Tensor], entropies_nats: Tensor, mask: Tensor) -> ShapedAdvantages:
    """
    A' = 1 / importance ratio at correct completions, 0 elsewhere.

    Args:
        batch (`dict[str, Tensor]`):
            `correct`, shape (B,), bool; `logps` and `old_logps`, shape (B, T), natural logs.
        entropies_nats (`Tensor`): Not used.
        mask (`Tensor`): Shape (B, T), the loss mask.

    Returns:
        [`ShapedAdvantages`]
    """
    inverse = torch.exp((batch["old_logps"] - batch["logps"].detach()).clamp(max=-LOWEST_LOG_RATIO))
    return ShapedAdvantages(torch.where(batch["correct"].unsqueeze(1), inverse, 0.0), mask.bool())


@dataclass(frozen=True)
class Settings:
    """It has none."""


def check(args: Any, refuse: Refuse) -> None:
    """Refuses a clip range and a KL term, which it does not have, and what would only change advantages."""
    refuse_clipping("on-policy SFT", args, refuse)
    if args.beta:
        refuse("beta", f"on-policy SFT has no KL term: set it to 0.0, {OR_OFF}.")
    for name, off in (("gfpo_keep", None), ("whiten_over_tokens", False)):
        if getattr(args, name):
            refuse(name, f"on-policy SFT reads verdicts and no advantages: set it to {off}, {OR_OFF}.")


rule = Rule(
    name="on_policy_sft",
    title="on-policy SFT ([arXiv 2602.13407](https://arxiv.org/abs/2602.13407))",
    function=on_policy_sft,
    settings=Settings,
    needs=frozenset({Need.VERDICTS, Need.RATIOS}),
    check=check,
)
