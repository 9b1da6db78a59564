"""A study's pictures: accuracy over tokens with the front, and the measures over its variants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...train.curves import panels, styles_of
from .comparison import MEASURES, estimate
from .front import Setting, find_front

if TYPE_CHECKING:
    from pandas import DataFrame


def draw_front(
    axis: Any,
    settings: Sequence[Any],
    styles: Mapping[str, Mapping[str, Any]],
    ink: str,
    grid: str,
    whole_bars: bool = False,
) -> None:
    """Draws on a matplotlib axis; `styles` are by line.

    A line goes from setting to setting in the study's order, and its marks grow: the largest is the last. The axes
    hold every mark; a bar may go beyond, as an interval over few seeds can be wider than all there is to see.
    """
    axis.grid(axis="x", color=grid, linewidth=0.8)
    front = find_front(settings)
    if len(front) > 1:
        drawn = {"color": ink, "linestyle": "-", "linewidth": 5, "alpha": 0.18, "solid_capstyle": "round"}
        axis.plot(*zip(*(setting.point for setting in front), strict=True), label="front", zorder=1, **drawn)
    for name in dict.fromkeys(setting.line for setting in settings):
        own, style = [setting for setting in settings if setting.line == name], styles[name]
        axis.plot(*zip(*(setting.point for setting in own), strict=True), label=name, linewidth=1.6, **style)
        for place, setting in enumerate(own):
            arms = {"xerr": setting.length.arms, "yerr": setting.accuracy.arms}
            bars = {side: [[below], [above]] for side, (below, above) in arms.items() if not math.isnan(below)}
            mark = {key: value for key, value in style.items() if key != "linestyle"}
            size = 5 + 4 * place / max(1, len(own) - 1) if len(own) > 1 else 8
            _, _, lines = axis.errorbar(
                *setting.point, **bars, linestyle="none", capsize=0, elinewidth=0.9, markersize=size, **mark
            )
            for line in lines:
                line.set_alpha(0.35)
    for number, set_limits in enumerate(() if whole_bars else (axis.set_xlim, axis.set_ylim)):
        places = [setting.point[number] for setting in settings]
        margin = 0.06 * (max(places) - min(places)) or 0.05
        set_limits(min(places) - margin, max(places) + margin)


def plot_front(settings: Sequence[Setting], order: Sequence[str], title: str, file: Path) -> None:
    """Writes the picture of one variant. `order` holds the lines; the file's suffix gives the format."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure = Figure(figsize=(7.5, 5.2), layout="constrained")
    axis = figure.subplots()
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#d9dee6", linewidth=0.8)
    draw_front(axis, settings, styles_of(list(order)), "#1c2430", "#d9dee6")
    axis.set(title=title, xlabel="completion length, tokens", ylabel="correct completions")
    axis.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))  # not every 2.5 %, rounded
    axis.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    figure.legend(loc="outside right upper", frameon=False, fontsize=9, handlelength=3.2)
    figure.savefig(file, dpi=150)


def plot_variants(runs: DataFrame, methods: Mapping[str, str], file: Path) -> None:
    """Means over seeds with their intervals over the variants; `methods` says which are drawn, and as what."""
    figure, axes = panels(len(methods))
    styles = styles_of(list(methods.values()))
    variants = list(runs["variant"].unique())
    for axis, measure in zip(axes, MEASURES, strict=True):
        if measure not in runs:  # an evaluation need not measure the entropy
            axis.remove()
            continue
        for method, name in methods.items():
            values = runs[runs["method"] == method].groupby("variant")[measure]
            found = [estimate(values.get_group(variant)) for variant in variants]
            bars = [0.0 if math.isnan(each.half_width) else each.half_width for each in found]
            means = [each.mean for each in found]
            axis.errorbar(variants, means, bars, label=name, capsize=3, markersize=5, linewidth=2, **styles[name])
        axis.set_xlabel("")
        axis.tick_params(axis="x", labelrotation=30)
        # Intervals reach beyond what the measures can be.
        low, high = axis.get_ylim()
        axis.set_ylim(max(low, 0), min(high, 1.02) if measure == "accuracy" else high)
    figure.supxlabel("means over seeds with 95 % intervals", fontsize=9)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=min(len(methods), 4), frameon=False, fontsize=9)
    figure.savefig(file, dpi=150)
