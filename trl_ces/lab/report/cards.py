"""What a reader sees first: a method against the baseline, in a few numbers with their intervals."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...support.tables import percent
from ..evaluation.summary import tokens
from ..study.comparison import SHOWN, estimate, is_whole_ces, paired_difference
from .studies import trained_rows

if TYPE_CHECKING:
    from pandas import DataFrame

# Measure -> title, unit of its level, unit of a difference.
MEASURE_LABELS = {
    "accuracy": ("Accuracy", "%", "points"),
    "length_tokens": ("Answer length", "tokens", "tokens"),
    "entropy_bits": ("Entropy", "bits per token", "bits per token"),
}


@dataclass(frozen=True)
class Gain:
    """One measure of a method against the baseline."""

    title: str
    value: str  # `+1.6 ± 1.1`
    unit: str
    levels: str  # baseline -> method
    clear: bool | None  # whether the interval excludes zero; `None` without an interval


@dataclass(frozen=True)
class Card:
    """A method against the baseline, at a glance."""

    title: str
    where: str
    gains: list[Gain]


def study_cards(runs: DataFrame, baseline: str, where: str) -> list[Card]:
    """CES against the baseline, paired by seed; at most two settings of CES, none without the baseline."""
    methods = dict(iter(runs.groupby("method", sort=False)))
    theirs = methods.pop(baseline, None)
    if theirs is None:
        return []
    cards = []
    for method, ours in methods.items():
        if not trained_rows(ours).iloc[0] or not is_whole_ces(json.loads(ours["settings"].iloc[0])):
            continue
        gains = []
        for measure, (title, unit, unit_of_difference) in MEASURE_LABELS.items():
            both = (theirs, ours)
            if measure not in runs or not all(part[measure].notna().all() for part in both):
                continue
            difference = paired_difference(ours, theirs, measure)
            if difference is None:
                continue
            _, factor, decimals = SHOWN[measure]
            levels = " → ".join(f"{estimate(part[measure]).mean * factor:.{decimals}f}" for part in both)
            value = difference.text(factor, decimals, signed=True).replace("-", "−")
            clear = abs(difference.mean) > difference.half_width if difference.count > 1 else None
            gains.append(Gain(title, value, unit_of_difference, f"{levels} {unit}", clear))
        seeds = f"{len(ours)} seeds, ± half the 95 % interval" if len(ours) > 1 else "one seed, hence no interval"
        cards.append(Card(f"{method} against {baseline}", f"{where}: means of differences by seed, {seeds}", gains))
    return cards[:2]


def evaluation_cards(compared: dict[str, Any], title: str, row: dict[str, Any]) -> list[Card]:
    """Each run, at most two, against the baseline, with its interval over problems."""
    cards = []
    runs, baseline = compared["runs"], compared["baseline"]
    for place, run in enumerate(runs):
        gains = []
        for measure, key, write in (("accuracy", "accuracy", percent), ("length_tokens", "length", tokens)):
            difference = row[f"{key}_difference"][place]
            if difference is None or difference["mean"] is None:
                continue
            name, unit, unit_of_difference = MEASURE_LABELS[measure]
            mean, low, high = (_signed(difference[what], write) for what in ("mean", "low", "high"))
            levels = " → ".join(write(row[key][of]["mean"]) for of in (runs.index(baseline), place))
            levels += f" {unit}, 95 % interval {low} to {high}"
            clear = difference["low"] > 0 or difference["high"] < 0
            gains.append(Gain(name, mean, unit_of_difference, levels, clear))
        if gains:
            where = f"{title}: differences problem by problem, one run each, interval over problems"
            cards.append(Card(f"{run} against {baseline}", where, gains))
    return cards[-2:]


def _signed(value: float, write: Callable[[float], str]) -> str:
    return ("+" if value >= 0 else "−") + write(abs(value))
