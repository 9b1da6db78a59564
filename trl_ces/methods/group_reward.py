"""
Group rewards: reward functions that need all completions of a prompt.

TRL calls a reward function with the rows of one process, but a group may be split across several processes. The
`GroupRewards` layer instead computes these rewards from the gathered rollout, for any number of processes.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from ..support.settings import check_logged
from .groups import Groups
from .metrics import CES_METRICS


def group_reward(rule: Callable[[Groups], Tensor]) -> Callable[..., Any]:
    """
    Create a reward function for [`CESTrainer`] from a rule that computes the rewards of complete groups.

    Pass the result in `reward_funcs` like any other reward function, with its own weight and metrics, together with
    the accuracy reward that determines correctness. A completion without an accuracy reward gets `None`.

    Args:
        rule (`Callable[[Groups], Tensor]`):
            Takes the [`Groups`] of a rollout (P prompts with G completions each, gathered from all processes), and
            returns rewards of shape (P, G), finite for scored completions. Every process calls the rule with the same
            groups.

    Returns:
        `Callable`: The reward function, with the name of `rule`. Its `group_rule` attribute is `rule`.

    Raises:
        `RuntimeError`: Raised by the reward function if a trainer without the `GroupRewards` layer calls it.

    Example:
        ```python
        >>> @group_reward
        ... def shortest_correct_reward(groups):
        ...     shortest = groups.lengths.masked_fill(~groups.correct, groups.max_length + 1).amin(dim=1, keepdim=True)
        ...     return (groups.lengths == shortest).float()
        ```
    """

    @functools.wraps(rule)
    def raise_error(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError(
            f"{raise_error.__name__} is a group reward, which only CESTrainer and the "
            "trl_ces.layers.GroupRewards layer compute: use one of them instead of GRPOTrainer."
        )

    # Partials and callable objects have no `__name__` that `wraps` could copy.
    raise_error.__name__ = getattr(_unwrap(rule), "__name__", type(rule).__name__)
    del raise_error.__wrapped__  # otherwise, the reward function would have the rule's signature
    raise_error.group_rule = rule  # type: ignore[attr-defined]
    return raise_error


def _unwrap(func: Any) -> Any:
    """Return the function that partials and decorators wrap."""
    return _unwrap(func.func) if isinstance(func, functools.partial) else inspect.unwrap(func)


def is_group_reward(func: Any) -> bool:
    """Return whether `func` was created by [`group_reward`]."""
    return hasattr(func, "group_rule")


def reward_name(func: Any) -> str:
    """Return the name under which TRL logs a reward function or reward model."""
    from trl.trainer.utils import get_callable_name, get_config_model_id  # loading TRL takes seconds

    if isinstance(func, str):
        return func.split("/")[-1]
    if isinstance(func, torch.nn.Module):
        return get_config_model_id(cast(Any, func.config)).split("/")[-1]
    return get_callable_name(func)


def accuracy_reward_index(names: list[str], name: str | None) -> int:
    """Return the index of `name`. `None` selects the only reward, or the only one with "accuracy" in its name."""
    if name is None and len(names) == 1:
        return 0
    matches = [index for index, entry in enumerate(names) if (entry == name if name else "accuracy" in entry.lower())]
    if len(matches) != 1:
        listed = f"{len(matches)} of the rewards ({', '.join(names) or 'none'})"
        kind = f"are named {name!r}" if name else "have 'accuracy' in their name"
        raise ValueError(
            f"{listed} {kind}: set `ces_accuracy_reward` to the name of the reward that determines correctness."
        )
    return matches[0]


def accuracy_column(name: str | None, names: list[str], funcs: list[Any]) -> int:
    """
    Return the index of the accuracy reward among `funcs`, which TRL logs under `names`; `name` is the value of
    `ces_accuracy_reward`.

    Raises:
        `ValueError`: The accuracy reward does not exist, is ambiguous, or is a group reward.
    """
    index = accuracy_reward_index(names, name)
    if is_group_reward(funcs[index]):
        raise ValueError(
            f"{names[index]} is a group reward, so it cannot be the accuracy reward that determines correctness: "
            "add an accuracy reward to `reward_funcs`, and name it in `ces_accuracy_reward`."
        )
    return index


def check_rewards(config: Any, funcs: list[Any]) -> None:
    """Raise `ValueError` if the reward names or weights in a `CESConfig` do not match the reward functions."""
    names, weights = [reward_name(func) for func in funcs], config.reward_weights
    if not funcs:
        raise ValueError("`reward_funcs` is empty: pass at least one reward function.")
    if weights is not None and len(weights) != len(names):
        raise ValueError(
            f"`reward_weights` has {len(weights)} numbers for {len(names)} rewards: give one number for each of "
            f"{', '.join(names)}, in that order."
        )
    if config.needs_accuracy or any(map(is_group_reward, funcs)):
        accuracy_column(config.ces_accuracy_reward, names, funcs)
    metric = config.metric_for_best_model
    if not any(map(_may_log_metrics, funcs)) and (metric or "").removeprefix("eval_") not in CES_METRICS:
        check_logged(metric, names)


def _may_log_metrics(func: Any) -> bool:
    """Return whether a reward function uses TRL's `log_metric`, as a parameter or as `kwargs["log_metric"]`."""
    func = _unwrap(func)
    code = getattr(func, "__code__", None) or getattr(type(func).__call__, "__code__", None)
    return code is not None and "log_metric" in (*code.co_varnames, *code.co_consts)
