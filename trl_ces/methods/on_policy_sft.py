"""On-policy SFT, arXiv 2602.13407: maximize the likelihood of correct completions.

The loss is -log pi, averaged over the tokens of the batch, at correct completions only: A = 1 there and 0 at wrong
ones, without importance ratio, clip or KL. A low `max_completion_length` makes completions short: a truncated one is
wrong. The authors' script (EIT-NLP/On-Policy-SFT) has 3,500 tokens. TRL's loss is -ratio A' where its clip does not
act, so

    A' = 1 / ratio at correct completions, 0 elsewhere

with the ratio detached has value -1 and gradient -grad log pi. The clip range must be wide enough never to act.

Differs from the code: it drops wrong completions before the mean over tokens; here their tokens stay in the divisor,
so a batch counts by its share of correct ones.

Degenerate cases: without a correct completion there is no gradient; where all are correct there still is one. Below a
log ratio of -64 nats a token counts less, because its 1 / ratio would overflow. TRL's correction for vLLM multiplies
this loss too: turn `vllm_importance_sampling_correction` off.
"""

from typing import Any

import torch
from torch import Tensor

from .rule import OR_OFF, Need, Refuse, Rule, ShapedAdvantages

# Nats. Below it 1 / ratio would overflow float32.
LOWEST_LOG_RATIO = -64.0
# An `epsilon_high` that no importance ratio reaches.
NO_CLIP = 1e6


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


def check(args: Any, refuse: Refuse) -> None:
    """Refuses a clip range that may act, and a KL term."""
    wide = f"on-policy SFT has no clipping: set `epsilon=1.0`, `epsilon_high={NO_CLIP}` and `delta=None`, {OR_OFF}."
    if args.epsilon < 1:
        refuse("epsilon", wide)
    if (args.epsilon if args.epsilon_high is None else args.epsilon_high) < NO_CLIP:
        refuse("epsilon_high", wide)
    if args.delta is not None:
        refuse("delta", wide)
    if args.beta:
        refuse("beta", f"on-policy SFT has no KL term: set it to 0.0, {OR_OFF}.")


rule = Rule(
    name="on_policy_sft",
    title="on-policy SFT ([arXiv 2602.13407](https://arxiv.org/abs/2602.13407))",
    function=on_policy_sft,
    needs=frozenset({Need.CORRECTNESS, Need.RATIOS}),
    check=check,
)
