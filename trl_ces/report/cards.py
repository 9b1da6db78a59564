"""What a reader sees first: a method against the baseline, in a few numbers with their intervals."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame

from ..evaluation.summary import percent, tokens
from ..study.comparison import SHOWN, Estimate, estimate, paired_difference
from .runs import Row, is_whole_ces

UNITS = {"accuracy": "points", "length_tokens": "tokens", "entropy_bits": "bits per token"}
TITLES = {"accuracy": "Accuracy", "length_tokens": "Answer length", "entropy_bits": "Entropy"}


@dataclass(frozen=True)
class Gain:
    """One measure of a method against the baseline: `+1.6 ± 1.1`; `clear`: its interval does not hold zero."""

    title: str
    value: str
    unit: str
    levels: str
    clear: bool


@dataclass(frozen=True)
class Card:
    """A method against the baseline, at a glance."""

    title: str
    where: str
    gains: list[Gain]


def study_cards(methods: dict[str, list[Row]], baseline: str, where: str) -> list[Card]:
    """CES against the baseline, paired by seed; at most two settings of CES, and none without a baseline."""
    if baseline not in methods:
        return []
    cards = []
    for method, rows in methods.items():
        if method == baseline or "train/steps" not in rows[0] or not is_whole_ces(json.loads(rows[0]["settings"])):
            continue
        gains = []
        for measure, (_, factor, decimals) in SHOWN.items():
            if any(measure not in row for row in [*rows, *methods[baseline]]):
                continue
            difference = paired_difference(DataFrame(rows), DataFrame(methods[baseline]), measure)
            if difference is None:
                continue
            ours, theirs = (estimate([row[measure] for row in runs]) for runs in (rows, methods[baseline]))
            unit = "%" if measure == "accuracy" else UNITS[measure]
            levels = f"{theirs.mean * factor:.{decimals}f} → {ours.mean * factor:.{decimals}f} {unit}"
            value = difference.text(factor, decimals, signed=True)
            gains.append(Gain(TITLES[measure], value.replace("-", "−"), UNITS[measure], levels, _is_clear(difference)))
        seeds = f"{len(rows)} seeds, ± half the 95 % interval" if len(rows) > 1 else "one seed, hence no interval"
        cards.append(Card(f"{method} against {baseline}", f"{where}: means of differences by seed, {seeds}", gains))
    return cards[:2]


def _is_clear(difference: Estimate) -> bool:
    return abs(difference.mean) > difference.half_width  # False where there is no interval


def evaluation_cards(compared: dict[str, Any], title: str, row: dict[str, Any]) -> list[Card]:
    """Each run, two at most, against the baseline on a row of the comparison, with its interval over problems."""
    cards = []
    runs, baseline = compared["runs"], compared["baseline"]
    first = runs.index(baseline)
    for place, run in enumerate(runs):
        gains = []
        for measure, key, write, unit in (
            ("accuracy", "accuracy", percent, "%"),
            ("length_tokens", "length", tokens, "tokens"),
        ):
            difference = row[f"{key}_difference"][place]
            if difference is None or difference["mean"] is None:
                continue

            def signed(value: float, write: Any = write) -> str:
                return ("+" if value >= 0 else "−") + write(abs(value))

            low, high = difference["low"], difference["high"]
            levels = f"{write(row[key][first]['mean'])} → {write(row[key][place]['mean'])} {unit}"
            levels += f", 95 % interval {signed(low)} to {signed(high)}"
            gains.append(
                Gain(TITLES[measure], signed(difference["mean"]), UNITS[measure], levels, low > 0 or high < 0)
            )
        if gains:
            where = f"{title}: differences problem by problem, one run each, bootstrap interval over problems"
            cards.append(Card(f"{run} against {baseline}", where, gains))
    return cards[-2:]
