"""One evaluation of a study: measures a cell's model. Started by `trl-ces study`."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from ..support.environment import environment
from ..support.errors import UserError
from ..support.files import write_json
from ..train.lookup import import_function
from ..train.recipe import RECIPE, load_recipe
from ..train.run import model_path
from .results import check_measured


def main(words: list[str]) -> int:
    """
    Measures, and writes `evaluation.json`.

    Args:
        words (`list[str]`):
            The cell's folder, the study's `evaluation` as JSON, and `trained` or `untrained`.

    Returns:
        `int`: 0, or 2 if the model or the settings are refused.
    """
    folder, settings, state = Path(words[0]), json.loads(words[1]), words[2]
    try:
        evaluate(folder, settings, state == "trained")
    except UserError as error:
        print(f"trl-ces study: error: {error}", file=sys.stderr)
        return 2
    return 0


def evaluate(folder: Path, settings: dict[str, Any], trained: bool) -> None:
    """Measures the model in `folder`, or the one that its recipe starts from.

    Args:
        folder (`Path`):
            The cell's.
        settings (`dict`):
            `function`, the dotted path of what measures, and its keyword arguments. It takes the model's directory and
            returns benchmark -> measure -> value, with `accuracy` in [0, 1], `length_tokens` and, if it knows it,
            `entropy_bits`.
        trained (`bool`):
            Whether to measure the trained model.

    Raises:
        UserError: if the model is refused, or the function returns something else.
    """
    from accelerate import PartialState

    recipe = load_recipe(folder / RECIPE)
    measure = import_function(settings["function"], "evaluation")
    arguments = {name: value for name, value in settings.items() if name != "function"}
    model = str(folder) if trained else model_path(recipe, PartialState(cpu=bool(recipe.training.get("use_cpu"))))
    started = time.monotonic()
    benchmarks = measure(model, **arguments)
    check_measured(benchmarks, settings["function"])
    content = {
        "settings": settings,
        "seconds": round(time.monotonic() - started, 1),
        "benchmarks": benchmarks,
        "packages": environment(),
    }
    write_json(folder / "evaluation.json", content)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code:
        sys.exit(code)
