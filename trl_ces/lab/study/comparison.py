"""Means over seeds with their uncertainty, in the layout of the paper's Tables 1 and 2.

A run is a row of `results.csv`. Tables are lists of lines, lines are lists of cells; the first line is the header.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.tables import markdown

if TYPE_CHECKING:
    from pandas import DataFrame

# Measure -> heading, factor from the column's unit to the table's, decimals.
MEASURES = {
    "accuracy": ("Acc ↑, %", 100.0, 1),
    "length_tokens": ("Len ↓, tokens", 1.0, 1),
    "entropy_bits": ("Entropy, bits", 1.0, 3),
}
NOTE = (
    "Means over seeds, ± half the 95 % interval (Student's t). Differences are paired by seed to {}. The interval is "
    "over training runs; all are measured on the same problems."
)
VARIANTS_NOTE = (
    "Each variant counts once, with the mean over its seeds. The interval is over variants and predicts others "
    "only if these were drawn at random."
)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half width of its 95 % interval (`nan` for fewer than two)."""

    mean: float
    half_width: float

    def text(self, factor: float, decimals: int, signed: bool = False) -> str:
        """`96.3 ± 0.5` in the table's unit."""
        mean = f"{self.mean * factor:{'+' if signed else ''}.{decimals}f}"
        return mean if math.isnan(self.half_width) else f"{mean} ± {self.half_width * factor:.{decimals}f}"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and 95 % interval of independent runs, by Student's t with n - 1 degrees of freedom."""
    from scipy import stats

    count = len(values)
    half_width = stats.t.ppf(0.975, count - 1) * stats.sem(values) if count > 1 else math.nan
    return Estimate(math.fsum(values) / count, float(half_width))


def paired_difference(runs: DataFrame, baseline: DataFrame, measure: str) -> Estimate | None:
    """Mean and 95 % interval of (run - baseline run of the same seed); `None` without a shared seed.

    Runs of one seed share model, problems and order, so their difference varies less than either. A model before
    training that all seeds share is measured once and compared with each seed.
    """
    if len(runs) == 1 and "train/steps" in runs and runs["train/steps"].isna().all():
        runs = runs.loc[runs.index.repeat(len(baseline))].assign(seed=baseline["seed"].to_numpy())
    difference = runs.set_index("seed")[measure] - baseline.set_index("seed")[measure]
    return estimate(difference.dropna()) if difference.notna().any() else None


def method_table(runs: DataFrame, baseline: str) -> list[list[str]]:
    """Layout of Table 2: one method per line, each measure with its difference to the baseline."""
    measures = [name for name in MEASURES if name in runs and runs[name].notna().any()]
    lines = [["Method", "Runs", *(cell for name in measures for cell in (MEASURES[name][0], "Δ"))]]
    baseline_runs = runs[runs["method"] == baseline]
    for method, own in runs.groupby("method", sort=False):
        line = [method, str(len(own))]
        for name in measures:
            difference = None if method == baseline else paired_difference(own, baseline_runs, name)
            line += [_mean(own, name), difference.text(*MEASURES[name][1:], signed=True) if difference else ""]
        lines.append(line)
    return lines


def benchmark_table(runs: DataFrame) -> list[list[str]]:
    """Layout of Table 1: one benchmark per line, each method's accuracy and length; empty for a single benchmark."""
    names = _benchmarks(runs)
    if not names:
        return []
    methods = list(runs.groupby("method", sort=False))
    lines = [["Dataset", *(f"{method} {measure}" for method, _ in methods for measure in ("Acc", "Len"))]]
    for title, prefix in [*((name, f"{name}/") for name in names), ("Average", "")]:
        cells = [_mean(own, measure, prefix) for _, own in methods for measure in ("accuracy", "length_tokens")]
        lines.append([BENCHMARKS[title].title if title in BENCHMARKS else title, *cells])
    return lines


def variants_table(runs: DataFrame, baseline: str) -> list[list[str]]:
    """Differences to the baseline over all variants, one line per method and benchmark; empty for one variant."""
    variants = [own.groupby("method") for _, own in runs.groupby("variant", sort=False)]
    if len(variants) < 2:
        return []
    places = [*((name, f"{name}/") for name in _benchmarks(runs)), ("Average", "")]
    lines = [["Method", "Dataset", "Δ Acc", "Acc higher in", "Δ Len", "Len lower in"]]
    for method in runs["method"].unique():
        pairs = [
            (methods.get_group(method), methods.get_group(baseline))
            for methods in variants
            if {method, baseline} <= methods.groups.keys()
        ]
        for title, prefix in places if method != baseline else ():
            line = [method, title]
            for measure, sign in (("accuracy", 1), ("length_tokens", -1)):
                found = [paired_difference(*pair, prefix + measure) for pair in pairs]
                means = [difference.mean for difference in found if difference]
                better = sum(round(sign * mean, 12) > 0 for mean in means)  # ties of shares are off by 1e-16
                pooled = estimate(means).text(*MEASURES[measure][1:], signed=True) if means else ""
                line += [pooled, f"{better} of {len(means)}"]
            lines.append(line)
    return lines


def comparison(runs: DataFrame, baseline: str) -> str:
    """All tables as Markdown, variant by variant and then over all variants."""
    parts = [NOTE.format(baseline), f"Measured on: {'; '.join(sorted(runs['measured_on'].unique()))}."]
    for variant, own in runs.groupby("variant", sort=False):
        parts += [f"## {variant}"] if variant else []
        tables = (method_table(own, baseline), benchmark_table(own))
        parts += [markdown(table[0], table[1:]) for table in tables if table]
    if table := variants_table(runs, baseline):
        parts += ["## All variants", VARIANTS_NOTE, markdown(table[0], table[1:])]
    return "\n\n".join(parts) + "\n"


def _benchmarks(runs: DataFrame) -> list[str]:
    """Names of the benchmarks; empty for a single one."""
    columns = [name for name in runs if name.endswith("/accuracy") and name != "train/accuracy"]
    names = [name.removesuffix("/accuracy") for name in columns if runs[name].notna().any()]
    return names if len(names) > 1 else []


def _mean(runs: DataFrame, measure: str, prefix: str = "") -> str:
    return estimate(runs[prefix + measure]).text(*MEASURES[measure][1:])
