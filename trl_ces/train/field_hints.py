"""The types of a recipe's keys, read from the source of the classes that own them.

Importing TRL takes three seconds on a free machine and ten on a busy one; a typo should be told sooner. The classes
say the same once they are loaded: tests/train/test_broken_recipes.py compares.
"""

import ast
import builtins
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

# Package, file, class, its parent.
CLASSES: tuple[tuple[str, str, str, list[str]], ...] = (
    ("trl_ces", "config.py", "CESConfig", ["GRPOConfig"]),
    ("trl", "trainer/grpo_config.py", "GRPOConfig", ["_BaseConfig"]),
    ("trl", "trainer/base_config.py", "_BaseConfig", ["TrainingArguments"]),
    ("transformers", "training_args.py", "TrainingArguments", []),
    ("trl", "trainer/model_config.py", "ModelConfig", []),
)


@cache
def field_hints() -> dict[str, Any] | None:
    """
    The fields that a recipe may set in [`CESConfig`] and [`~trl.ModelConfig`], without importing either.

    Returns:
        `dict[str, Any]`, *optional*: Name -> type, `Any` where the type itself would have to be imported. `None` where
        the source is not there, or a class has another parent than with the TRL that this was written for.
    """
    hints: dict[str, Any] = {}
    for package, file, name, parents in CLASSES:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            return None
        path = Path(spec.origin).parent / file
        if not path.is_file():
            return None
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
        if len(found) != 1 or [ast.unparse(base) for base in found[0].bases] != parents:
            return None
        for node in found[0].body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_argument(node):
                hints.setdefault(node.target.id, _type(node.annotation))
    return hints


def _is_argument(node: ast.AnnAssign) -> bool:
    options = node.value.keywords if isinstance(node.value, ast.Call) else []
    return not any(option.arg == "init" and ast.unparse(option.value) == "False" for option in options)


def _type(annotation: ast.expr) -> Any:
    """The type that an annotation of built-in types means, `Any` for another one."""
    try:
        return eval(ast.unparse(annotation), {**vars(builtins), "Any": Any, "Literal": Literal})
    except NameError:
        return Any
