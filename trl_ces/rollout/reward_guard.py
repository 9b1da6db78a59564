"""Checks reward functions: each completion gets a finite number or `None`, or an error names the function.

TRL alone trains on infinite rewards, reads NaN as "no verdict", and names no row where a function returns an invalid
value. `trainer.reward_funcs` holds the user's own objects; guards replace them only while TRL calls them.
"""

import inspect
import logging
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from trl.trainer.utils import is_async_callable

logger = logging.getLogger(__name__)

# Keyword arguments that reward functions receive beyond TRL's own.
REWARD_KEYWORDS = ("thinking_prefilled", "last_turns")
LARGEST = torch.finfo(torch.float32).max  # TRL stores rewards as float32


class RewardError(RuntimeError):
    """A reward function raised or returned invalid rewards. Names the function, and the row if known."""


def accepted(func: Callable, arguments: dict[str, Any]) -> dict[str, Any]:
    """`arguments` without the `REWARD_KEYWORDS` that `func` does not accept."""
    try:
        parameters = list(inspect.signature(func).parameters.values())
    except ValueError:  # compiled code may have no signature: pass what TRL would
        parameters = []
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return arguments
    refused = set(REWARD_KEYWORDS) - {parameter.name for parameter in parameters}
    return {name: value for name, value in arguments.items() if name not in refused}


def start_early(funcs: Sequence[Any], examples: Sequence[dict[str, Any]]) -> None:
    """
    Starts reward functions while the trainer computes the old and reference log-probs.

    Args:
        funcs (`Sequence[Callable]`): Reward functions. An attribute `start_early`, if there is one, is called with the
            function's future arguments but for the completions; [`accuracy_reward`] has one.
        examples (`Sequence[dict]`): One per completion: the dataset's columns and `REWARD_KEYWORDS`.
    """
    functions = [func for func in funcs if not isinstance(func, torch.nn.Module)]
    starts = [func.start_early for func in functions if hasattr(func, "start_early")]
    if starts and examples:
        columns = {name: [example.get(name) for example in examples] for name in examples[0]}
        for start in starts:
            start(**columns)


@contextmanager
def guarded_rewards(trainer: Any, on_error: str) -> Iterator[None]:
    """
    Guards the reward functions of `trainer` inside the context.

    Args:
        trainer ([`~trl.GRPOTrainer`]): Its `reward_funcs` are replaced, and restored on exit.
        on_error (`"stop"` or `"skip"`):
            `"stop"` raises. `"skip"` warns and returns `None`, which excludes a row from its group's mean, for rows
            with an invalid value, or for all rows if the function raised or returned the wrong number of rewards. No
            function is called twice.

    Raises:
        RewardError: inside the context, if a function raises, or returns anything but an iterable of one finite number
            or `None` per completion. Reward models are not checked.
    """
    funcs = trainer.reward_funcs
    trainer.reward_funcs = [
        func if isinstance(func, torch.nn.Module) else guarded(func, name, on_error)
        for func, name in zip(funcs, trainer.reward_func_names, strict=True)
    ]
    try:
        yield
    finally:
        trainer.reward_funcs = funcs


def guarded(func: Callable, name: str, on_error: str) -> Callable:
    """Wraps `func` in a guard that reports it as `name`; async if `func` is."""

    def call(**arguments):
        try:
            rewards = _listed(func(**accepted(func, arguments)))
        except Exception as error:
            rewards = error
        return _checked(rewards, arguments, name, on_error)

    async def call_async(**arguments):
        try:
            rewards = _listed(await func(**accepted(func, arguments)))
        except Exception as error:
            rewards = error
        return _checked(rewards, arguments, name, on_error)

    return call_async if is_async_callable(func) else call


def _listed(rewards: Any) -> Any:
    """Exhausts a generator here, where its exceptions are caught."""
    return list(rewards) if isinstance(rewards, Iterable) else rewards


def _checked(rewards: Any, arguments: dict[str, Any], name: str, on_error: str) -> list[float | None]:
    count = len(arguments["completions"])
    checked: list[float | None] = [None] * count
    lost, where = count, ""
    if isinstance(rewards, Exception):
        problem = f"raised {type(rewards).__name__}: {rewards}"
    elif not isinstance(rewards, list):
        problem = f"returned {reprlib.repr(rewards)}, a {type(rewards).__name__}, not one reward per completion"
    elif len(rewards) != count:
        problem = f"returned {len(rewards)} rewards for {count} completions"
    else:
        checked = [_number(reward) for reward in rewards]
        bad = [row for row in range(count) if checked[row] is None and rewards[row] is not None]
        if not bad:
            return checked
        lost, row = len(bad), bad[0]
        shown = [reprlib.repr(arguments[column][row]) for column in ("prompts", "completions")]
        problem = f"returned {reprlib.repr(rewards[row])}"
        where = f" for row {row} of {count} (prompt {shown[0]}, completion {shown[1]})"
    message = f"The reward function {name!r} {problem}{where}"
    if on_error == "stop":
        raise RewardError(
            f"{message}: return a finite number, or None for no verdict, for each completion, or set "
            '`on_reward_error="skip"`.'
        ) from (rewards if isinstance(rewards, Exception) else None)
    logger.warning("%s; %d of %d completions get no reward from it.", message, lost, count)
    return checked


def _number(reward: Any) -> float | None:
    """`reward` as a finite number in the range of float32, else `None`."""
    try:
        value = math.nan if isinstance(reward, str) else float(reward)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: a tensor of several elements
        return None
    return value if abs(value) <= LARGEST else None
