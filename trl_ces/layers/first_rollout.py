"""Warnings about runs that cannot learn, before training and after the first rollout."""

from collections.abc import Mapping
from typing import Any

import torch

from ..methods.groups import Groups
from .reward_calls import parameters_of

_MAX_SHOWN = 160  # maximum number of characters to show of a completion or reference answer


def rounding_warning(weight: torch.Tensor, rate: float) -> str:
    """Return a warning if rounding to 16 bits cancels most Adam steps of size `rate`, else an empty string."""
    if weight.dtype not in (torch.bfloat16, torch.float16):
        return ""
    sample = weight.detach().flatten()[:1_000_000]
    unchanged = (sample + rate == sample).float().mean().item()
    if unchanged < 0.5:
        return ""
    dtype = str(weight.dtype).removeprefix("torch.")
    return (
        f"The model will hardly learn: {100 * unchanged:.1f} % of the {dtype} weights would not change in a step of "
        f"`learning_rate` {rate:g}. Load the model with `dtype: float32`, train an adapter (`use_peft: true`), or use "
        "DeepSpeed, which keeps float32 copies."
    )


def first_rollout_warning(groups: Groups, example: str) -> str:
    """
    Return a warning, with cause and remedy, if the first rollout has no reward to learn from, else an empty string.
    `example` is from [`describe_example`].
    """
    count = groups.correct.numel()
    if not groups.scored.any():
        return (
            f"The accuracy reward is None for all {count} completions of the first rollout, so there is nothing "
            f"to train on: no reference answer is usable, or the reward function failed. {example}"
        )
    if not groups.correct.any():
        truncated = 100 * groups.truncated.float().mean().item()
        return (
            f"None of the {count} completions of the first rollout is correct ({truncated:.0f} % were truncated at "
            f"`max_completion_length`). {example} If that completion is correct, the reward expects a different "
            "format. Otherwise, try easier problems, longer completions, or a stronger model. Use "
            "`trl-ces inspect` to see more completions."
        )
    if groups.correct[groups.scored].all():
        return (
            f"All {count} completions of the first rollout are correct. With equal rewards, the model only learns to "
            "write shorter completions: use harder problems."
        )
    return ""


def describe_example(reward: Any, completion: Any, row: Mapping[str, Any]) -> str:
    """Describe what an accuracy reward receives for one completion, with a hint if it receives a number."""
    text = str(completion if isinstance(completion, str) else completion[-1].get("content") or "")
    gold = "" if row.get("solution") is None else f" with the reference answer {str(row['solution'])[:_MAX_SHOWN]!r}"
    shown = f"{'...' if len(text) > _MAX_SHOWN else ''}{text[-_MAX_SHOWN:]!r}"
    form = "" if isinstance(completion, str) else "messages that end with "
    example = f"For example, the accuracy reward received {form}{shown}{gold}."
    names = [parameter.name for parameter in parameters_of(reward)]
    numbers = [name for name in names if type(row.get(name)) in (int, float)]
    if numbers:
        example += f" `{numbers[0]}` is a number, which never equals text: compare with `str({numbers[0]})` instead."
    return example
