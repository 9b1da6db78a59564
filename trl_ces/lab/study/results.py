"""Finished runs as rows of `results.csv` and `curves.csv`, their tables and their picture."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError
from ...support.files import write_text
from ...support.reward_names import accuracy_reward_index, reward_name
from ...train.curves import Curve, plot_curves, read_curves
from ...train.lookup import find_reward_functions
from .cells import slug
from .comparison import MEASURES, comparison
from .folder import EVALUATION, TRAINING, read_json

if TYPE_CHECKING:
    from .cells import Cell, Study

RESULTS, CURVES, COMPARISON = "results.csv", "curves.csv", "comparison.md"
POINT = dict(zip(MEASURES, ("accuracy", "length", "entropy"), strict=True))  # column of curves.csv -> key of a curve
# Without `evaluation`, a run's measures are means over this last part of its training log.
LAST_PART = 0.1


class Results:
    """The finished runs of a study; a run that yields no row is left out."""

    def __init__(self, study: Study):
        self.study = study
        self._rows: dict[str, dict[str, Any]] = {}  # by the cells' names
        self._curves: dict[str, Curve] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, cell: Cell) -> dict[str, Any]:
        """Add a finished run; returns its row of `results.csv`."""
        curve = read_curves(cell.folder, accuracy_reward_name(cell)) if cell.trained else None
        row = make_row(cell, curve, self.study.evaluation is not None)
        if curve is not None:
            self._curves[cell.name] = curve
        self._rows[cell.name] = row
        return row

    def rows(self) -> list[dict[str, Any]]:
        """The rows in the study's order."""
        return [self._rows[cell.name] for cell in self.study.cells if cell.name in self._rows]

    def write_tables(self) -> None:
        """Write `results.csv` and `comparison.md`."""
        from pandas import DataFrame

        write_results(self.study.output_dir / RESULTS, self.rows())
        text = comparison(DataFrame(self.rows()), self.study.baseline)
        write_text(self.study.output_dir / COMPARISON, text)

    def write(self) -> list[str]:
        """Write tables, curves and a picture of the curves for each variant; returns the names of the files."""
        self.write_tables()
        cells = [cell for cell in self.study.cells if cell.name in self._curves]
        curves = {(cell.variant, cell.method, cell.seed): self._curves[cell.name] for cell in cells}
        write_curves(self.study.output_dir / CURVES, curves)
        files = [RESULTS, CURVES, COMPARISON]
        pictures: dict[str, dict[str, list[Curve]]] = {}  # variant -> method -> curves of its seeds
        for (variant, method, _), curve in curves.items():
            pictures.setdefault(variant, {}).setdefault(method, []).append(curve)
        for variant, shown in pictures.items():
            files.append(f"curves{'_' if variant else ''}{slug(variant)}.png")
            plot_curves(shown, self.study.output_dir / files[-1])
        return files


def accuracy_reward_name(cell: Cell) -> str:
    """Name of the reward function whose mean is the accuracy, chosen as the trainer does."""
    recipe = cell.checked_recipe
    names = [reward_name(function) for function in find_reward_functions(recipe)]
    try:
        return names[accuracy_reward_index(names, recipe.setting("ces_accuracy_reward"))]
    except ValueError as error:
        raise UserError(str(error)) from None


def make_row(cell: Cell, curve: Curve | None, evaluated: bool = True) -> dict[str, Any]:
    """The row of a finished cell in `results.csv`; measured by its curve unless the study has an evaluation."""
    training = read_json(cell.folder / TRAINING) or {}
    evaluation = read_json(cell.folder / EVALUATION) if evaluated else None
    logged = final_training(curve) if curve is not None else {}
    row: dict[str, Any] = {"variant": cell.variant, "method": cell.method, "seed": cell.seed}
    if evaluation is not None:
        row |= {"measured_on": " + ".join(evaluation["benchmarks"]), **average(evaluation["benchmarks"])}
        for benchmark, values in evaluation["benchmarks"].items():
            row |= {f"{benchmark}/{name}": value for name, value in values.items()}
    else:
        row |= {"measured_on": f"last {LAST_PART:.0%} of the training log", **logged}
    row |= {f"train/{name}": value for name, value in logged.items()}
    row |= {f"train/{name}": training.get(name) for name in ("seconds", "attempts", "steps", "tokens")}
    row["settings"] = json.dumps(cell.recipe, sort_keys=True)
    row["packages"] = json.dumps(training.get("packages") or (evaluation or {}).get("packages"), sort_keys=True)
    return row


def average(benchmarks: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The unweighted mean over benchmarks, as in the last line of the paper's Table 1."""
    shared = [name for name in (*MEASURES, "area") if all(name in values for values in benchmarks.values())]
    return {name: sum(values[name] for values in benchmarks.values()) / len(benchmarks) for name in shared}


def final_training(curve: Curve) -> dict[str, float]:
    """Means over the last `LAST_PART` of the logged points, at least one; NaN if no accuracy was logged."""
    if not curve["step"]:
        return dict.fromkeys(POINT, math.nan)
    count = max(1, round(LAST_PART * len(curve["step"])))
    return {name: sum(curve[key][-count:]) / count for name, key in POINT.items()}


def write_results(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write `results.csv`: one row per run, with an empty field where a run has no value."""
    from pandas import DataFrame

    table = DataFrame(rows, dtype=object)  # as `float`, a column of whole numbers with a gap would print 160.0
    last = ["settings", "packages"]
    table = table[[*table.columns.drop(last), *last]]
    write_text(file, table.to_csv(index=False, lineterminator="\r\n"))


def write_curves(file: Path, curves: Mapping[tuple[str, str, int], Curve]) -> None:
    """Write `curves.csv`: one row per logged point of each run (variant, method, seed)."""
    from pandas import DataFrame

    rows = [
        (*run, *point)
        for run, curve in curves.items()
        for point in zip(curve["step"], *(curve[key] for key in POINT.values()), strict=True)
    ]
    table = DataFrame(rows, columns=["variant", "method", "seed", "step", *POINT])
    write_text(file, table.to_csv(index=False, lineterminator="\r\n"))
