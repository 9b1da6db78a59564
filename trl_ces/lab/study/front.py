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
from itertools import pairwise
from typing import TYPE_CHECKING

from ...support.tables import markdown
from .comparison import Estimate, estimate

if TYPE_CHECKING:
    from pandas import DataFrame, Series

LENGTH, ACCURACY, AREA = "length_tokens", "accuracy", "area"


@dataclass(frozen=True)
class Setting:
    """A method of a study, with its runs: seed -> (length in tokens, accuracy in [0, 1]).

    `areas`: seed -> area under the curve of accuracy over token budgets, if the study's evaluation measures it.
    """

    name: str
    line: str
    runs: dict[int, tuple[float, float]]
    areas: dict[int, float] = field(default_factory=dict)

    @property
    def length(self) -> Estimate:
        return estimate([length for length, _ in self.runs.values()])

    @property
    def accuracy(self) -> Estimate:
        return estimate([accuracy for _, accuracy in self.runs.values()])

    @property
    def point(self) -> tuple[float, float]:
        """Mean length and mean accuracy."""
        return self.length.mean, self.accuracy.mean


def read_settings(runs: DataFrame) -> list[Setting]:
    """The settings among the runs of one variant, in their order; a method without a `line` is a line of its own.

    If some seeds have a run of every setting, only these count, so that means are comparable in an unfinished study.
    """
    found = []
    for method, own in runs.groupby("method", sort=False):
        places = zip(own["seed"].astype(int), zip(own[LENGTH], own[ACCURACY], strict=True), strict=True)
        measured = own.dropna(subset=AREA) if AREA in own else own.head(0)
        areas = dict(zip(measured["seed"].astype(int), measured.get(AREA, ()), strict=True))
        found.append(Setting(method, _lines(own).iloc[0], dict(places), areas))
    shared = set.intersection(*(set(setting.runs) for setting in found)) if found else set()
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
    """The line of each run."""
    return runs["line"].fillna(runs["method"]) if "line" in runs else runs["method"]


def middle_of_lines(lines: Mapping[str, str]) -> dict[str, str]:
    """Of the methods of each line the middle one, of two the second, for pictures that have no room for all."""
    parts = {line: [method for method in lines if lines[method] == line] for line in lines.values()}
    return {methods[len(methods) // 2]: line for line, methods in parts.items()}


def front_of(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the points (length, accuracy) that no other beats: as short and as accurate, and better in one.

    Shortest first. Of several equal points each is kept.
    """

    def beats(other: tuple[float, float], point: tuple[float, float]) -> bool:
        return other != point and other[0] <= point[0] and other[1] >= point[1]

    kept = [place for place, point in enumerate(points) if not any(beats(other, point) for other in points)]
    return sorted(kept, key=lambda place: points[place][0])


def find_front(settings: Sequence[Setting]) -> list[Setting]:
    """The settings on the front of their means, shortest first: [`front_of`], without those below a mix of two."""
    front: list[Setting] = []
    for place in front_of([setting.point for setting in settings]):
        while len(front) > 1 and _is_below(front[-1].point, front[-2].point, settings[place].point):
            front.pop()
        front.append(settings[place])
    return front


def _is_below(point: tuple[float, float], left: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether `point` lies below the line from `left` to `right`, and not just by rounding."""
    (x, y), (x0, y0), (x1, y1) = point, left, right
    return (y - y0) * (x1 - x0) < (y1 - y0) * (x - x0) - 1e-12


def mix_of_length(front: Sequence[Setting], length: float) -> list[tuple[float, Setting]]:
    """Neighbours on the front with the shares at which their answers have `length` tokens in the mean.

    Left of the front that is its shortest setting alone, right of it its longest.
    """
    for left, right in pairwise(front):
        low, high = left.length.mean, right.length.mean
        if low <= length < high:
            share = (length - low) / (high - low)
            return [(1 - share, left), (share, right)]
    return [(1.0, front[0] if length < front[0].length.mean else front[-1])]


def gap(setting: Setting, front: Sequence[Setting]) -> Estimate | None:
    """The front's accuracy at the setting's mean length minus the setting's, by seed; `None` if no seed is in all.

    It is 0 on the front. The front is that of the means over seeds, and its chance advantages are in every gap.
    """
    mix = mix_of_length(front, setting.length.mean)
    seeds = [seed for seed in setting.runs if all(seed in part.runs for _, part in mix)]
    if not seeds:
        return None
    return estimate([sum(share * part.runs[seed][1] for share, part in mix) - setting.runs[seed][1] for seed in seeds])


def dominates(first: Setting, second: Setting) -> bool:
    """Whether `first` is clearly better in length or accuracy and, by its mean, no worse in the other.

    Clearly: the 95 % interval of the differences paired by seed excludes zero. With one shared seed there is none.
    """
    shared = first.runs.keys() & second.runs.keys()
    if not shared:
        return False
    pairs = [(first.runs[seed], second.runs[seed]) for seed in shared]
    shorter = estimate([theirs[0] - ours[0] for ours, theirs in pairs])
    more_accurate = estimate([ours[1] - theirs[1] for ours, theirs in pairs])
    gains = (shorter, more_accurate)
    return all(gain.sign >= 0 for gain in gains) and any(gain.mean > gain.half_width for gain in gains)


def front_table(settings: Sequence[Setting]) -> list[list[str]]:
    """A setting a line: accuracy, length, area, its gap to the front, and those on the front that dominate it."""
    front = find_front(settings)
    with_area = any(setting.areas for setting in settings)
    lines = [["Setting", "Acc ↑, %", "Len ↓, tokens", "Gap, points", "Dominated on the front by"]]
    lines[0][3:3] = ["Area ↑, %"] if with_area else []
    for setting in settings:
        below = None if setting in front else gap(setting, front)
        lines.append(
            [
                setting.name,
                setting.accuracy.text(100, 1),
                setting.length.text(1, 1),
                *([estimate(list(setting.areas.values())).text(100, 1) if setting.areas else ""] * with_area),
                "on it" if setting in front else below.text(100, 1) if below else "",
                ", ".join(other.name for other in front if dominates(other, setting)),
            ]
        )
    return lines


def dominance_table(settings: Sequence[Setting]) -> list[list[str]]:
    """A method a line and a column: in how many pairs of their settings that of the line dominates."""
    names = list(dict.fromkeys(setting.line for setting in settings))
    parts = {name: [setting for setting in settings if setting.line == name] for name in names}
    lines = [["Dominates →", *names]]
    for ours in names:
        counts = [sum(dominates(a, b) for a in parts[ours] for b in parts[theirs]) for theirs in names]
        pairs = [len(parts[ours]) * len(parts[theirs]) for theirs in names]
        cells = [f"{count} of {pair}" if count else "" for count, pair in zip(counts, pairs, strict=True)]
        lines.append([ours, *cells])
    return lines


HOW_TO_READ = (
    "Means are over the seeds that every setting has. A setting is on the front if neither another nor a mix of two "
    "others is as short and more accurate, or as accurate and shorter. Gap: how far a setting lies below the front at "
    "its own length, ± half the 95 % interval of the differences by seed. Area: accuracy, in the mean over all token "
    "budgets up to the longest answer allowed. A "
    "setting dominates another if, by differences paired by seed, the 95 % interval of its gain in accuracy or in "
    "length excludes zero and its mean is no worse in the other."
)


def front_text(runs: DataFrame) -> str:
    """The tables of each variant as Markdown."""
    parts = [HOW_TO_READ]
    for variant, own in runs.groupby("variant", sort=False):
        settings = read_settings(own)
        parts += [f"## {variant}"] if variant else []
        parts += [markdown(header, lines) for header, *lines in (front_table(settings), dominance_table(settings))]
    return "\n\n".join(parts) + "\n"
