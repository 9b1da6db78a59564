"""Means over seeds with their uncertainty, in the layout of the paper's Tables 1 and 2.

Tables are lists of lines, lines are lists of text cells, and the first line is the header. A run is a row of
`results.csv`, see [`read_results`].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ..evaluation.benchmarks import BENCHMARKS

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# Measure -> heading, factor from the column's unit to the table's, decimals.
SHOWN = {
    "accuracy": ("Acc ↑, %", 100.0, 1),
    "length_tokens": ("Len ↓, tokens", 1.0, 1),
    "entropy_bits": ("Entropy, bits", 1.0, 3),
}
MEASURES = tuple(SHOWN)
VARIANTS_NOTE = (
    "A variant counts once, by the mean over its seeds. The interval is over variants: it says what to expect of "
    "another only where they were drawn at random."
)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half width of its 95 % interval (`nan` for fewer than two)."""

    mean: float
    half_width: float
    count: int

    @property
    def sign(self) -> int:
        """That of the mean, 0 for a tie: differences of shares are off by 1e-16."""
        rounded = round(self.mean, 12)
        return (rounded > 0) - (rounded < 0)

    @property
    def arms(self) -> tuple[float, float]:
        """From the mean down and up to the interval's ends."""
        return self.half_width, self.half_width

    def text(self, factor: float, decimals: int, signed: bool = False) -> str:
        """`96.3 ± 0.5` in the table's unit."""
        mean = f"{self.mean * factor:{'+' if signed else ''}.{decimals}f}"
        return mean if math.isnan(self.half_width) else f"{mean} ± {self.half_width * factor:.{decimals}f}"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and 95 % interval of independent runs, by Student's t with n - 1 degrees of freedom."""
    from scipy import stats

    count = len(values)
    half_width = _t_quantile(count - 1) * stats.sem(values) if count > 1 else math.nan
    return Estimate(math.fsum(values) / count, float(half_width), count)


@cache  # scipy takes longer for it than for all the rest
def _t_quantile(degrees: int) -> float:
    from scipy import stats

    return float(stats.t.ppf(0.975, degrees))


def paired_difference(runs: DataFrame, baseline: DataFrame, measure: str) -> Estimate | None:
    """Mean and 95 % interval of (run - the baseline's run of the same seed); `None` if no seed is in both.

    Runs of one seed share model, problems and order, so their difference varies less than either.
    """
    runs = at_each_seed(runs, baseline["seed"])
    difference = runs.set_index("seed")[measure] - baseline.set_index("seed")[measure]
    return estimate(difference.dropna()) if difference.notna().any() else None


def at_each_seed(runs: DataFrame, seeds: Series) -> DataFrame:
    """A method's runs; the model before training that all seeds share is measured once, and stands for each."""
    once = len(runs) == 1 and "train/steps" in runs and runs["train/steps"].isna().all()
    return runs.loc[runs.index.repeat(len(seeds))].assign(seed=seeds.to_numpy()) if once else runs


def method_table(runs: DataFrame, baseline: str) -> list[list[str]]:
    """The layout of Table 2: a method a line, beside each measure its difference to the baseline."""
    measures = [name for name in MEASURES if name in runs and runs[name].notna().any()]
    lines = [["Method", "Runs", *(cell for name in measures for cell in (SHOWN[name][0], "Δ"))]]
    of_baseline = _of(runs, baseline)
    for method, own in runs.groupby("method", sort=False):
        line = [method, str(len(own))]
        for name in measures:
            difference = None if method == baseline else paired_difference(own, of_baseline, name)
            line += [_mean(own, name), difference.text(*SHOWN[name][1:], signed=True) if difference else ""]
        lines.append(line)
    return lines


def _benchmarks(runs: DataFrame) -> list[str]:
    """The names of the benchmarks; none for a single one."""
    columns = [name for name in runs if name.endswith("/accuracy") and name != "train/accuracy"]
    names = [name.removesuffix("/accuracy") for name in columns if runs[name].notna().any()]
    return names if len(names) > 1 else []


def benchmark_table(runs: DataFrame) -> list[list[str]]:
    """The layout of Table 1: a benchmark a line, each method's accuracy and length; empty for a single benchmark."""
    names = _benchmarks(runs)
    if not names:
        return []
    methods = list(runs.groupby("method", sort=False))
    lines = [["Dataset", *(f"{method} {measure}" for method, _ in methods for measure in ("Acc", "Len"))]]
    for title, prefix in [*((name, f"{name}/") for name in names), ("Average", "")]:
        cells = [_mean(own, measure, prefix) for _, own in methods for measure in ("accuracy", "length_tokens")]
        lines.append([BENCHMARKS[title].title if title in BENCHMARKS else title, *cells])
    return lines


def variants_table(table: DataFrame, baseline: str) -> list[list[str]]:
    """Differences to the baseline over all variants, a method and a benchmark a line; empty for fewer than two.

    `VARIANTS_NOTE` says what its intervals mean.
    """
    variants = [runs for _, runs in table.groupby("variant", sort=False)]
    if len(variants) < 2:
        return []
    places = [*((name, f"{name}/") for name in _benchmarks(table)), ("Average", "")]
    lines = [["Method", "Dataset", "Δ Acc", "Acc higher in", "Δ Len", "Len lower in"]]
    for method in table["method"].unique():
        for title, prefix in places if method != baseline else ():
            line = [method, title]
            for measure, wanted in (("accuracy", 1), ("length_tokens", -1)):
                pairs = [(_of(runs, method), _of(runs, baseline)) for runs in variants]
                found = [difference for pair in pairs if (difference := paired_difference(*pair, prefix + measure))]
                means = [difference.mean for difference in found]
                better = sum(difference.sign == wanted for difference in found)
                pooled = estimate(means).text(*SHOWN[measure][1:], signed=True) if means else ""
                line += [pooled, f"{better} of {len(means)}"]
            lines.append(line)
    return lines


def _of(runs: DataFrame, method: str) -> DataFrame:
    return runs[runs["method"] == method]


def _mean(runs: DataFrame, measure: str, prefix: str = "") -> str:
    return estimate(runs[prefix + measure]).text(*SHOWN[measure][1:])
