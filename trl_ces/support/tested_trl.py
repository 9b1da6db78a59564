"""Compare the installed TRL with the versions that the trainer was tested with.

tests/helpers/trl_fingerprints.py writes tested_trl.json, which maps each tested version to fingerprints of the TRL
functions that the trainer overrides or calls.
"""

import ast
import hashlib
import inspect
import json
import pkgutil
import re
import textwrap
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from packaging.version import Version

FILE = Path(__file__).with_suffix(".json")


@cache
def known_fingerprints() -> dict[str, dict[str, str]]:
    """Return the function fingerprints of each tested version, oldest first, keyed by `module:qualified.name`."""
    versions = json.loads(FILE.read_text(encoding="utf-8"))
    return {version: versions[version] for version in sorted(versions, key=Version)}


def fingerprint(function: Callable) -> str:
    """
    Hash a function's code, ignoring comments, docstrings and formatting; the hash is the same on every Python version.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    # `ast.dump` prints different empty fields on different Python versions.
    text = re.sub(r"[\s,]*\w+=(\[\]|None)|[\s,]", "", ast.dump(tree))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def changed_functions() -> tuple[str, ...]:
    """Return the functions that are missing from the installed TRL or differ from all tested versions."""
    changed = []
    for name in sorted(set().union(*known_fingerprints().values())):
        try:
            installed = fingerprint(pkgutil.resolve_name(name))
        except (AttributeError, ImportError, OSError, TypeError):
            installed = ""
        if all(installed != functions.get(name) for functions in known_fingerprints().values()):
            changed.append(name.rpartition(":")[2])
    return tuple(changed)


def check_trl_version(version: str) -> None:
    """
    Warn if TRL functions that the trainer relies on differ from those of all tested versions.

    Raises:
        `ImportError`: `version` is older than all tested versions.
    """
    tested = list(known_fingerprints())
    newest = tested[-1]
    if Version(version) < Version(tested[0]):
        raise ImportError(
            f"trl {version} is installed, but CESTrainer requires trl {tested[0]} or newer: run "
            f"`pip install trl=={newest}`."
        )
    if changed_functions():
        warnings.warn(
            f"trl {version} differs from all tested versions ({', '.join(tested)}) in functions that CESTrainer "
            f"overrides or calls: {', '.join(changed_functions())}. Results may differ. Run "
            f"`pip install trl=={newest}`, or test the latest TRL with `make test-upgrades UPGRADES=latest` in a "
            "checkout of trl_ces.",
            stacklevel=3,
        )
