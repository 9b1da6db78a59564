"""The report's pictures, for light and dark pages; methods are distinguishable without colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...train.curves import PANELS, mean_and_range, styles_of
from ..evaluation.statistics import Interval
from ..study.front import Setting, find_front
from ..study.pictures import draw_front
from .picture import Figure, Theme
from .trainings import Training


@dataclass(frozen=True)
class Measured:
    """An evaluation in the plane of length and accuracy."""

    name: str
    length: Interval
    accuracy: Interval

    @property
    def line(self) -> str:
        """Its name: evaluations are no strengths of one method."""
        return self.name

    @property
    def point(self) -> tuple[float, float]:
        length, accuracy = (math.nan if found.mean is None else found.mean for found in (self.length, self.accuracy))
        return length, accuracy


def _styles(order: Sequence[str], theme: Theme) -> dict[str, dict[str, Any]]:
    """Each method's style, as in every picture of trl_ces; `order` holds all methods of the page."""
    from matplotlib.colors import to_hex, to_rgb

    found = {}
    for name, style in styles_of(list(order)).items():
        red, green, blue = (part + (1 - part) * theme.lighten for part in to_rgb(style["color"]))
        color = to_hex((red, green, blue))
        face = theme.paper if style.get("markerfacecolor") == "white" else color
        found[name] = {**style, "color": color, "markerfacecolor": face}
    return found


def _legend(axis: Any, count: int) -> None:
    """A legend below the picture, where it hides nothing; marks and lines without their error bars."""
    from matplotlib.container import ErrorbarContainer

    handles, labels = axis.get_legend_handles_labels()
    axis.figure.legend(
        [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles],
        labels,
        loc="outside lower center",
        ncols=1 if count == 1 else 2,
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )


def _in_percent(axis: Any) -> None:
    """A percentage axis, without the part of an interval that no share can reach."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = axis.get_ylim()
    axis.set_ylim(max(low, 0.0), min(high, 1.01))
    axis.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10]))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))


def training_figures(trainings: Sequence[Training], order: Sequence[str], name: str = "") -> list[Figure]:
    """Length, entropy and accuracy over training, a picture each, with all methods."""
    methods: dict[str, list[Training]] = {}
    for training in trainings:
        methods.setdefault(training.method, []).append(training)
    in_samples = all(training.samples_per_step for training in trainings)
    unit = "training problems" if in_samples else "optimizer steps"
    several = any(len(runs) > 1 for runs in methods.values())
    figures = []
    for key in ("length", "entropy", "accuracy"):
        title, of = PANELS[key]

        def draw(axis: Any, theme: Theme, key: str = key, of: str = of) -> None:
            styles = _styles(order, theme)
            for method, runs in methods.items():
                style = styles[method]
                step, mean, low, high = mean_and_range([run.curve for run in runs], key)
                places = [value * ((runs[0].samples_per_step or 1) if in_samples else 1) for value in step]
                if len(runs) > 1:
                    axis.fill_between(places, low, high, color=style["color"], alpha=0.13, linewidth=0)
                every = max(1, len(places) // 6)
                axis.plot(places, mean, label=method, markersize=5.5, markevery=every, linewidth=2, **style)
            axis.set(xlabel=unit, ylabel=of)
            if key == "accuracy":
                _in_percent(axis)
            if key == "entropy":
                axis.set_ylim(bottom=0)
            _legend(axis, len(methods))

        seeds = {len(runs) for runs in methods.values()}
        counted = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else f"{max(seeds)}"
        caption = f"{title} of the training completions, {of}; each line is a mean over five logged points"
        caption += f" and over {counted} seeds, the band the range of the seeds." if several else "."
        figures.append(Figure(f"{name}training_{key}", title, _told(title, of, unit, methods, key), caption, draw))
    return figures


def _told(title: str, of: str, unit: str, methods: Mapping[str, Sequence[Training]], key: str) -> str:
    """The curves in words: where each starts and ends."""
    factor, digits = (100, 1) if key == "accuracy" else (1, 1 if key == "length" else 3)
    of = "%" if key == "accuracy" else of
    parts = []
    for method, runs in methods.items():
        _, mean, _, _ = mean_and_range([run.curve for run in runs], key)
        if mean:  # else its seeds logged no step in common
            parts.append(f"{method} from {factor * mean[0]:.{digits}f} to {factor * mean[-1]:.{digits}f} {of}")
    return f"Line chart of {title.lower()} over {unit}: {'; '.join(parts)}."


def front_figure(
    settings: Sequence[Setting | Measured], order: Sequence[str], name: str, intervals: str, whole_bars: bool = True
) -> Figure:
    """Accuracy over length with the front, a line a method over its strengths; `order` holds the lines.

    `intervals` says what the bars are, for the caption.
    """
    front = find_front(settings)
    lines = list(dict.fromkeys(setting.line for setting in settings))

    def draw(axis: Any, theme: Theme) -> None:
        draw_front(axis, settings, _styles(order, theme), theme.ink, theme.grid, whole_bars)
        axis.set(xlabel="completion length, tokens (shorter is to the left)", ylabel="correct completions")
        _in_percent(axis)
        _legend(axis, len(lines))

    told = "; ".join(f"{each.name}: {100 * each.point[1]:.1f} % at {each.point[0]:.1f} tokens" for each in settings)
    names = ", ".join(setting.name for setting in front)
    caption = f"Accuracy over completion length; up and to the left is better. Bars: {intervals}. "
    if len(lines) < len(settings):
        caption += "A line joins the strengths of a method; its largest mark is the last. "
    if len(front) > 1:
        caption += f"The broad grey line is the front, which neither a setting nor a mix of two beats: {names}."
    else:
        caption += f"By its means {names} is the shortest and the most accurate, so the front is this one point."
    alt = f"Scatter chart of accuracy over completion length. {told}. On the front: {names}."
    return Figure(name, "Accuracy and length", alt, caption, draw, (5.8, 4.3))
