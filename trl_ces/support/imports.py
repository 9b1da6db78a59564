"""From a path in a recipe to the object that it names."""

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import UserError, kind, nearest


def import_path(path: str, field: str) -> Any:
    """What `my_package.my_function` or `my_package:my_function` names; the working directory is searched too."""
    module_name, _, name = path.replace(":", ".").rpartition(".")
    if not module_name or not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise UserError(f"`{field}`: {path!r} is not a dotted path such as `my_package.my_function`.")
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
    if name not in vars(module):
        raise UserError(f"`{field}`: {module_name} has no {name!r}.{nearest(name, public_functions(module))}")
    return vars(module)[name]


def import_function(path: str, field: str) -> Callable[..., Any]:
    """The function that a path names, see [`import_path`]."""
    function = import_path(path, field)
    if not callable(function):
        raise UserError(f"`{field}`: {path!r} is {kind(function)}, not a function.")
    return function


def public_functions(module: ModuleType) -> list[str]:
    """Public functions defined in the module itself."""
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _place(error: BaseException) -> str:
    """File and line in which an import failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}, line {last.lineno}"
