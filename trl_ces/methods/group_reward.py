"""A reward that sees its whole group, as a reward function of TRL.

TRL calls a reward function with the rows of one process, and a group may be split over several. The layer
`GroupRewards` fills a group reward's column from the gathered rewards instead, so that it is exact on any number of
processes.
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..support.reward_names import accuracy_reward_index
from .groups import Groups

GroupRule = Callable[[Groups], Tensor]


def group_reward(rule: GroupRule) -> Callable[..., Any]:
    """
    Makes a reward function of [`CESTrainer`] from a rule that sees whole groups.

    It stands in `reward_funcs` like any other, with its weight and metrics, beside the accuracy reward whose verdicts
    it reads. A completion that the accuracy reward cannot score gets `None`.

    Args:
        rule (`Callable[[Groups], Tensor]`):
            From [`Groups`] to rewards, shape (P, G), float, finite where `groups.scored`. P prompts, G completions
            each, over all processes; every process calls it with the same groups.

    Returns:
        `Callable`: The reward function, named as `rule`. Its attribute `of_groups` is `rule`.

    Raises:
        `RuntimeError`: If called by a trainer without the layer `GroupRewards`.

    Example:
        ```python
        >>> @group_reward
        ... def shortest_right_reward(groups):
        ...     shortest = groups.lengths.masked_fill(~groups.correct, groups.max_length + 1).amin(dim=1, keepdim=True)
        ...     return (groups.lengths == shortest).float()
        ```
    """

    @functools.wraps(rule)
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError(
            f"{rule.__name__} is a reward of whole groups, which only CESTrainer and the layer "
            "trl_ces.layers.GroupRewards compute: use one of them in the place of GRPOTrainer."
        )

    del refuse.__wrapped__  # its signature is that of a reward function, not of the rule
    refuse.of_groups = rule  # type: ignore[attr-defined]
    return refuse


def is_group_reward(func: Any) -> bool:
    """Whether [`group_reward`] made it."""
    return hasattr(func, "of_groups")


def accuracy_column(wanted: str | None, names: list[str], funcs: list[Any]) -> int:
    """
    The accuracy reward's index, among reward functions `funcs` that TRL logs under `names`: the one that
    `ces_accuracy_reward` names, if `wanted` is not `None`.

    Raises:
        `ValueError`: There is none, it is ambiguous, or it is a reward of whole groups.
    """
    index = accuracy_reward_index(names, wanted)
    if is_group_reward(funcs[index]):
        raise ValueError(
            f"{names[index]} rewards whole groups by the verdicts of an accuracy reward, so it cannot be that reward: "
            "add one to `reward_funcs`, and name it in `ces_accuracy_reward`."
        )
    return index


def reward_factory(rule: Callable[..., Tensor], module: str) -> Callable[..., Callable[..., Any]]:
    """
    Makes `get_NAME(**settings)` from the rule `NAME(groups, *, **settings)`.

    Args:
        rule (`Callable`):
            As in [`group_reward`], with settings, each a finite number above 0, or a bool. If it takes a `state`,
            that is a dict of what it carries from one rollout of the training to the next, as JSON. Checkpoints
            have it; an evaluation does not change it.
        module (`str`): Where the factory is found.

    Returns:
        `Callable`: Takes the settings; returns the reward function, named as `rule`.

    Raises:
        `TypeError`: by the factory, if a setting is missing or unknown.
        `ValueError`: by the factory, if a setting is of another kind, and not its default.
    """
    parameters = list(inspect.signature(rule).parameters.values())[1:]
    settable = [each.replace(kind=each.POSITIONAL_OR_KEYWORD) for each in parameters if each.name != "state"]
    signature = inspect.Signature(settable)

    def get(*args: Any, **kwargs: Any) -> Callable[..., Any]:
        settings = signature.bind(*args, **kwargs).arguments
        for name, value in settings.items():
            if value == signature.parameters[name].default:
                continue
            if isinstance(signature.parameters[name].default, bool):
                if not isinstance(value, bool):
                    raise ValueError(f"`{name}` is {value!r}: expected true or false.")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"`{name}` is {value!r}: expected a finite number above 0.")
            elif signature.parameters[name].annotation is int and not isinstance(value, int):
                raise ValueError(f"`{name}` is {value!r}: expected a whole number.")
        made: Any = functools.update_wrapper(functools.partial(rule, **settings), rule)
        if len(settable) < len(parameters):
            made.state = {}
            made.keywords["state"] = made.state
        return group_reward(made)

    get.__name__ = get.__qualname__ = f"get_{rule.__name__}"
    get.__module__, get.__doc__ = module, rule.__doc__
    get.__signature__ = signature  # type: ignore[attr-defined]
    return get
