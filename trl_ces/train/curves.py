"""Curves of what TRL logged in training, and their plot."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..support.reward_names import accuracy_reward_index
from .checkpoints import STATE

# DAPO, CES, then other methods in order: distinguishable without colour.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#8a5a00", "linestyle": "--", "marker": "s", "markerfacecolor": "white"},
    {"color": "#0059b3", "linestyle": "-", "marker": "o"},
    {"color": "#b3005e", "linestyle": "-.", "marker": "^"},
    {"color": "#3a7d00", "linestyle": ":", "marker": "D", "markerfacecolor": "white"},
    {"color": "#5b3fb3", "linestyle": (0, (5, 1)), "marker": "v"},
    {"color": "#555555", "linestyle": (0, (3, 1, 1, 1)), "marker": "x"},
    {"color": "#c24100", "linestyle": (0, (1, 1)), "marker": "P"},
    {"color": "#007a7a", "linestyle": (0, (8, 2)), "marker": "<", "markerfacecolor": "white"},
    {"color": "#000000", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "*"},
    {"color": "#7d7d00", "linestyle": (0, (2, 2)), "marker": ">"},
    {"color": "#9e2a2b", "linestyle": (0, (6, 1, 1, 1)), "marker": "p", "markerfacecolor": "white"},
    {"color": "#2f6f4f", "linestyle": (0, (4, 2, 1, 2)), "marker": "h"},
    {"color": "#6b4c9a", "linestyle": (0, (3, 3)), "marker": "d"},
    {"color": "#00507a", "linestyle": (0, (1, 3)), "marker": "8", "markerfacecolor": "white"},
)
PANELS = {
    "accuracy": ("Accuracy", "correct completions"),
    "length": ("Completion length", "tokens"),
    "entropy": ("Entropy", "bits per token"),
}
Curve = dict[str, list[float]]


def logged_accuracy_reward(state: Mapping[str, Any], recipe: Mapping[str, Any]) -> str | None:
    """Name of the accuracy reward in a Trainer's log, by the trainer's own rule; `None` if missing or ambiguous."""
    keys = dict.fromkeys(key for entry in state["log_history"] for key in entry)
    names = [found[1] for found in (re.fullmatch(r"rewards/(.+)/mean", key) for key in keys) if found]
    try:
        return names[accuracy_reward_index(names, recipe.get("ces_accuracy_reward"))] if names else None
    except ValueError:
        return None


def read_curves(run_dir: Path, accuracy_reward: str) -> Curve:
    """Reads what TRL logged in training from `trainer_state.json`."""
    history = json.loads((run_dir / STATE).read_text(encoding="utf-8"))["log_history"]
    accuracy = f"rewards/{accuracy_reward}/mean"
    # TRL logs `None` if no completion could be scored, and the Trainer for what is not finite.
    drawn = ("completions/mean_length", accuracy, "entropy")
    rows = [entry for entry in history if all(entry.get(name) is not None for name in drawn)]
    return {
        "step": [row["step"] for row in rows],
        "accuracy": [row[accuracy] for row in rows],
        "length": [row["completions/mean_length"] for row in rows],
        "entropy": [row["entropy"] / math.log(2) for row in rows],
    }


def plot_curves(curves: dict[str, list[Curve]], file: Path) -> Path:
    """Plots accuracy, length and entropy over the training steps of all methods."""
    figure, axes = panels(len(curves))
    styles = styles_of(list(curves))
    for axis, key in zip(axes, PANELS, strict=True):
        for name, runs in curves.items():
            style = styles[name]
            for run in runs:
                faint = {"color": style["color"], "linestyle": style["linestyle"], "alpha": 0.25, "linewidth": 1}
                axis.plot(run["step"], run[key] if len(runs) == 1 else running_mean(run[key]), **faint)
            steps, mean, _, _ = mean_and_range(runs, key)
            axis.plot(steps, mean, label=name, markersize=5, markevery=5, linewidth=2, **style)
    axes[2].set_ylim(bottom=0)
    axes[0].legend(frameon=False, loc="lower right", fontsize=9 if len(curves) < 4 else 8)
    seeds = {len(runs) for runs in curves.values()}
    faint_means = "each point" if seeds == {1} else "each seed"
    figure.supxlabel(f"bold: mean over five logged points; faint: {faint_means}", fontsize=9)
    figure.savefig(file, dpi=150)
    return file


def styles_of(methods: list[str]) -> dict[str, dict[str, Any]]:
    """Method -> style. DAPO and CES have the same in every picture."""
    own = {"DAPO": STYLES[0], "CES": STYLES[1]}
    others = [method for method in methods if method not in own]
    rest = [STYLES[2 + place % (len(STYLES) - 2)] for place in range(len(others))]
    return own | dict(zip(others, rest, strict=True))


def panels(methods: int) -> tuple[Any, Any]:
    """A figure and its three axes, with titles and units."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure = Figure(figsize=(11, 3.6 if methods < 4 else 4.2))
    axes = figure.subplots(1, 3)
    figure.set_layout_engine("constrained", wspace=0.06)
    for axis, (title, unit) in zip(axes, PANELS.values(), strict=True):
        axis.set(title=title, xlabel="optimizer step", ylabel=unit)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", alpha=0.3)
    axes[0].yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))  # not every 2.5 %, rounded
    axes[0].yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    return figure, axes


def mean_and_range(runs: list[Curve], key: str) -> tuple[list[float], list[float], list[float], list[float]]:
    """Steps that all runs have reached; there the mean of their running means, the lowest and the highest."""
    shared = set.intersection(*(set(run["step"]) for run in runs))
    steps = [step for step in runs[0]["step"] if step in shared]
    smooth = []
    for run in runs:
        at = dict(zip(run["step"], run[key], strict=True))
        smooth.append(running_mean([at[step] for step in steps]))
    columns = list(zip(*smooth, strict=True))
    means = [sum(values) / len(runs) for values in columns]
    return steps, means, [min(values) for values in columns], [max(values) for values in columns]


def running_mean(values: list[float]) -> list[float]:
    """Mean over the five values around each, fewer at the ends but as many on either side."""
    means = []
    for place in range(len(values)):
        reach = min(2, place, len(values) - 1 - place)
        window = values[place - reach : place + reach + 1]
        means.append(sum(window) / len(window))
    return means
