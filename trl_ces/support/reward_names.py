"""Names of reward functions as TRL logs them, and which of them is the accuracy reward."""

from typing import Any, cast

import torch


def reward_name(func: Any) -> str:
    """The name that TRL logs a reward function or reward model under."""
    # TRL takes seconds to import, which `trl-ces report` need not wait for.
    from trl.trainer.utils import get_callable_name, get_config_model_id

    if isinstance(func, str):
        return func.split("/")[-1]
    if isinstance(func, torch.nn.Module):
        return get_config_model_id(cast(Any, func.config)).split("/")[-1]
    return get_callable_name(func)


def accuracy_reward_index(names: list[str], wanted: str | None) -> int:
    """Find the accuracy reward: the one named, else the only one, else the only one with "accuracy" in its name."""
    if wanted is not None:
        matches = [index for index, name in enumerate(names) if name == wanted]
        problem = f"it is {wanted!r}, which names {len(matches)} of them"
        problem += ", so rename all but one" if len(matches) > 1 else ""
    elif len(names) == 1:
        return 0
    else:
        matches = [index for index, name in enumerate(names) if "accuracy" in name.lower()]
        problem = f"it is None, and {len(matches)} of them have 'accuracy' in their name"
    if len(matches) != 1:
        raise ValueError(
            "Set `ces_accuracy_reward` to the name of the reward function that tells correct completions from wrong, "
            "which CES, `dynamic_sampling`, `dot_alpha`, QLPO and rewards of whole groups read: "
            f"{problem}. There are: {', '.join(names) or 'none'}."
        )
    return matches[0]
