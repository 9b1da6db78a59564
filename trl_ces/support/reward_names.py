"""Get the names under which TRL logs reward functions, and find the accuracy reward."""

from typing import Any, cast

import torch


def reward_name(func: Any) -> str:
    """Return the name under which TRL logs a reward function or reward model."""
    from trl.trainer.utils import get_callable_name, get_config_model_id  # loading TRL takes seconds

    if isinstance(func, str):
        return func.split("/")[-1]
    if isinstance(func, torch.nn.Module):
        return get_config_model_id(cast(Any, func.config)).split("/")[-1]
    return get_callable_name(func)


def accuracy_reward_index(names: list[str], wanted: str | None) -> int:
    """Return the index of `wanted`, or by default of the only reward or the only name that contains "accuracy"."""
    if wanted is None and len(names) == 1:
        return 0
    matches = [index for index, name in enumerate(names) if (name == wanted if wanted else "accuracy" in name.lower())]
    if len(matches) != 1:
        reason = f"{wanted!r} is the name of" if wanted else "'accuracy' is in the name of"
        raise ValueError(
            "Set `ces_accuracy_reward` to the name of the reward that decides whether a completion is correct, one of "
            f"{', '.join(names) or 'none'}: {reason} {len(matches)} of them."
        )
    return matches[0]
