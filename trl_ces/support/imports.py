"""Import the objects that a recipe specifies by dotted path."""

import importlib
import json
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from .errors import UserError, nearest


def install_line(extra: str) -> str:
    """Return the command that installs an extra from the source of the installed package (PEP 610)."""
    record = json.loads(distribution("trl_ces").read_text("direct_url.json") or "{}")
    url = record.get("url", "")
    if record.get("dir_info", {}).get("editable"):
        return f'pip install -e "{url.removeprefix("file://")}[{extra}]"'
    source = f"{record['vcs_info']['vcs']}+{url}" if "vcs_info" in record else url
    return f'pip install "trl_ces[{extra}]{source and f" @ {source}"}"'


def import_path(path: str, field: str) -> Any:
    """Import `my_package.my_object` or `my_package:my_object`.

    The working directory is searched last, so that its files never replace standard or installed modules.
    """
    module_name, _, name = path.replace(":", ".").rpartition(".")
    if not module_name:
        raise UserError(f"`{field}`: {path!r} is not a dotted path such as `my_package.my_function`.")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    file = Path.cwd() / f"{module_name.partition('.')[0]}.py"
    try:
        module = importlib.import_module(module_name)
        problem = None if name in vars(module) else f"{module_name} has no {name!r}.{nearest(name, vars(module))}"
    except (Exception, SystemExit) as error:  # user code may raise any exception
        problem = f"{path!r} cannot be imported: {type(error).__name__}: {error}."
        if isinstance(error, ModuleNotFoundError):
            problem += f" Installed packages and the working directory {Path.cwd()} were searched."
    if problem is not None:
        other = sys.modules.get(file.stem)  # absent if the user's own module failed
        is_hidden = file.is_file() and other is not None and getattr(other, "__file__", None) != str(file)
        hint = f" Another module is also named {file.stem}: rename {file}." if is_hidden else ""
        raise UserError(f"`{field}`: {problem}{hint}")
    return vars(module)[name]


def call_builder(field: str, path: str, /, *args: Any, **settings: Any) -> Any:
    """Call the function at the dotted path in the recipe key `field`; raise `UserError` if the call fails."""
    build = import_path(path, field)
    try:
        return build(*args, **settings)
    except UserError:
        raise
    except (TypeError, ValueError, OSError) as error:
        raise UserError(f"`{field}`: {path} called with {settings} failed: {error}") from error
