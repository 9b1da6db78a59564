"""Metrics of the shaping rules, mainly `ces/*`. Sums are updated per micro-batch and divided once per log step.

Each metric is a ratio of two sums over the tokens or completions of all processes since the last log step. It is not
an average of averages, so a micro-batch with more tokens has more weight.
"""

import torch
from torch import Tensor

from .groups import group_accuracy
from .rule import ShapedAdvantages, entropy_in_bits

# metric: (numerator, denominator)
CES_METRICS = {
    "ces/group_accuracy": ("group_accuracy", "scored_completions"),
    "ces/selected_tokens": ("selected_tokens", "completions"),
    "ces/zero_selected_share": ("completions_without_selection", "completions"),
    "ces/selected_entropy_correct": ("selected_bits_correct", "selected_tokens_correct"),
    "ces/selected_entropy_incorrect": ("selected_bits_incorrect", "selected_tokens_incorrect"),
    "ces/shaping_to_advantage": ("absolute_shaping", "absolute_advantage"),
    "ces/sign_flip_share": ("sign_flips", "selected_tokens"),
    "ces/shaped_share_equal_reward_groups": ("selected_tokens_equal_rewards", "selected_tokens"),
    "ces/shaped_share_truncated": ("selected_tokens_truncated", "selected_tokens"),
}
SUMS = sorted({name for ratio in CES_METRICS.values() for name in ratio})


@torch.no_grad()
def ces_sums(batch: dict[str, Tensor], entropies_nats: Tensor, mask: Tensor, shaped: ShapedAdvantages) -> Tensor:
    """
    Compute the sums for [`ces_metrics`] over one micro-batch, in the order of `SUMS`. Does not synchronize the device.

    The result has shape (len(SUMS),), float32. In addition to the inputs of CES, `batch` contains `equal_rewards` and
    `truncated`, shape (B,), bool.
    """
    advantages = batch["advantages"].unsqueeze(1)
    selected, correct = shaped.selected, batch["correct"]
    per_completion = selected.sum(dim=1)
    selected_bits = (entropy_in_bits(entropies_nats) * selected).sum(dim=1)
    sums = {
        "group_accuracy": (group_accuracy(batch["group_correct"], batch["group_scored"]) * batch["scored"]).sum(),
        "scored_completions": batch["scored"].sum(),
        "completions": torch.ones_like(correct).sum(),
        "selected_tokens": per_completion.sum(),
        "completions_without_selection": (per_completion == 0).sum(),
        "selected_bits_correct": (selected_bits * correct).sum(),
        "selected_tokens_correct": (per_completion * correct).sum(),
        "selected_bits_incorrect": (selected_bits * ~correct).sum(),
        "selected_tokens_incorrect": (per_completion * ~correct).sum(),
        "absolute_shaping": ((shaped.advantages - advantages).abs() * mask).sum(),
        "absolute_advantage": (advantages.abs() * mask).sum(),
        "sign_flips": (selected & (shaped.advantages * advantages < 0)).sum(),
        "selected_tokens_equal_rewards": (per_completion * batch["equal_rewards"]).sum(),
        "selected_tokens_truncated": (per_completion * batch["truncated"]).sum(),
    }
    return torch.stack([sums[name].float() for name in SUMS])


def ces_metrics(totals: list[float]) -> dict[str, float]:
    """Compute the `ces/*` metrics from sums in the order of `SUMS`; NaN if a denominator is 0."""
    sums = dict(zip(SUMS, totals, strict=True))
    return {
        name: sums[numerator] / sums[denominator] if sums[denominator] else float("nan")
        for name, (numerator, denominator) in CES_METRICS.items()
    }


@torch.no_grad()
def selection_sums(mask: Tensor, shaped: ShapedAdvantages) -> Tensor:
    """Count the shaped tokens and the tokens in the loss. Shape (2,), float32. Does not synchronize the device."""
    return torch.stack([shaped.selected.sum().float(), mask.sum().float()])


def selection_metrics(shaping: str, totals: list[float]) -> dict[str, float]:
    """Compute `<shaping>/selected_share` from sums over processes and micro-batches; NaN if the loss has no tokens."""
    selected, tokens = totals
    return {f"{shaping}/selected_share": selected / tokens if tokens else float("nan")}
