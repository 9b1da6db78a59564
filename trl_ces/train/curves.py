"""Read and plot training curves from TRL's log."""

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

from .checkpoints import STATE

# The line styles of DAPO, CES and other methods can be distinguished without color.
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
)
PANELS = {
    "accuracy": ("Accuracy", "correct completions, %"),
    "length": ("Completion length", "tokens"),
    "entropy": ("Entropy", "bits per token"),
}
Curve = dict[str, list[float]]


def read_curves(run_dir: Path, accuracy_reward: str) -> Curve:
    """Read a run's curves from `trainer_state.json`; the length is in tokens, and the entropy in bits per token."""
    history = json.loads((run_dir / STATE).read_text(encoding="utf-8"))["log_history"]
    accuracy, length = f"rewards/{accuracy_reward}/mean", "completions/mean_length"
    # Values are `None` if they are not finite or if no completion could be scored.
    rows = [entry for entry in history if all(entry.get(name) is not None for name in (accuracy, length, "entropy"))]
    return {
        "step": [row["step"] for row in rows],
        "accuracy": [row[accuracy] for row in rows],
        "length": [row[length] for row in rows],
        "entropy": [row["entropy"] / math.log(2) for row in rows],
    }


def plot_curves(curves: dict[str, list[Curve]], file: Path) -> Path:
    """Plot each method's accuracy, length and entropy against the training step, with one curve per seed."""
    from matplotlib.figure import Figure

    curves = {
        name: [run | {"accuracy": [100 * value for value in run["accuracy"]]} for run in runs]
        for name, runs in curves.items()
    }
    figure = Figure(figsize=(11, 3.6 if len(curves) < 4 else 4.2))
    axes = figure.subplots(1, 3)
    figure.set_layout_engine("constrained", wspace=0.06)
    styles = styles_of(list(curves))
    for axis, (key, (title, unit)) in zip(axes, PANELS.items(), strict=True):
        axis.set(title=title, xlabel="optimizer step", ylabel=unit)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", alpha=0.3)
        for name, runs in curves.items():
            style = styles[name]
            faint = {"color": style["color"], "linestyle": style["linestyle"], "alpha": 0.25, "linewidth": 1}
            for run in runs:
                points = run["step"], run[key]
                axis.plot(*(points if len(runs) == 1 else running_mean(*points)), **faint)
            axis.plot(*mean_curve(runs, key), label=name, markersize=5, markevery=5, linewidth=2, **style)
    axes[2].set_ylim(bottom=0)
    axes[0].legend(frameon=False, loc="lower right", fontsize=9 if len(curves) < 4 else 8)
    faint_lines = "each point" if all(len(runs) == 1 for runs in curves.values()) else "each seed"
    figure.supxlabel(f"bold: mean over five logged points; faint: {faint_lines}", fontsize=9)
    figure.savefig(file, dpi=150)
    return file


def styles_of(methods: list[str]) -> dict[str, dict[str, Any]]:
    """Map each method to a line style; the styles of DAPO and CES are the same in all figures."""
    fixed = {"DAPO": STYLES[0], "CES": STYLES[1]}
    others = [method for method in methods if method not in fixed]
    return fixed | {name: STYLES[2 + index % (len(STYLES) - 2)] for index, name in enumerate(others)}


def mean_curve(runs: list[Curve], key: str) -> tuple[list[float], list[float]]:
    """Average `key` over all runs at their common steps, and return the running mean of the average."""
    steps = [step for step in runs[0]["step"] if all(step in run["step"] for run in runs)]
    values = [dict(zip(run["step"], run[key], strict=True)) for run in runs]
    return running_mean(steps, [fmean(by_step[step] for by_step in values) for step in steps])


def running_mean(steps: list[float], values: list[float]) -> tuple[list[float], list[float]]:
    """Return the steps and values of a centered running mean over full windows of five points.

    Partial windows at the ends would look like jumps. Fewer than five points are returned unchanged.
    """
    radius = 2 if len(values) >= 5 else 0
    inner = range(radius, len(values) - radius)
    return [steps[index] for index in inner], [fmean(values[index - radius : index + radius + 1]) for index in inner]
