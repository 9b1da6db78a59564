"""Call reward functions with the text of the model's last turn, and check their results.

Each reward must be a finite number or `None`; otherwise, an error that names the function is raised. TRL itself
trains on infinite rewards, treats NaN as `None`, and does not report the row of an invalid reward.
`trainer.reward_funcs` contains the user's own objects, which are replaced by guards only while TRL calls them.

Overrides of TRL: `_generate`, `_calculate_rewards`.
"""

import copy
import inspect
import logging
import math
import reprlib
from collections.abc import Callable, Iterable, MappingView, Set
from typing import Any, cast

import torch
from torch import Tensor
from trl.trainer.utils import is_async_callable

from ..methods.group_reward import reward_name
from ..methods.groups import Groups
from .layer import Layer
from .turns import read_turns

logger = logging.getLogger(__name__)

# Keyword arguments that reward functions receive in addition to TRL's.
REWARD_KEYWORDS = ("thinking_prefilled", "last_turns")
# TRL's keyword arguments. It also passes all dataset columns except `prompt` and `completion`.
TRL_KEYWORDS = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
LARGEST = torch.finfo(torch.float32).max  # TRL stores rewards as float32
SKIP_WARNING = "%s; %d of %d completions get no reward from this function."


class RewardError(RuntimeError):
    """Raised if a reward function fails or returns an invalid result. Names the function and, if possible, the row."""


class RewardCalls(Layer):
    """
    Pass `REWARD_KEYWORDS` to the reward functions that accept them, and check the rewards of every function.

    With `on_reward_error="skip"`, the layer warns about an invalid result and returns `None` for the invalid rows, or
    for all rows if the function fails or returns the wrong number of rewards. Reward models are not checked.

    Raises:
        [`RewardError`]: During training, with `on_reward_error="stop"`, if a function raises an exception, or does not
            return an ordered iterable with a finite number or `None` for each completion.
    """

    # Values of REWARD_KEYWORDS for the latest completions, by name.
    _turns: dict[str, list] = {}  # noqa: RUF012

    def _generate(self, prompts):
        outputs = super()._generate(prompts)
        prompt_ids, completion_ids, masks = outputs[:3]  # lists, but a user's rollout_func may return tensors
        self._turns = read_turns(prompt_ids, completion_ids, masks, self._tokenizer)
        return outputs

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rows = range(len(inputs))
        turns = [{name: values[row] for name, values in self._turns.items()} for row in rows]
        inputs = [{**turns[row], **inputs[row]} for row in rows]  # dataset columns take precedence
        funcs, names = self.reward_funcs, self.reward_func_names
        on_error = self.args.on_reward_error
        self.reward_funcs = cast(Any, [guard(func, name, on_error) for func, name in zip(funcs, names, strict=True)])
        try:
            return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        finally:
            self.reward_funcs = funcs


def parameters_of(func: Callable, follow_wrapped: bool = True) -> list[inspect.Parameter]:
    """Return the parameters of a reward function, or an empty list for compiled code without a signature."""
    try:
        return list(inspect.signature(func, follow_wrapped=follow_wrapped).parameters.values())
    except ValueError:
        return []


def check_columns(funcs: Any, columns: list[str], dataset: str) -> None:
    """Raise `ValueError` if a reward function has a required parameter that is not a column of the dataset."""
    for func in funcs if isinstance(funcs, list) else [funcs]:
        if not callable(func) or isinstance(func, torch.nn.Module):
            continue
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        parameters = parameters_of(func, follow_wrapped=False)  # a decorator may add arguments
        required = {entry.name for entry in parameters if entry.kind in kinds and entry.default is entry.empty}
        passed = {*columns} - {"prompt", "completion"} | {*TRL_KEYWORDS, *REWARD_KEYWORDS}
        if missing := sorted(required - passed):
            plural = f"{missing[0]}s"
            remedy = f"use `{plural}`" if plural in TRL_KEYWORDS else "rename a column"
            raise ValueError(
                f"The reward function {reward_name(func)} needs the column `{missing[0]}`, but rewards receive only "
                f"{', '.join(sorted(passed))} with `{dataset}`: {remedy}, or give the parameter a default value."
            )


def supported_arguments(func: Callable, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return `arguments` without the `REWARD_KEYWORDS` that `func` does not accept."""
    parameters = parameters_of(func)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return arguments
    unsupported = set(REWARD_KEYWORDS) - {parameter.name for parameter in parameters}
    return {name: value for name, value in arguments.items() if name not in unsupported}


def call_group_reward(rule: Callable[[Groups], Tensor], groups: Groups, name: str, on_error: str) -> Tensor:
    """Call the rule of a [`group_reward`] and check its result. Shape (P * G,), float32, NaN for `None`."""
    shape = groups.correct.shape
    valid_rewards, cause = torch.full(shape, math.nan, device=groups.correct.device), None
    try:
        result = rule(copy.deepcopy(groups))  # the rule may modify its argument in place
        if not isinstance(result, Tensor) or result.shape != shape:
            returned = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            problem = f"returned {returned}, not a tensor of shape {tuple(shape)}"
        else:
            result = result.float()
            valid_rewards = torch.where(
                groups.scored & result.isfinite() & (result.abs() <= LARGEST), result, math.nan
            )
            invalid = (groups.scored & valid_rewards.isnan()).nonzero().tolist()
            if not invalid:
                return valid_rewards.flatten()
            group, member = invalid[0]
            problem = f"returned {result[group, member].item()} for completion {member} of group {group}"
    except (Exception, SystemExit) as error:
        cause, problem = error, f"raised {type(error).__name__}: {error}"
    message = f"The reward function {name!r} {problem}"
    if on_error == "stop":
        raise RewardError(
            f'{message}: return a finite number for each completion, or set `on_reward_error="skip"`.'
        ) from cause
    num_unscored = (groups.scored & valid_rewards.isnan()).sum()
    logger.warning(SKIP_WARNING, message, num_unscored, valid_rewards.numel())
    return valid_rewards.flatten()


def guard(func: Any, name: str, on_error: str) -> Any:
    """Wrap `func` to check its rewards, with `name` in error messages. Return a reward model unchanged."""
    if isinstance(func, torch.nn.Module):
        return func

    def call(**arguments):
        try:
            rewards = _as_list(func(**supported_arguments(func, arguments)))
        except (Exception, SystemExit) as error:
            rewards = error
        return _check(rewards, arguments, name, on_error)

    async def call_async(**arguments):
        try:
            rewards = _as_list(await func(**supported_arguments(func, arguments)))
        except (Exception, SystemExit) as error:
            rewards = error
        return _check(rewards, arguments, name, on_error)

    return call_async if is_async_callable(func) else call


def _as_list(rewards: Any) -> Any:
    """Return ordered rewards as a list; return anything else, such as a set, a mapping or a table, unchanged."""
    dimensions = getattr(rewards, "ndim", None)  # exists in arrays, tensors and pandas objects
    is_table = hasattr(rewards, "keys") and dimensions != 1
    is_invalid = isinstance(rewards, Set | MappingView | str | bytes | bytearray) or is_table or dimensions == 0
    return list(rewards) if isinstance(rewards, Iterable) and not is_invalid else rewards


def _check(rewards: Any, arguments: dict[str, Any], name: str, on_error: str) -> list[float | None]:
    count = len(arguments["completions"])
    valid_rewards: list[float | None] = [None] * count
    num_unscored, location = count, ""
    if isinstance(rewards, Exception | SystemExit):
        problem = f"raised {type(rewards).__name__}: {rewards}"
        if isinstance(rewards, AttributeError | TypeError) and count and isinstance(arguments["completions"][0], list):
            location = ' (completions are lists of messages: the text is `completion[-1]["content"]`)'
    elif not isinstance(rewards, list):
        problem = f"returned {reprlib.repr(rewards)}, a {type(rewards).__name__}, instead of one reward per completion"
    elif len(rewards) != count:
        problem = f"returned {len(rewards)} rewards for {count} completions"
    else:
        valid_rewards = [_number(reward) for reward in rewards]
        invalid = [row for row in range(count) if valid_rewards[row] is None and rewards[row] is not None]
        if not invalid:
            return valid_rewards
        num_unscored, row = len(invalid), invalid[0]
        examples = [reprlib.repr(arguments[column][row]) for column in ("prompts", "completions")]
        problem = f"returned {reprlib.repr(rewards[row])}"
        location = f" for row {row} of {count} (prompt {examples[0]}, completion {examples[1]})"
    message = f"The reward function {name!r} {problem}{location}"
    if on_error == "stop":
        advice = "return a finite number for each completion, or None to leave it unscored"
        cause = rewards if isinstance(rewards, BaseException) else None
        raise RewardError(
            f'{message}: {"correct the function" if cause else advice}, or set `on_reward_error="skip"`.'
        ) from cause
    logger.warning(SKIP_WARNING, message, num_unscored, count)
    return valid_rewards


def _number(reward: Any) -> float | None:
    """Return `reward` as a float, or `None` if it is not a finite number in the range of float32."""
    try:
        value = math.nan if isinstance(reward, str | bytes | bytearray) else float(reward)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor with several elements
        return None
    return value if abs(value) <= LARGEST else None
