"""From the names in a recipe to functions."""

import inspect
from collections.abc import Callable
from typing import Any

from ..support.errors import UserError, kind, nearest
from ..support.imports import call_builder, import_function
from .recipe import Recipe

SOFT_OVERLONG = "get_soft_overlong_punishment"


def find_reward_functions(recipe: Recipe) -> list[Callable[..., list[float | None]] | str]:
    """The reward functions of a recipe, then its reward model's name.

    `reward_funcs` are names in `trl_ces.rewards` or `trl.rewards`, or dotted paths, for which the working directory
    is searched too. A factory, `get_...`, is called with its `reward_kwargs`; so is any dotted path that has some.
    """
    names, settings = recipe.script.reward_funcs, recipe.script.reward_kwargs or {}
    for name in settings:
        if name not in names:
            raise UserError(f"`reward_kwargs`: {name!r} is not in `reward_funcs`.{nearest(str(name), names)}")
    found: list[Any] = [_find(name, settings.get(name), recipe) for name in names]
    if recipe.script.reward_model_name_or_path is not None:
        found.append(recipe.script.reward_model_name_or_path)
    if not found:
        raise UserError("`reward_funcs` is empty: name at least one reward function.")
    return found


def model_path(recipe: Recipe) -> str:
    """The model to load: a recipe's `model_name_or_path`, or what its `model_builder` makes of it."""
    name = str(recipe.model.model_name_or_path)
    if recipe.script.model_builder is None:
        return name
    settings = recipe.script.model_builder_kwargs or {}
    return str(call_builder("model_builder", recipe.script.model_builder, name, **settings))


def _find(name: str, settings: dict[str, Any] | None, recipe: Recipe) -> Callable[..., Any]:
    if "." in name:
        function = import_function(name, "reward_funcs")
        is_factory = settings is not None or name.rpartition(".")[2].startswith("get_")
        return _made(name, function, settings or {}) if is_factory else function
    from trl import rewards as trls

    from .. import rewards as ours

    known = {word: getattr(trls, word) for word in dir(trls) if word.endswith("_reward") or word == SOFT_OVERLONG}
    known |= {word: getattr(ours, word) for word in ours.__all__ if word not in ("Groups", "group_reward")}
    if name not in known:
        raise UserError(
            f"`reward_funcs`: there is no reward {name!r}.{nearest(name, sorted(known))} Known: "
            f"{', '.join(sorted(known))}, dotted paths."
        )
    limit = recipe.setting("max_completion_length")
    if name == "get_cosine_scaled_reward" and limit:
        settings = {"max_len": limit} | (settings or {})
    if name == SOFT_OVERLONG:
        # TRL's factory takes any numbers; by default it grows over the last fifth, as in DAPO.
        longest = (settings or {}).get("max_completion_len", limit)
        settings = {"max_completion_len": longest, "soft_punish_cache": (longest or 0) // 5} | (settings or {})
        cache = settings["soft_punish_cache"]
        if not isinstance(longest, int) or not isinstance(cache, int) or not 0 < cache <= longest:
            raise UserError(
                f"`reward_kwargs`: {name}: `soft_punish_cache` is {cache!r}: it must lie between 1 and {longest!r}, "
                "the longest completion (`max_completion_len`, by default `max_completion_length`)."
            )
    target = (settings or {}).get("target")
    if name == "get_laser_length_reward" and limit and isinstance(target, (int, float)) and target >= limit:
        raise UserError(
            f"`reward_kwargs`: {name}: with a `target` of {target} no completion of at most {limit} tokens "
            "(`max_completion_length`) is too long: lower it."
        )
    if name.startswith("get_"):
        return _made(name, known[name], settings or {})
    if settings is not None:
        raise UserError(f"`reward_kwargs`: {name} takes no settings; only rewards that begin with `get_` do.")
    return known[name]


def _made(name: str, factory: Callable[..., Any], settings: dict[str, Any]) -> Callable[..., Any]:
    try:
        function = factory(**settings)
    except (TypeError, ValueError) as error:
        accepted = ", ".join(inspect.signature(factory).parameters)
        raise UserError(f"`reward_kwargs`: {name}: {error} (settings: {accepted})") from None
    if not callable(function):
        raise UserError(f"`reward_kwargs`: {name} made {kind(function)} of its settings, not a reward function.")
    return function
