"""From the names in a recipe to functions."""

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ..support.errors import UserError, nearest
from ..support.old_names import current_names
from .recipe import Recipe

SOFT_OVERLONG = "get_soft_overlong_punishment"


def find_reward_functions(recipe: Recipe) -> list[Callable[..., list[float | None]] | str]:
    """The reward functions of a recipe, then its reward model's name.

    `reward_funcs` are names in `trl_ces.rewards` or `trl.rewards`, or dotted paths, for which the working directory
    is searched too.

    Raises:
        UserError: if a name does not exist or is not a function, or none is given.
    """
    found: list[Any] = [_find(name, recipe) for name in recipe.script.reward_funcs]
    if recipe.script.reward_model_name_or_path is not None:
        found.append(recipe.script.reward_model_name_or_path)
    if not found:
        raise UserError("`reward_funcs` is empty: name at least one reward function.")
    return found


def import_function(path: str, field: str) -> Callable[..., Any]:
    """The function that a dotted path names; the working directory is searched too.

    Raises:
        UserError: if the module or the function does not exist, or the module fails while it is imported.
    """
    module_name, _, name = current_names(path).rpartition(".")
    if not all(part.isidentifier() for part in path.split(".")):
        raise UserError(f"`{field}`: {path!r} is no dotted path such as `my_package.my_function`.")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"`{field}`: {path!r} cannot be imported: {error}.") from None
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise UserError(
            f"`{field}`: {path!r} cannot be imported: {type(error).__name__} in {_place(error)}: {error}."
        ) from error
    function = vars(module).get(name)
    if not callable(function):
        raise UserError(f"`{field}`: {module_name} has no function {name!r}.{nearest(name, _functions(module))}")
    return function


def model_path(recipe: Recipe) -> str:
    """The model to load: a recipe's `model_name_or_path`, or what its `model_builder` makes of it.

    Raises:
        UserError: if there is no such builder, or it refuses its arguments.
    """
    name = str(recipe.model.model_name_or_path)
    if recipe.script.model_builder is None:
        return name
    build = import_function(recipe.script.model_builder, "model_builder")
    settings = recipe.script.model_builder_kwargs or {}
    try:
        return str(build(name, **settings))
    except (TypeError, ValueError) as error:
        raise UserError(f"`model_builder` {recipe.script.model_builder} with {settings}: {error}") from error


def _place(error: BaseException) -> str:
    """File and line in which an import failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}, line {last.lineno}"


def _find(name: str, recipe: Recipe) -> Callable[..., Any]:
    if "." in name:
        return import_function(name, "reward_funcs")
    from trl import rewards as trls

    from .. import rewards as ours

    if name == SOFT_OVERLONG:
        return _soft_overlong(recipe)
    if name in _functions(ours):
        return getattr(ours, name)
    known_to_trl = [word for word in dir(trls) if word.endswith("_reward") and not word.startswith("get_")]
    if name in known_to_trl:
        return getattr(trls, name)
    known = sorted({*_functions(ours), *known_to_trl, SOFT_OVERLONG})
    raise UserError(
        f"`reward_funcs`: there is no reward {name!r}.{nearest(name, known)} Known: {', '.join(known)}, dotted paths."
    )


def _functions(module: ModuleType) -> list[str]:
    """Public functions defined in the module itself."""
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _soft_overlong(recipe: Recipe) -> Callable[..., Any]:
    from trl.rewards import get_soft_overlong_punishment

    longest = recipe.script.soft_overlong_max_completion_length or recipe.setting("max_completion_length")
    if longest is None:
        raise UserError(
            "`soft_overlong_max_completion_length` is missing, and `max_completion_length` is null: set one."
        )
    cache = recipe.script.soft_overlong_cache or longest // 5
    if not 0 < cache <= longest:
        raise UserError(
            f"`soft_overlong_cache` is {cache}: it must lie between 1 and {longest}, the longest completion."
        )
    return get_soft_overlong_punishment(max_completion_len=longest, soft_punish_cache=cache)
