"""What CESTrainer asks of reward functions and tells them: which one says "correct", what the model really wrote."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from trl.trainer.utils import get_callable_name, get_config_model_id, is_async_callable

# What CESTrainer tells reward functions beside TRL's own keyword arguments.
REWARD_KEYWORDS = ("thinking_prefilled", "last_turns")


def tolerant(func: Any) -> Any:
    """`func`, or, if it takes neither `REWARD_KEYWORDS` nor `**kwargs`, one that drops them before it calls `func`."""
    if isinstance(func, torch.nn.Module):
        return func
    parameters = inspect.signature(func).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return func
    unknown = set(REWARD_KEYWORDS) - {parameter.name for parameter in parameters}
    if not unknown:
        return func

    def known(arguments: dict) -> dict:
        return {name: value for name, value in arguments.items() if name not in unknown}

    call: Callable
    if is_async_callable(func):

        async def call(**arguments):
            return await func(**known(arguments))
    else:

        def call(**arguments):
            return func(**known(arguments))

    return functools.update_wrapper(call, func)


def reward_name(func: Any) -> str:
    """The name that TRL logs a reward function or reward model under."""
    if isinstance(func, str):
        return func.split("/")[-1]
    if isinstance(func, torch.nn.Module):
        return get_config_model_id(cast(Any, func.config)).split("/")[-1]
    return get_callable_name(func)


def accuracy_reward_index(names: list[str], wanted: str | None) -> int:
    """
    Which reward function says that a completion is correct.

    Args:
        names (`list[str]`): Names of the reward functions, as TRL logs them.
        wanted (`str`, *optional*): `ces_accuracy_reward`.

    Returns:
        `int`: Its place in `names`.

    Raises:
        `ValueError`: There is no such function, or more than one.
    """
    there_are = f"There are: {', '.join(names) or 'none'}."
    if wanted is not None:
        matches = [index for index, name in enumerate(names) if name == wanted]
        problem = f"`ces_accuracy_reward` is {wanted!r}, which names {len(matches)} of the reward functions."
    elif len(names) == 1:
        return 0
    else:
        matches = [index for index, name in enumerate(names) if "accuracy" in name.lower()]
        problem = f"`ces_accuracy_reward` is None, and {len(matches)} reward functions have 'accuracy' in their name."
    if len(matches) != 1:
        raise ValueError(
            f"{problem} CES needs the one that tells right completions from wrong: set `ces_accuracy_reward` to "
            f'its name, or `shaping="none"`. {there_are}'
        )
    return matches[0]
