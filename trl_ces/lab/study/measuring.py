"""Check a study's `evaluation` before the first run, and measure each model in a separate process."""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ...support.environment import environment
from ...support.errors import UserError
from ...support.files import write_json
from ...support.imports import import_path
from ...train.lookup import model_path
from ...train.recipe import RECIPE, Recipe, load_recipe
from .folder import EVALUATION

if TYPE_CHECKING:
    from .cells import Cell


def check_evaluation(settings: dict[str, Any], recipe: Recipe) -> None:
    """
    Raise `UserError` for an evaluation that would fail after training `recipe`.

    If the module of the function `NAME` also defines `check_NAME`, call `check_NAME` with the same keyword arguments.
    """
    function = import_path(settings["function"], "evaluation")
    check = vars(sys.modules[function.__module__]).get(f"check_{function.__name__}", lambda **arguments: None)
    with TemporaryDirectory() as folder:
        file = Path(folder) / RECIPE
        file.write_text(recipe.to_yaml(), encoding="utf-8")
        try:
            inspect.signature(function).bind("model", **_arguments(function, settings, file))
        except TypeError as error:
            raise UserError(f"`evaluation`: {settings['function']} does not accept these settings: {error}.") from None
        arguments = _arguments(check, settings, file)
        if "model_dir" in inspect.signature(check).parameters and recipe.script.model_builder is None:
            arguments["model_dir"] = str(recipe.model.model_name_or_path)
        check(**arguments)


def measuring_command(cell: Cell, settings: dict[str, Any]) -> list[str]:
    """Build the command that measures a cell's model; see [`main`]."""
    state = "trained" if cell.has_training else "untrained"
    return [sys.executable, "-P", "-m", __name__, str(cell.folder), json.dumps(settings), state]


def main(args: list[str]) -> int:
    """Measure a cell's trained model, or the model before training, and write `evaluation.json`.

    Return 2 if the model or a setting is invalid, else 0.
    """
    folder, settings, started = Path(args[0]), json.loads(args[1]), time.monotonic()
    try:
        measure = import_path(settings["function"], "evaluation")
        # Load the recipe only if needed, because importing TRL takes as long as measuring a small model.
        model = str(folder) if args[2] == "trained" else model_path(load_recipe(folder / RECIPE))
        benchmarks = measure(model, **_arguments(measure, settings, folder / RECIPE))
    except UserError as error:
        print(f"trl-ces study: error: {error}", file=sys.stderr)
        return 2
    seconds = round(time.monotonic() - started, 1)
    content = {"settings": settings, "seconds": seconds, "benchmarks": benchmarks, "packages": environment()}
    write_json(folder / EVALUATION, content)
    return 0


def _arguments(function: Callable[..., Any], settings: dict[str, Any], recipe: Path) -> dict[str, Any]:
    """Collect the keyword arguments of an evaluation function; `config` defaults to the recipe of the run."""
    default = {"config": str(recipe)} if "config" in inspect.signature(function).parameters else {}
    return default | {name: value for name, value in settings.items() if name != "function"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
