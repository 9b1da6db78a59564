"""On-policy SFT, arXiv 2602.13407: maximize the likelihood of correct completions.

The loss is -log pi of correct completions, averaged over the tokens of the batch, without importance ratios, clipping
or a KL term. In other words, A = 1 for correct completions and A = 0 for wrong completions. A low
`max_completion_length` shortens completions, because truncated completions count as wrong. The authors' script
(EIT-NLP/On-Policy-SFT) uses 3,500 tokens. TRL's unclipped loss is -ratio A', so

    A' = 1 / ratio in correct completions, 0 elsewhere

with a detached ratio gives a loss of -1 and a gradient of -grad log pi. The clip range must be wide enough that no
ratio is clipped.

The authors' code drops wrong completions before the mean over tokens. Here, their tokens still count in the mean, so
a batch is weighted by its share of correct completions.

The gradient is zero if no completion is correct, but not if all completions are correct. A token with a log ratio
below -64 nats has less weight, because 1 / ratio is capped to prevent overflow. TRL's importance sampling correction
for vLLM also scales this loss: set `vllm_importance_sampling_correction` to False.
"""

from typing import Any

import torch
from torch import Tensor

from .rule import OR_OFF, Need, Reject, Rule, ShapedAdvantages

# Log ratios, in nats, are clamped to this minimum, so that 1 / ratio does not overflow float32.
LOWEST_LOG_RATIO = -64.0
# Value of `epsilon_high` that no importance ratio reaches.
NO_CLIP = 1e6


def on_policy_sft(batch: dict[str, Tensor], entropies_nats: Tensor, mask: Tensor) -> ShapedAdvantages:
    """
    Compute A' = 1 / importance ratio in correct completions, 0 elsewhere.

    Args:
        batch (`dict[str, Tensor]`):
            `correct`, shape (B,), bool; `logps` and `old_logps`, shape (B, T), natural log-probs.
        entropies_nats (`Tensor`): Not used.
        mask (`Tensor`): Shape (B, T), the loss mask.

    Returns:
        [`ShapedAdvantages`]
    """
    inverse = torch.exp((batch["old_logps"] - batch["logps"].detach()).clamp(max=-LOWEST_LOG_RATIO))
    return ShapedAdvantages(torch.where(batch["correct"].unsqueeze(1), inverse, 0.0), mask.bool())


def check(args: Any, reject: Reject) -> None:
    """Reject settings that would clip the ratio or add a KL term."""
    remedy = f"on-policy SFT has no clipping: set `epsilon=1.0`, `epsilon_high={NO_CLIP}` and `delta=None`, {OR_OFF}."
    if args.epsilon < 1:
        reject("epsilon", remedy)
    if (args.epsilon if args.epsilon_high is None else args.epsilon_high) < NO_CLIP:
        reject("epsilon_high", remedy)
    if args.delta is not None:
        reject("delta", remedy)
    if args.beta:
        reject("beta", f"on-policy SFT has no KL term: set it to 0.0, {OR_OFF}.")


rule = Rule(
    name="on_policy_sft",
    title="on-policy SFT ([arXiv 2602.13407](https://arxiv.org/abs/2602.13407))",
    function=on_policy_sft,
    needs=frozenset({Need.CORRECTNESS, Need.RATIOS}),
    check=check,
)
