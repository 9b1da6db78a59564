"""Rows of runs as means with uncertainty, in the layout of the paper's Tables 1, 2 and 4."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..support.tables import markdown
from ..train.curves import PANELS
from .cells import Study
from .results import MEASURES

Row = dict[str, Any]
# Measure -> heading, factor from the row's unit to the table's, decimals.
SHOWN = {
    "accuracy": ("Acc ↑, %", 100.0, 1),
    "length_tokens": ("Len ↓, tokens", 1.0, 1),
    "entropy_bits": ("Entropy, bits", 1.0, 3),
}
# Field -> CESConfig's default.
TAU_AND_BETA = {"ces_tau": 0.01, "ces_beta_correct": 0.4, "ces_beta_incorrect": 0.4}
ABLATIONS = ("ces_dynamic_multiplier", "ces_entropy_gradient")


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half width of its 95 % interval (`nan` for fewer than two)."""

    mean: float
    half_width: float
    count: int

    def text(self, factor: float, decimals: int, signed: bool = False) -> str:
        """`96.3 ± 0.5` in the table's unit."""
        sign = "+" if signed else ""
        mean = f"{self.mean * factor:{sign}.{decimals}f}"
        return mean if math.isnan(self.half_width) else f"{mean} ± {self.half_width * factor:.{decimals}f}"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and 95 % interval of independent runs, by Student's t with n - 1 degrees of freedom.

    Args:
        values (`Sequence[float]`):
            One for each seed, at least one.
    """
    from scipy import stats

    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Estimate(mean, math.nan, count)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Estimate(mean, float(stats.t.ppf(0.975, count - 1)) * deviation / math.sqrt(count), count)


def paired_difference(rows: Sequence[Row], baseline: Sequence[Row], measure: str) -> Estimate | None:
    """Mean and 95 % interval of (run - the baseline's run of the same seed); `None` where no seed is in both.

    The runs of a seed share model, problems and order, so their difference varies less than either.
    """
    other = {row["seed"]: row[measure] for row in baseline}
    differences = [row[measure] - other[row["seed"]] for row in rows if row["seed"] in other]
    return estimate(differences) if differences else None


def comparison(study: Study, rows: Sequence[Row]) -> str:
    """The whole comparison as Markdown: for each variant the tables that its rows can fill."""
    parts = [
        "Means over seeds, ± half the 95 % interval (Student's t). Differences are paired by seed to "
        f"{study.baseline}. The interval is over training runs; all are measured on the same problems."
    ]
    measured = sorted({row["measured_on"] for row in rows})
    parts.append(f"Measured on: {'; '.join(measured)}.")
    for variant in study.variants:
        of_variant = {
            method: [row for row in rows if row["method"] == method and row["variant"] == variant]
            for method in study.methods
        }
        found = {method: runs for method, runs in of_variant.items() if runs}
        if not found:
            continue
        if variant:
            parts.append(f"## {variant}")
        for table in (method_table, benchmark_table, sensitivity_table):
            header, *lines = table(found, study.baseline) or [[]]
            if header:
                parts.append(
                    markdown(header, [["**Average**" if c == "Average" else c for c in row] for row in lines])
                )
    return "\n\n".join(parts) + "\n"


def means_over_variants(study: Study, rows: Sequence[Row]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Method -> measure of a curve -> for each variant the mean over seeds and half the width of its interval."""

    def of(method: str, variant: str, measure: str) -> tuple[float, float]:
        values = [row.get(measure, math.nan) for row in rows if (row["method"], row["variant"]) == (method, variant)]
        found = estimate(values)
        return found.mean, found.half_width

    names = dict(zip(PANELS, MEASURES, strict=True))
    return {
        method: {key: [of(method, variant, measure) for variant in study.variants] for key, measure in names.items()}
        for method in study.methods
    }


def method_table(found: dict[str, list[Row]], baseline: str) -> list[list[str]]:
    """The layout of Table 2, header first: one row per method, each measure with its difference to the baseline."""
    measures = [name for name in MEASURES if all(name in row for runs in found.values() for row in runs)]
    heading = ["Method", "Runs"]
    for name in measures:
        heading += [SHOWN[name][0], "Δ"]
    lines = [heading]
    for method, runs in found.items():
        line = [method, str(len(runs))]
        for name in measures:
            _, factor, decimals = SHOWN[name]
            line.append(estimate([row[name] for row in runs]).text(factor, decimals))
            difference = None
            if method != baseline and baseline in found:
                difference = paired_difference(runs, found[baseline], name)
            line.append(difference.text(factor, decimals, signed=True) if difference else "")
        lines.append(line)
    return lines


def benchmark_table(found: dict[str, list[Row]], baseline: str) -> list[list[str]]:
    """The layout of Table 1, header first: one row per benchmark and their average; empty for a single benchmark."""
    first = next(iter(found.values()))[0]
    names = [key.removesuffix("/accuracy") for key in first if key.endswith("/accuracy") and key != "train/accuracy"]
    if len(names) < 2:
        return []
    shown: dict[str, Callable[[str], str]] = {"Acc": "{}/accuracy".format, "Len": "{}/length_tokens".format}
    lines = [["Dataset", *(f"{method} {short}" for method in found for short in shown)]]
    for name in [*names, "Average"]:
        line = [name]
        for runs in found.values():
            for measure, key in zip(("accuracy", "length_tokens"), shown.values(), strict=True):
                column = measure if name == "Average" else key(name)
                _, factor, decimals = SHOWN[measure]
                line.append(estimate([row[column] for row in runs]).text(factor, decimals))
        lines.append(line)
    return lines


def sensitivity_table(found: dict[str, list[Row]], baseline: str) -> list[list[str]]:
    """The layout of Table 4, header first: one row per tau and beta; empty where all runs of CES share them."""
    lines = [["τ", "β1, β2", SHOWN["accuracy"][0], SHOWN["length_tokens"][0]]]
    for runs in found.values():
        settings = json.loads(runs[0]["settings"])
        # Rows of the table are the method itself: a recipe may leave a field at CESConfig's default, and ablations
        # have tables of their own.
        if settings.get("shaping", "ces") != "ces" or not all(settings.get(name, True) for name in ABLATIONS):
            continue
        tau, correct, incorrect = (settings.get(name, default) for name, default in TAU_AND_BETA.items())
        lines.append([f"{tau:g}", f"{correct:g}" if correct == incorrect else f"{correct:g}, {incorrect:g}"])
        lines[-1] += _accuracy_and_length(runs)
    if len({tuple(line[:2]) for line in lines[1:]}) < 2:
        return []
    if baseline in found:
        lines.append([baseline, "", *_accuracy_and_length(found[baseline])])
    return lines


def _accuracy_and_length(runs: Sequence[Row]) -> list[str]:
    return [estimate([row[name] for row in runs]).text(*SHOWN[name][1:]) for name in ("accuracy", "length_tokens")]
