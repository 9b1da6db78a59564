"""From a path in a recipe to the object that it names."""

import importlib
import json
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import UserError, kind, nearest


def install_line(extra: str) -> str:
    """The command that adds an extra of this package, from where it was installed: PEP 610's record says."""
    try:
        record = json.loads(distribution("trl_ces").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        record = {"url": Path(__file__).parents[2].as_uri(), "dir_info": {"editable": True}}
    url = record.get("url", "")
    if record.get("dir_info", {}).get("editable"):
        return f'pip install -e "{url.removeprefix("file://")}[{extra}]"'
    source = f"{record['vcs_info']['vcs']}+{url}" if "vcs_info" in record else url
    return f'pip install "trl_ces[{extra}]{source and f" @ {source}"}"'


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


def call_builder(field: str, path: str, /, *given: Any, **settings: Any) -> Any:
    """What the function that the key `field` names makes of its arguments; `UserError` where it refuses them."""
    build = import_function(path, field)
    try:
        return build(*given, **settings)
    except UserError:
        raise
    except (TypeError, ValueError) as error:
        raise UserError(f"`{field}` {path} with {settings}: {error}") from error


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
