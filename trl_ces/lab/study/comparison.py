"""Write `results.csv`, `curves.csv` and means over seeds in the layout of the paper's Tables 1 and 2.

A table is a list of rows, and a row is a list of strings. The first row is the header.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...methods.group_reward import accuracy_reward_index, reward_name
from ...support.errors import UserError
from ...support.files import write_text
from ...train.curves import Curve, plot_curves, read_curves
from ...train.lookup import find_reward_functions
from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.tables import markdown
from .cells import slug
from .folder import EVALUATION, TRAINING, read_json

if TYPE_CHECKING:
    from pandas import DataFrame

    from .cells import Cell, Study

# Measure -> (heading, factor from the column's unit to the table's unit, decimals).
MEASURES = {
    "accuracy": ("Acc ↑, %", 100.0, 1),
    "length_tokens": ("Len ↓, tokens", 1.0, 1),
    "entropy_bits": ("Entropy, bits", 1.0, 3),
}
NOTE = (
    "Means over seeds ± half-width of the 95 % interval (Student's t). Differences from {} are paired by seed. The "
    "interval is over training runs; all models are measured on the same problems."
)
VARIANTS_NOTE = (
    "Each variant counts once, with the mean over its seeds. The interval is over variants; it applies to other "
    "variants only if the variants of this study were drawn at random."
)
RESULTS, CURVES, COMPARISON = "results.csv", "curves.csv", "comparison.md"
# Column of curves.csv -> key of a curve.
CURVE_KEYS = dict(zip(MEASURES, ("accuracy", "length", "entropy"), strict=True))
# Without an `evaluation`, a run's measures are means over this final fraction of its training log.
FINAL_FRACTION = 0.1


class Results:
    """Results of a study's finished runs."""

    def __init__(self, study: Study):
        self.study = study
        self._rows: dict[str, dict[str, Any]] = {}  # name of a cell -> row
        self._curves: dict[str, Curve] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, cell: Cell) -> dict[str, Any]:
        """Add a finished run, and return its row of `results.csv`."""
        curve = read_curves(cell.folder, accuracy_reward_name(cell)) if cell.has_training else None
        row = make_row(cell, curve, self.study.evaluation is not None)
        if curve is not None:
            self._curves[cell.name] = curve
        self._rows[cell.name] = row
        return row

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows in the order of the study's cells."""
        return [self._rows[cell.name] for cell in self.study.cells if cell.name in self._rows]

    def write_tables(self) -> None:
        """Write `results.csv` and `comparison.md`."""
        from pandas import DataFrame

        write_results(self.study.output_dir / RESULTS, self.rows())
        text = comparison(DataFrame(self.rows()), self.study.baseline)
        write_text(self.study.output_dir / COMPARISON, text)

    def write(self) -> list[str]:
        """Write the tables, the curves and a plot of each variant's curves; return the names of the files."""
        self.write_tables()
        cells = [cell for cell in self.study.cells if cell.name in self._curves]
        curves = {(cell.variant, cell.method, cell.seed): self._curves[cell.name] for cell in cells}
        write_curves(self.study.output_dir / CURVES, curves)
        files = [RESULTS, CURVES, COMPARISON]
        curves_by_variant: dict[str, dict[str, list[Curve]]] = {}  # variant -> method -> curves of its seeds
        for (variant, method, _), curve in curves.items():
            curves_by_variant.setdefault(variant, {}).setdefault(method, []).append(curve)
        for variant, curves_by_method in curves_by_variant.items():
            files.append(f"curves{'_' if variant else ''}{slug(variant)}.png")
            plot_curves(curves_by_method, self.study.output_dir / files[-1])
        return files


def accuracy_reward_name(cell: Cell) -> str:
    """Return the name of the reward function whose mean is the accuracy, chosen as in the trainer."""
    recipe = cell.checked_recipe
    names = [reward_name(function) for function in find_reward_functions(recipe)]
    try:
        return names[accuracy_reward_index(names, recipe.setting("ces_accuracy_reward"))]
    except ValueError as error:
        raise UserError(str(error)) from None


def make_row(cell: Cell, curve: Curve | None, evaluated: bool = True) -> dict[str, Any]:
    """Build a finished cell's row of `results.csv`; without an evaluation, measures come from the training curve."""
    training = read_json(cell.folder / TRAINING) or {}
    evaluation = read_json(cell.folder / EVALUATION) if evaluated else None
    training_means = final_means(curve) if curve is not None else {}
    row: dict[str, Any] = {"variant": cell.variant, "method": cell.method, "seed": cell.seed}
    if evaluation is not None:
        row |= {"measured_on": " + ".join(evaluation["benchmarks"]), **average(evaluation["benchmarks"])}
        for benchmark, values in evaluation["benchmarks"].items():
            row |= {f"{benchmark}/{name}": value for name, value in values.items()}
    else:
        row |= {"measured_on": f"last {FINAL_FRACTION:.0%} of the training log", **training_means}
    row |= {f"train/{name}": value for name, value in training_means.items()}
    row |= {f"train/{name}": training.get(name) for name in ("seconds", "attempts", "steps", "tokens")}
    row["settings"] = json.dumps(cell.recipe, sort_keys=True)
    row["packages"] = json.dumps(training.get("packages") or (evaluation or {}).get("packages"), sort_keys=True)
    return row


def average(benchmarks: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Compute the unweighted mean over benchmarks, as in the last row of the paper's Table 1."""
    shared = [name for name in (*MEASURES, "area") if all(name in values for values in benchmarks.values())]
    return {name: sum(values[name] for values in benchmarks.values()) / len(benchmarks) for name in shared}


def final_means(curve: Curve) -> dict[str, float]:
    """Average the last `FINAL_FRACTION` of the logged points (at least one); NaN if no accuracy was logged."""
    if not curve["step"]:
        return dict.fromkeys(CURVE_KEYS, math.nan)
    count = max(1, round(FINAL_FRACTION * len(curve["step"])))
    return {name: sum(curve[key][-count:]) / count for name, key in CURVE_KEYS.items()}


def write_results(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write `results.csv`: one row per run, with empty fields for missing values."""
    from pandas import DataFrame

    table = DataFrame(rows, dtype=object)  # float columns with missing values would contain 160.0 instead of 160
    last = ["settings", "packages"]
    table = table[[*table.columns.drop(last), *last]]
    write_text(file, table.to_csv(index=False, lineterminator="\r\n"))


def write_curves(file: Path, curves: Mapping[tuple[str, str, int], Curve]) -> None:
    """Write `curves.csv`: one row per logged point of each run (variant, method, seed)."""
    from pandas import DataFrame

    rows = [
        (*run, *point)
        for run, curve in curves.items()
        for point in zip(curve["step"], *(curve[key] for key in CURVE_KEYS.values()), strict=True)
    ]
    table = DataFrame(rows, columns=["variant", "method", "seed", "step", *CURVE_KEYS])
    write_text(file, table.to_csv(index=False, lineterminator="\r\n"))


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half-width of its 95 % interval (`nan` for a single seed)."""

    mean: float
    half_width: float

    def text(self, factor: float, decimals: int, signed: bool = False) -> str:
        """Format as `96.3 ± 0.5` in the table's unit."""
        mean = f"{self.mean * factor:{'+' if signed else ''}.{decimals}f}"
        return mean if math.isnan(self.half_width) else f"{mean} ± {self.half_width * factor:.{decimals}f}"


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the mean of independent runs and its 95 % interval by Student's t with n - 1 degrees of freedom."""
    from scipy import stats

    count = len(values)
    half_width = stats.t.ppf(0.975, count - 1) * stats.sem(values) if count > 1 else math.nan
    return Estimate(math.fsum(values) / count, float(half_width))


def paired_difference(runs: DataFrame, baseline: DataFrame, measure: str) -> Estimate | None:
    """
    Estimate the mean difference from the baseline runs with the same seeds, which use the same initial model and
    problems; `None` if there are no such runs. A single untrained model is compared with all baseline runs.
    """
    if len(runs) == 1 and "train/steps" in runs and runs["train/steps"].isna().all():
        runs = runs.loc[runs.index.repeat(len(baseline))].assign(seed=baseline["seed"].to_numpy())
    difference = runs.set_index("seed")[measure] - baseline.set_index("seed")[measure]
    return estimate(difference.dropna()) if difference.notna().any() else None


def method_table(runs: DataFrame, baseline: str) -> list[list[str]]:
    """Build a table in the layout of Table 2: one row per method with measures and differences from the baseline."""
    measures = [name for name in MEASURES if name in runs and runs[name].notna().any()]
    lines = [["Method", "Runs", *(cell for name in measures for cell in (MEASURES[name][0], "Δ"))]]
    baseline_runs = runs[runs["method"] == baseline]
    for method, group in runs.groupby("method", sort=False):
        line = [method, str(len(group))]
        for name in measures:
            difference = None if method == baseline else paired_difference(group, baseline_runs, name)
            line += [_mean(group, name), difference.text(*MEASURES[name][1:], signed=True) if difference else ""]
        lines.append(line)
    return lines


def benchmark_table(runs: DataFrame) -> list[list[str]]:
    """Build a table in the layout of Table 1: accuracy and length by benchmark and method; empty for one benchmark."""
    names = _benchmarks(runs)
    if not names:
        return []
    methods = list(runs.groupby("method", sort=False))
    lines = [["Dataset", *(f"{method} {measure}" for method, _ in methods for measure in ("Acc", "Len"))]]
    for title, prefix in [*((name, f"{name}/") for name in names), ("Average", "")]:
        cells = [_mean(group, measure, prefix) for _, group in methods for measure in ("accuracy", "length_tokens")]
        lines.append([BENCHMARKS[title].title if title in BENCHMARKS else title, *cells])
    return lines


def variants_table(runs: DataFrame, baseline: str) -> list[list[str]]:
    """Average the differences from the baseline over variants, by method and benchmark; empty for a single variant."""
    variants = [group.groupby("method") for _, group in runs.groupby("variant", sort=False)]
    if len(variants) < 2:
        return []
    prefixes = [*((name, f"{name}/") for name in _benchmarks(runs)), ("Average", "")]
    lines = [["Method", "Dataset", "Δ Acc", "Acc higher in", "Δ Len", "Len lower in"]]
    for method in runs["method"].unique():
        pairs = [
            (methods.get_group(method), methods.get_group(baseline))
            for methods in variants
            if {method, baseline} <= methods.groups.keys()
        ]
        for title, prefix in prefixes if method != baseline else ():
            line = [method, title]
            for measure, sign in (("accuracy", 1), ("length_tokens", -1)):
                differences = [paired_difference(*pair, prefix + measure) for pair in pairs]
                means = [difference.mean for difference in differences if difference]
                better = sum(round(sign * mean, 12) > 0 for mean in means)  # equal accuracies can differ by 1e-16
                pooled = estimate(means).text(*MEASURES[measure][1:], signed=True) if means else ""
                line += [pooled, f"{better} of {len(means)}"]
            lines.append(line)
    return lines


def comparison(runs: DataFrame, baseline: str) -> str:
    """Render all tables as Markdown: first the tables of each variant, then the table over all variants."""
    parts = [NOTE.format(baseline), f"Measured on: {'; '.join(sorted(runs['measured_on'].unique()))}."]
    for variant, group in runs.groupby("variant", sort=False):
        parts += [f"## {variant}"] if variant else []
        tables = (method_table(group, baseline), benchmark_table(group))
        parts += [markdown(table[0], table[1:]) for table in tables if table]
    if table := variants_table(runs, baseline):
        parts += ["## All variants", VARIANTS_NOTE, markdown(table[0], table[1:])]
    return "\n\n".join(parts) + "\n"


def _benchmarks(runs: DataFrame) -> list[str]:
    """Return the names of the benchmarks, or an empty list for a single benchmark."""
    columns = [name for name in runs if name.endswith("/accuracy") and name != "train/accuracy"]
    names = [name.removesuffix("/accuracy") for name in columns if runs[name].notna().any()]
    return names if len(names) > 1 else []


def _mean(runs: DataFrame, measure: str, prefix: str = "") -> str:
    return estimate(runs[prefix + measure]).text(*MEASURES[measure][1:])
