"""Find the reward functions and the model of a recipe."""

import inspect
from collections.abc import Callable
from typing import Any

from ..support.errors import UserError, nearest
from ..support.imports import call_builder, import_path
from .recipe import Recipe

SOFT_OVERLONG = "get_soft_overlong_punishment"


def find_reward_functions(recipe: Recipe) -> list[Callable[..., list[float | None]] | str]:
    """
    Return the reward functions of a recipe, followed by the name of its reward model. Call the factories (`get_...`,
    or dotted paths with `reward_kwargs`).
    """
    names, settings = recipe.script.reward_funcs, recipe.script.reward_kwargs or {}
    for name in settings.keys() - set(names):
        raise UserError(f"`reward_kwargs`: {name!r} is not in `reward_funcs`.{nearest(str(name), names)}")
    rewards: list[Any] = [_find(name, settings.get(name), recipe) for name in names]
    if recipe.script.reward_model_name_or_path is not None:
        rewards.append(recipe.script.reward_model_name_or_path)
    if not rewards:
        raise UserError("`reward_funcs` is empty: list at least one reward function.")
    return rewards


def model_path(recipe: Recipe) -> str:
    """Return the model to load: `model_name_or_path`, or the result of `model_builder`."""
    name = str(recipe.model.model_name_or_path)
    if recipe.script.model_builder is None:
        return name
    settings = recipe.script.model_builder_kwargs or {}
    return str(call_builder("model_builder", recipe.script.model_builder, name, **settings))


def _find(name: str, settings: dict[str, Any] | None, recipe: Recipe) -> Callable[..., Any]:
    """Return the reward function `name`, or the result of calling the factory `name` with `settings`."""
    from trl import rewards as trl_rewards

    from .. import rewards as own_rewards

    known = {reward: getattr(trl_rewards, reward) for reward in dir(trl_rewards) if reward.endswith("_reward")}
    known |= {SOFT_OVERLONG: trl_rewards.get_soft_overlong_punishment}
    names = [reward for reward in own_rewards.__all__ if reward.endswith("_reward") and reward != "group_reward"]
    known |= {reward: getattr(own_rewards, reward) for reward in names}
    if "." not in name and name not in known:
        raise UserError(
            f"`reward_funcs`: unknown reward {name!r}.{nearest(name, sorted(known))} Use one of "
            f"{', '.join(sorted(known))}, or a dotted path such as `my_rewards.my_reward`."
        )
    function = known[name] if name in known else import_path(name, "reward_funcs")
    if settings is None and not name.rpartition(".")[2].startswith("get_"):
        return function
    limit, settings = recipe.setting("max_completion_length"), settings or {}
    if name == "get_cosine_scaled_reward" and limit:
        settings = {"max_len": limit} | settings
    if name == SOFT_OVERLONG:  # by default, the penalty grows over the last fifth of the limit, as in DAPO
        longest = settings.get("max_completion_len", limit)
        settings = {"max_completion_len": longest, "soft_punish_cache": (longest or 0) // 5} | settings
    try:
        return function(**settings)
    except (TypeError, ValueError) as error:
        accepted = ", ".join(inspect.signature(function).parameters)
        raise UserError(f"`reward_kwargs`: {name}: {error} (accepted arguments: {accepted})") from None
