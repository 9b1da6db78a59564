"""Finished runs: `results.csv` and `curves.csv`, written and read here, and the tables of their comparison."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError
from ...support.files import write_text
from ...support.reward_names import accuracy_reward_index, reward_name
from ...support.tables import Table
from ...train.curves import Curve, plot_curves, read_curves
from ...train.lookup import find_reward_functions
from .cells import slug
from .comparison import MEASURES, VARIANTS_NOTE, benchmark_table, method_table, variants_table
from .folder import EVALUATION, TRAINING, read_json
from .front import AREA, front_tables, has_lines, middle_of_lines, read_settings
from .pictures import plot_front, plot_variants

if TYPE_CHECKING:
    from pandas import DataFrame

    from .cells import Cell, Study

RESULTS, CURVES, COMPARISON = "results.csv", "curves.csv", "comparison.md"
TEXTS = ("variant", "method", "line", "measured_on", "settings", "packages")
POINT = dict(zip(MEASURES, ("accuracy", "length", "entropy"), strict=True))  # column of curves.csv -> key of a curve
# Without `evaluation` a run is judged by the mean over this last part of its training log.
LAST_PART = 0.1
NOTE = (
    "Means over seeds, ± half the 95 % interval (Student's t). Differences are paired by seed to {}. The interval is "
    "over training runs; all are measured on the same problems."
)


class Results:
    """The finished runs of a study, as rows and curves."""

    def __init__(self, study: Study):
        self.study = study
        # By the cells' names. A run that yields no row is in neither.
        self._rows: dict[str, dict[str, Any]] = {}
        self._curves: dict[str, Curve] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, cell: Cell) -> dict[str, Any]:
        """Adds a finished run; returns its row of `results.csv`."""
        curve = read_curves(cell.folder, accuracy_reward_name(cell)) if cell.trained else None
        row = make_row(cell, curve, self.study.evaluation is not None)
        if curve is not None:
            self._curves[cell.name] = curve
        self._rows[cell.name] = row
        return row

    def rows(self) -> list[dict[str, Any]]:
        """The rows, in the study's order."""
        return [self._rows[cell.name] for cell in self.study.cells if cell.name in self._rows]

    def write_tables(self) -> DataFrame:
        """Writes `results.csv` and `comparison.md`; returns their rows."""
        from pandas import DataFrame

        table = DataFrame(self.rows())
        write_results(self.study.output_dir / RESULTS, self.rows())
        write_text(self.study.output_dir / COMPARISON, comparison(table, self.study.baseline))
        return table

    def write(self) -> list[str]:
        """Writes tables, curves, pictures, and the front where methods have several strengths."""
        study, table = self.study, self.write_tables()
        cells = [cell for cell in study.cells if cell.name in self._curves]
        curves = {(cell.variant, cell.method, cell.seed): self._curves[cell.name] for cell in cells}
        write_curves(study.output_dir / CURVES, curves)
        files = [RESULTS, CURVES, COMPARISON]
        trained_first = sorted(study.cells, key=lambda cell: not cell.trained)  # styles as in a report
        lines = list(dict.fromkeys(cell.line or cell.method for cell in trained_first))
        drawn = middle_of_lines({cell.method: cell.line or cell.method for cell in study.cells})

        def picture(kind: str, variant: str) -> Path:
            files.append(f"{kind}{'_' if variant else ''}{slug(variant)}.png")
            return study.output_dir / files[-1]

        if has_lines(table):
            for variant, runs in table.groupby("variant", sort=False):
                plot_front(read_settings(runs), lines, variant, picture("front", variant))
        if len(study.variants) > 1 and len(self) == len(study.cells):
            plot_variants(table, drawn, picture("variants", ""))
        for variant in study.variants:
            shown: dict[str, list[Curve]] = {}
            for (of, method, _), curve in curves.items():
                if of == variant and method in drawn:
                    shown.setdefault(drawn[method], []).append(curve)
            if shown:
                plot_curves(shown, picture("curves", variant))
        return files


def variant_tables(rows: DataFrame, baseline: str) -> Iterator[tuple[str, Table]]:
    """Of each variant the tables that its runs can fill; of several, last, the differences over all of them."""
    for variant, runs in rows.groupby("variant", sort=False):
        filled = (
            (f"Methods, measured on {measured_on(runs)}", method_table(runs, baseline)),
            ("By benchmark", benchmark_table(runs)),
        )
        for title, lines in filled:
            if lines:
                yield variant, Table(title, lines[0], lines[1:], NOTE.format(baseline))
        for table in front_tables(read_settings(runs)) if has_lines(runs) else ():
            yield variant, table
    if lines := variants_table(rows, baseline):
        yield "All variants", Table("Differences over all variants", lines[0], lines[1:], VARIANTS_NOTE)


def measured_on(runs: DataFrame) -> str:
    return "; ".join(sorted(runs["measured_on"].unique()))


def comparison(table: DataFrame, baseline: str) -> str:
    parts = [NOTE.format(baseline), f"Measured on: {measured_on(table)}."]
    for variant, tables in groupby(variant_tables(table, baseline), key=lambda entry: entry[0]):
        parts += [f"## {variant}"] if variant else []
        for _, shown in tables:
            parts += [shown.note] if shown.note and shown.note not in parts else []
            parts.append(shown.markdown())
    return "\n\n".join(parts) + "\n"


def accuracy_reward_name(cell: Cell) -> str:
    """Name of the reward function whose mean is the accuracy, by the trainer's own rule."""
    recipe = cell.checked_recipe
    names = [reward_name(func) for func in find_reward_functions(recipe)]
    try:
        return names[accuracy_reward_index(names, recipe.setting("ces_accuracy_reward"))]
    except ValueError as error:
        raise UserError(str(error)) from None


def make_row(cell: Cell, curve: Curve | None, evaluated: bool = True) -> dict[str, Any]:
    """The row of a finished cell in `results.csv`; it is judged by its curve unless the study has an evaluation."""
    training = read_json(cell.folder / TRAINING) or {}
    measured = read_json(cell.folder / EVALUATION) if evaluated else None
    logged = final_training(curve) if curve is not None else {}
    row: dict[str, Any] = {"variant": cell.variant, "method": cell.method, "seed": cell.seed}
    row |= {"line": cell.line} if cell.line else {}
    if measured is not None:
        row |= {"measured_on": " + ".join(measured["benchmarks"]), **average(measured["benchmarks"])}
        for benchmark, values in measured["benchmarks"].items():
            row |= {f"{benchmark}/{name}": value for name, value in values.items()}
    else:
        row |= {"measured_on": f"last {LAST_PART:.0%} of the training log", **logged}
    row |= {f"train/{name}": value for name, value in logged.items()}
    row |= {f"train/{name}": training.get(name) for name in ("seconds", "attempts", "steps", "tokens")}
    row["settings"] = json.dumps(cell.recipe, sort_keys=True)
    row["packages"] = json.dumps(training.get("packages") or (measured or {}).get("packages"), sort_keys=True)
    return row


def average(benchmarks: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The unweighted mean over benchmarks, as in the last line of the paper's Table 1."""
    shared = [name for name in (*MEASURES, AREA) if all(name in values for values in benchmarks.values())]
    return {name: sum(values[name] for values in benchmarks.values()) / len(benchmarks) for name in shared}


def final_training(curve: Curve) -> dict[str, float]:
    """Means over the last `LAST_PART` of the logged points, at least one; NaN if no accuracy was logged."""
    if not curve["step"]:
        return dict.fromkeys(POINT, math.nan)
    count = max(1, round(LAST_PART * len(curve["step"])))
    return {name: sum(curve[key][-count:]) / count for name, key in POINT.items()}


def write_results(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes `results.csv`: a row for each run; an empty field where a run has no value."""
    from pandas import DataFrame

    table = DataFrame(rows, dtype=object)  # as `float`, a column of whole numbers with a gap would print 160.0
    last = [name for name in ("settings", "packages") if name in table]
    table = table[[*table.columns.drop(last), *last]]
    write_text(file, table.to_csv(index=False, lineterminator="\r\n"))


def read_results(file: Path) -> DataFrame:
    """`results.csv` with a row for each run; numbers are float, except `seed`, and NaN where a run has no value."""
    from pandas.api.types import is_numeric_dtype

    table = _read_csv(file, ("method", "seed", "measured_on", "settings", "accuracy", "length_tokens"))
    wrong = "is not what `trl-ces study` writes"
    for name in ("method", "seed", "measured_on", "settings"):
        if table[name].isna().any():
            raise UserError(f"{file} {wrong}: a row has no `{name}`.")
    for name in ("seed", "accuracy", "length_tokens"):
        if not is_numeric_dtype(table[name]):
            raise UserError(f"{file} {wrong}: `{name}` holds what is no number.")
    twice = table[table.duplicated(["variant", "method", "seed"])]
    if len(twice):
        raise UserError(
            f"{file} {wrong}: {twice['method'].iloc[0]}, seed {twice['seed'].iloc[0]}, stands there twice."
        )
    return table


def write_curves(file: Path, curves: Mapping[tuple[str, str, int], Curve]) -> None:
    """Writes `curves.csv`: a row for each logged point of each run (variant, method, seed)."""
    from pandas import DataFrame, concat

    place = ["variant", "method", "seed"]
    parts = [DataFrame(curve).assign(**dict(zip(place, run, strict=True))) for run, curve in curves.items()]
    table = concat(parts) if parts else DataFrame(columns=[*place, "step", *POINT.values()])
    table = table[[*place, "step", *POINT.values()]].set_axis([*place, "step", *MEASURES], axis="columns")
    write_text(file, table.to_csv(index=False, lineterminator="\r\n"))


def read_curve_table(file: Path) -> dict[tuple[str, str, int], Curve]:
    """`curves.csv` as (variant, method, seed) -> curve."""
    table = _read_csv(file, ("method", "seed", "step", *MEASURES)).rename(columns=POINT)
    runs = table.groupby(["variant", "method", "seed"], sort=False)
    return {run: points[["step", *POINT.values()]].to_dict("list") for run, points in runs}


def _read_csv(file: Path, columns: Sequence[str]) -> DataFrame:
    from pandas import read_csv

    # Only an empty field is missing: "None" may be a method. round_trip: to the last bit.
    options: dict[str, Any] = {"keep_default_na": False, "na_values": ["", "nan"], "float_precision": "round_trip"}
    try:
        table = read_csv(file, dtype=dict.fromkeys(TEXTS, str), **options)
    except ValueError as error:  # pandas' ParserError and EmptyDataError are ValueErrors
        raise UserError(f"{file} is not what `trl-ces study` writes ({error}).") from None
    missing = [name for name in columns if name not in table]
    if missing:
        raise UserError(f"{file} has no column `{missing[0]}`: it is not what `trl-ces study` writes.")
    return table.assign(variant=table["variant"].fillna("") if "variant" in table else "")
