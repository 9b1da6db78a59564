"""Accuracy against tokens: which settings are on the front, how far the others are from it, and who dominates whom.

A setting is a method of the study. Settings with the same `line` are strengths of one method, in the study's order.
The front connects, by straight lines, the settings that neither another setting nor a mix of two beats: to mix is to
answer some questions with the one model and the rest with the other. It rises, ever more slowly, from left to right.
The gap of a setting is how far it lies below the front at its own length: REG (arXiv 2506.07104) for a single point
instead of a model's whole curve over token budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, TypeVar

from ...support.tables import Table
from .comparison import Estimate, at_each_seed, estimate

if TYPE_CHECKING:
    from pandas import DataFrame, Series

LENGTH, ACCURACY, AREA = "length_tokens", "accuracy", "area"
S = TypeVar("S", bound=Any)  # a setting, or what else has a `point`


@dataclass(frozen=True)
class Setting:
    """A method of a study, with its runs: seed -> (length in tokens, accuracy in [0, 1])."""

    name: str
    line: str
    runs: dict[int, tuple[float, float]]
    areas: dict[int, float] = field(default_factory=dict)  # by seed, under accuracy over budgets; if measured
    once: bool = False  # whether one measurement stands for every seed, so that means have no interval

    @cached_property
    def length(self) -> Estimate:
        return self._mean([length for length, _ in self.runs.values()])

    @cached_property
    def accuracy(self) -> Estimate:
        return self._mean([accuracy for _, accuracy in self.runs.values()])

    @property
    def area(self) -> Estimate | None:
        return self._mean(list(self.areas.values())) if self.areas else None

    def _mean(self, values: list[float]) -> Estimate:
        return estimate(values[:1] if self.once else values)

    @property
    def point(self) -> tuple[float, float]:
        return self.length.mean, self.accuracy.mean


def read_settings(runs: DataFrame, comparable: bool = True) -> list[Setting]:
    """The settings among the measured runs of one variant, in order; a method without a `line` is a line of its own.

    If some seeds have a run of every setting, only these count, so that means are `comparable` in an unfinished study.
    """
    found = []
    for method, measurements in runs.groupby("method", sort=False):
        own = at_each_seed(measurements, runs["seed"].drop_duplicates()).dropna(subset=[LENGTH, ACCURACY])
        if own.empty:
            continue
        places = zip(own["seed"].astype(int), zip(own[LENGTH], own[ACCURACY], strict=True), strict=True)
        measured = own.dropna(subset=AREA) if AREA in own else own.head(0)
        areas = dict(zip(measured["seed"].astype(int), measured.get(AREA, ()), strict=True))
        found.append(Setting(method, _lines(own).iloc[0], dict(places), areas, len(measurements) < len(own)))
    shared = set.intersection(*(set(setting.runs) for setting in found)) if found and comparable else set()
    if not shared:
        return found
    return [
        replace(
            each,
            runs={seed: run for seed, run in each.runs.items() if seed in shared},
            areas={seed: area for seed, area in each.areas.items() if seed in shared},
        )
        for each in found
    ]


def has_lines(runs: DataFrame) -> bool:
    """Whether some method was run at several strengths."""
    return bool((runs.groupby(_lines(runs))["method"].nunique() > 1).any())


def _lines(runs: DataFrame) -> Series:
    return runs["line"].fillna(runs["method"]) if "line" in runs else runs["method"]


def middle_of_lines(lines: Mapping[str, str]) -> dict[str, str]:
    """Of the methods of each line the middle one, of two the second, for pictures that have no room for all."""
    parts = {line: [method for method in lines if lines[method] == line] for line in lines.values()}
    return {methods[len(methods) // 2]: line for line, methods in parts.items()}


def find_front(settings: Sequence[S]) -> list[S]:
    """The settings on the front of their means, shortest first; of several with equal means each is kept."""
    points = [setting.point for setting in settings]

    def beaten(x: float, y: float) -> bool:
        return any((left, up) != (x, y) and left <= x and up >= y for left, up in points)

    hull: list[tuple[float, float]] = []
    for x1, y1 in sorted({point for point in points if not beaten(*point)}):
        while len(hull) > 1:
            (x0, y0), (x, y) = hull[-2:]
            if (y - y0) * (x1 - x0) >= (y1 - y0) * (x - x0) - 1e-12:
                break
            hull.pop()  # below a mix of its neighbours, and not just by rounding
        hull.append((x1, y1))
    return sorted((setting for setting in settings if setting.point in hull), key=lambda each: each.point[0])


def gap(setting: Setting, front: Sequence[Setting]) -> Estimate | None:
    """The front's accuracy at the setting's mean length minus the setting's, by seed; `None` if no seed is in all.

    It is 0 on the front, which left of its shortest setting and right of its longest goes on level. The front is that
    of the means over seeds, and its chance advantages are in every gap.
    """
    length = setting.length.mean
    mix = [(1.0, front[0] if length < front[0].length.mean else front[-1])]
    for left, right in pairwise(front):
        if left.length.mean <= length < right.length.mean:
            share = (length - left.length.mean) / (right.length.mean - left.length.mean)
            mix = [(1 - share, left), (share, right)]
    seeds = [seed for seed in setting.runs if all(seed in part.runs for _, part in mix)]
    if not seeds:
        return None
    return estimate([sum(share * part.runs[seed][1] for share, part in mix) - setting.runs[seed][1] for seed in seeds])


def dominates(first: Setting, second: Setting) -> bool:
    """Whether `first` is clearly better in length or accuracy and, by its mean, no worse in the other.

    Clearly: the 95 % interval of the differences paired by seed excludes zero. With one shared seed there is none.
    """
    pairs = [(first.runs[seed], second.runs[seed]) for seed in first.runs.keys() & second.runs.keys()]
    shorter, more_accurate = [b[0] - a[0] for a, b in pairs], [a[1] - b[1] for a, b in pairs]
    gains = [estimate(shorter), estimate(more_accurate)] if pairs else []
    return bool(gains) and all(gain.sign >= 0 for gain in gains) and any(gain.mean > gain.half_width for gain in gains)


HOW_TO_READ = (
    "Means are over the seeds that every setting has. A setting is on the front if neither another nor a mix of two "
    "others is as short and more accurate, or as accurate and shorter. Gap: how far a setting lies below the front at "
    "its own length, ± half the 95 % interval of the differences by seed. Area: accuracy, in the mean over all token "
    "budgets up to the longest completion allowed. A "
    "setting dominates another if, by differences paired by seed, the 95 % interval of its gain in accuracy or in "
    "length excludes zero and its mean is no worse in the other."
)


def front_tables(settings: Sequence[Setting]) -> list[Table]:
    """Each setting beside the front; method by method, in how many pairs of their settings one dominates the other."""
    front, names = find_front(settings), list(dict.fromkeys(setting.line for setting in settings))
    gaps, with_area = [], any(setting.areas for setting in settings)
    for setting in settings:
        below = None if setting in front else gap(setting, front)
        means = [setting.accuracy.text(100, 1), setting.length.text(1, 1)]
        if with_area:
            means.append(setting.area.text(100, 1) if setting.area else "")
        on_it = "on it" if setting in front else below.text(100, 1) if below else ""
        gaps.append([setting.name, *means, on_it, ", ".join(a.name for a in front if dominates(a, setting))])
    pairs: dict[str, dict[str, list[bool]]] = {name: {other: [] for other in names} for name in names}
    for first, second in product(settings, settings):
        pairs[first.line][second.line].append(dominates(first, second))
    counts = [[name, *(f"{sum(of)} of {len(of)}" if any(of) else "" for of in pairs[name].values())] for name in names]
    header = ["Setting", "Acc ↑, %", "Len ↓, tokens", *(["Area ↑, %"] if with_area else [])]
    header += ["Gap, points", "Dominated on the front by"]
    return [
        Table("Gap to the front", header, gaps, HOW_TO_READ),
        Table("Who dominates whom", ["Dominates →", *names], counts),
    ]
