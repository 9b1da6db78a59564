"""The report's pictures, for light and dark pages; methods are distinguishable without colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...train.curves import PANELS, mean_and_range, styles_of
from ..evaluation.statistics import Interval
from ..study.front import Setting, find_front, front_of
from ..study.front_picture import draw_front
from .picture import Figure, Theme
from .questions import Split
from .trainings import Training

# Lines only: matplotlib writes every dot of a hatch into an SVG.
HATCHES = ("", "///", "\\\\\\", "xxx", "---", "|||", "+++", "//", "\\\\", "xx")


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
        parts.append(f"{method} from {factor * mean[0]:.{digits}f} to {factor * mean[-1]:.{digits}f} {of}")
    return f"Line chart of {title.lower()} over {unit}: {'; '.join(parts)}."


@dataclass(frozen=True)
class Point:
    """A method in the plane of length and accuracy, with intervals, and its single runs as (length, accuracy)."""

    name: str
    length: Interval
    accuracy: Interval
    runs: tuple[tuple[float, float], ...] = ()


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats, by their means; shortest first."""
    return [points[place] for place in front_of([(_mean(point.length), _mean(point.accuracy)) for point in points])]


def _mean(found: Interval) -> float:
    return math.nan if found.mean is None else found.mean


def plane_figure(points: Sequence[Point], order: Sequence[str], name: str, intervals: str) -> Figure:
    """Accuracy over length with the frontier; `intervals` says what the bars are, for the caption."""
    best = frontier(points)

    def draw(axis: Any, theme: Theme) -> None:
        styles = _styles(order, theme)
        axis.grid(axis="x", color=theme.grid, linewidth=0.8)
        if len(best) > 1:
            line = {"color": theme.ink, "linestyle": (0, (2, 3)), "linewidth": 1.4, "label": "frontier", "zorder": 1}
            axis.plot([_mean(point.length) for point in best], [_mean(point.accuracy) for point in best], **line)
        for point in points:
            style = {key: value for key, value in styles[point.name].items() if key != "linestyle"}
            if point.runs:
                x, y = zip(*point.runs, strict=True)
                axis.plot(x, y, linestyle="none", markersize=4, alpha=0.4, **style)
            sides = {"xerr": point.length, "yerr": point.accuracy}
            bars = {name: _bars([of]) for name, of in sides.items() if of.low is not None}
            axis.errorbar(
                _mean(point.length),
                _mean(point.accuracy),
                **bars,
                linestyle="none",
                capsize=3,
                elinewidth=1.2,
                markersize=9,
                label=point.name,
                **style,
            )
        axis.set(xlabel="answer length, tokens (shorter is to the left)", ylabel="right answers")
        _in_percent(axis)
        _legend(axis, len(points))

    told = "; ".join(f"{p.name}: {100 * _mean(p.accuracy):.1f} % at {_mean(p.length):.1f} tokens" for p in points)
    names = ", ".join(point.name for point in best)
    caption = f"Accuracy over answer length; up and to the left is better. Bars: {intervals}. "
    if len(best) > 1:
        caption += f"The dotted line is the frontier, those that no other beats in both: {names}."
    else:
        caption += f"By its means {names} is the shortest and the most accurate, so the frontier is this one point."
    if any(point.runs for point in points):
        caption += " Small marks are single runs."
    alt = f"Scatter chart of accuracy over answer length. {told}. On the frontier: {names}."
    return Figure(name, "Accuracy and length", alt, caption, draw, (5.8, 4.3))


def front_figure(settings: Sequence[Setting], order: Sequence[str], name: str) -> Figure:
    """Accuracy over length, a line a method over its strengths, with the front; `order` holds the lines."""
    front = find_front(settings)

    def draw(axis: Any, theme: Theme) -> None:
        draw_front(axis, settings, _styles(order, theme), theme.ink, theme.grid)
        axis.set(xlabel="answer length, tokens (shorter is to the left)", ylabel="right answers")
        _in_percent(axis)
        _legend(axis, 2)

    told = "; ".join(f"{s.name}: {100 * s.point[1]:.1f} % at {s.point[0]:.1f} tokens" for s in settings)
    names = ", ".join(setting.name for setting in front)
    caption = (
        "Accuracy over answer length; up and to the left is better. A line is a method, its marks the strengths; the "
        "largest mark is the last strength. Bars: 95 % intervals over seeds (Student's t), which may reach beyond the "
        "picture. The broad grey line is the front, the settings that neither another nor a mix of two beats: "
        f"{names}."
    )
    alt = f"Line chart of accuracy over answer length. {told}. On the front: {names}."
    return Figure(name, "Accuracy and length", alt, caption, draw, (5.8, 6.2))


def _bars(found: Sequence[Interval]) -> list[list[float]]:
    """Lengths of error bars, those downwards and those upwards; NaN, which draws none, without an interval."""
    arms = [
        (math.nan, math.nan)
        if each.low is None or each.high is None
        else (max(0.0, _mean(each) - each.low), max(0.0, each.high - _mean(each)))
        for each in found
    ]
    return [list(side) for side in zip(*arms, strict=True)]


def difficulty_figure(split: Split, order: Sequence[str], name: str) -> Figure:
    """Mean lengths on simple and on hard questions, one bar per run."""
    runs = sorted(split.simple.length, key=lambda run: (run != split.reference, list(order).index(run)))
    parts = {of: part for of, part in (("simple", split.simple), ("hard", split.hard)) if part.questions}
    labels = [f"{of}\n{part.questions} question{'s'[: part.questions != 1]}" for of, part in parts.items()]

    def draw(axis: Any, theme: Theme) -> None:
        styles = _styles(order, theme)
        width = 0.8 / len(runs)
        for place, run in enumerate(runs):
            found = [part.length[run] for part in parts.values()]
            axis.bar(
                [number + (place - (len(runs) - 1) / 2) * width for number in range(len(parts))],
                [_mean(entry) for entry in found],
                width * 0.92,
                yerr=_bars(found),
                label=run,
                color=theme.paper,
                edgecolor=styles[run]["color"],
                linewidth=1.6,
                hatch=HATCHES[place % len(HATCHES)],
                error_kw={"ecolor": theme.ink, "capsize": 3, "elinewidth": 1.2},
            )
        axis.set_xticks(range(len(parts)), labels)
        axis.set(ylabel="answer length, tokens")
        _legend(axis, len(runs))

    told = "; ".join(
        f"{run} " + " and ".join(f"{_mean(part.length[run]):.1f} on {of} ones" for of, part in parts.items())
        for run in runs
    )
    caption = (
        "Mean tokens of an answer, with 95 % bootstrap intervals over questions (none for a single one). Simple: "
        f"{split.reference} is right in more than half of its answers."
    )
    if len(parts) == 1:
        caption += f" All are {next(iter(parts))}."
    return Figure(
        name, split.title, f"Bar chart of mean tokens by difficulty of the questions: {told}.", caption, draw
    )


# Method -> (step, mean entropy with its interval), in the order of the steps.
Followed = Mapping[str, Sequence[tuple[int, Interval]]]


def forks_figure(followed: Followed, order: Sequence[str], right: bool, name: str) -> Figure:
    """Entropy over training at the same places, the forks of the first step's answers."""
    answers = "right" if right else "wrong"

    def draw(axis: Any, theme: Theme) -> None:
        styles = _styles(order, theme)
        for method, points in followed.items():
            steps, found = zip(*points, strict=True)
            axis.errorbar(
                steps,
                [_mean(entry) for entry in found],
                _bars(found),
                label=method,
                capsize=3,
                markersize=6,
                linewidth=2,
                elinewidth=1.2,
                **styles[method],
            )
        axis.set(xlabel="optimizer step", ylabel="bits per token")
        axis.set_ylim(bottom=0)
        _legend(axis, len(followed))

    told = "; ".join(
        f"{method} from {_mean(points[0][1]):.2f} bits at step {points[0][0]} to {_mean(points[-1][1]):.2f} at step "
        f"{points[-1][0]}"
        for method, points in followed.items()
    )
    asked = "less" if right else "more"
    followed = dict(sorted(followed.items(), key=lambda entry: list(order).index(entry[0])))
    caption = (
        f"Mean entropy at the tokens that CES shapes in {answers} answers of the first step's model, followed through "
        f"training at the same places; each run's own rule selects them. CES's term asks for {asked} entropy there; "
        "the curve shows the effect of all terms together, on tokens that right and wrong answers share. Bars: 95 % "
        "bootstrap intervals over answers."
    )
    return Figure(name, f"Forks of {answers} answers", f"Line chart of entropy over steps: {told}.", caption, draw)
