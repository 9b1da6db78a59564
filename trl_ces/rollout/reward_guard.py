"""What CESTrainer asks of reward functions and tells them: which one says "correct", what the model really wrote."""

import functools
import inspect
import logging
import math
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

logger = logging.getLogger(__name__)

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
    if _is_async(func):

        async def call(**arguments):
            return await func(**known(arguments))
    else:

        def call(**arguments):
            return func(**known(arguments))

    return functools.update_wrapper(call, func)


def start_early(funcs: Sequence[Any], examples: Sequence[dict[str, Any]]) -> None:
    """
    Lets reward functions begin their work, so that it overlaps with the old and the reference log-probs.

    Args:
        funcs (`Sequence[Callable]`): Reward functions. One that has an attribute `start_early`, a function, wants to
            know early what it will be asked: [`accuracy_reward`] does.
        examples (`Sequence[dict]`): One for each completion: the columns of the data and `REWARD_KEYWORDS`.
    """
    functions = [func for func in funcs if not isinstance(func, torch.nn.Module)]
    starts = [func.start_early for func in functions if hasattr(func, "start_early")]
    if starts and examples:
        columns = {name: [example.get(name) for example in examples] for name in examples[0]}
        for start in starts:
            start(**columns)


class RewardError(RuntimeError):
    """A reward function raised, or returned what is no reward. The message names the function and the row."""


def guarded(func: Any, name: str, on_error: str) -> Any:
    """
    `func`, watched: what it returns is a finite number or `None` for each completion.

    TRL itself trains on an infinite reward, takes NaN for "no verdict", and names no row where a function fails.

    Args:
        func (`Callable`): A reward function, plain or async. A reward model is returned as it is.
        name (`str`): What TRL logs it under.
        on_error (`"stop"` or `"skip"`):
            `"stop"`: a [`RewardError`]. `"skip"`: a warning, and `None` for the rows concerned, which leaves them out
            of the group's mean; all rows where the length is wrong.

    Returns:
        `Callable`: Takes the keyword arguments of `func` and returns `list[float | None]`. Where `func` raises, it is
        called again with each row alone, to find the row.

    Raises:
        `ValueError`: `on_error` is another word.
    """
    if on_error not in ("stop", "skip"):
        raise ValueError(f"`on_reward_error` is {on_error!r}: it is stop or skip.")
    if isinstance(func, torch.nn.Module):
        return func
    call: Callable
    if _is_async(func):

        async def call(**arguments):
            try:
                rewards = await func(**arguments)
            except Exception as error:
                rewards = []
                for row in _rows(arguments):
                    try:
                        rewards.extend(await func(**row))
                    except Exception as alone:
                        rewards.append(alone)
                return _settled(_blamed(rewards, error), arguments, name, on_error)
            return _settled(rewards, arguments, name, on_error)
    else:

        def call(**arguments):
            try:
                rewards = func(**arguments)
            except Exception as error:
                rewards = []
                for row in _rows(arguments):
                    try:
                        rewards.extend(func(**row))
                    except Exception as alone:
                        rewards.append(alone)
                return _settled(_blamed(rewards, error), arguments, name, on_error)
            return _settled(rewards, arguments, name, on_error)

    return functools.update_wrapper(call, func)


def _rows(arguments: dict) -> list[dict]:
    """The arguments of a reward function for each row alone."""
    count = len(arguments["completions"])
    return [
        {
            name: value[row : row + 1] if isinstance(value, list) and len(value) == count else value
            for name, value in arguments.items()
        }
        | {name: _log_nothing for name in ("log_extra", "log_metric") if name in arguments}  # it has logged before
        for row in range(count)
    ]


def _log_nothing(*_: Any) -> None:
    pass


def _blamed(rewards: list, error: Exception) -> list | Exception:
    """What the rows gave alone; the error of the batch where it is no single row's."""
    return rewards if any(isinstance(reward, Exception) for reward in rewards) else error


def _settled(rewards: Any, arguments: dict, name: str, on_error: str) -> list[float | None]:
    """Each row's reward as a float or `None`, or the refusal of what is neither."""
    count = len(arguments["completions"])
    problems: dict[int | None, str] = {}
    settled: list[float | None] = [None] * count
    if isinstance(rewards, Exception):
        problems[None] = f"raised {type(rewards).__name__} on the batch, and on no row alone: {rewards}"
    elif not isinstance(rewards, list | tuple) and not hasattr(rewards, "tolist"):
        problems[None] = f"returned {reprlib.repr(rewards)}, a {type(rewards).__name__}, and not a list"
    elif len(rewards) != count:
        problems[None] = f"returned {len(rewards)} rewards for {count} completions"
    else:
        for row, reward in enumerate(rewards):
            settled[row], problem = _number(reward)
            if problem:
                problems[row] = problem
    if not problems:
        return settled
    first, problem = next(iter(problems.items()))
    where = "" if first is None else f" for row {first} of {count} ({_shown(arguments, first)})"
    what = f"The reward function {name!r} {problem}{where}"
    cause = rewards if first is None else rewards[first]
    if on_error == "stop":
        raise RewardError(
            f"{what}: return a finite number, or None for no verdict, for each completion, or set "
            '`on_reward_error="skip"`.'
        ) from (cause if isinstance(cause, Exception) else None)
    lost = count if first is None else len(problems)
    logger.warning("%s; %d of %d completions have no reward from it.", what, lost, count)
    return settled


def _number(reward: Any) -> tuple[float | None, str]:
    """A row's reward and what is wrong with it."""
    if isinstance(reward, Exception):
        return None, f"raised {type(reward).__name__}: {reward}"
    if reward is None:
        return None, ""
    try:
        value = math.nan if isinstance(reward, str) else float(reward)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    return (value, "") if math.isfinite(value) else (None, f"returned {reprlib.repr(reward)}")


def _shown(arguments: dict, row: int) -> str:
    return (
        f"prompt {reprlib.repr(arguments['prompts'][row])}, completion {reprlib.repr(arguments['completions'][row])}"
    )


def _is_async(func: Callable) -> bool:
    from trl.trainer.utils import is_async_callable

    return is_async_callable(func)
