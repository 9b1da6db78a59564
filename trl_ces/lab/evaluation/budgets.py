"""Accuracy at every token budget, from the completions that an evaluation has stored, and the area under that curve.

A completion counts at a budget if it is correct and ends within it: a model that is cut off there has given it. What
it says behind its final box belongs to it, and one that reached the limit counts at the limit alone, if it counts.

The area is the mean accuracy over all budgets from 0 to the limit, in [0, 1]: the mean of 1 - tokens / limit over
completions, where a wrong one gives 0. It is what the reasoning efficiency gap (REG, arXiv 2506.07104) compares
between models: a model that is short only in the mean, and one that is good at every budget, differ in it.
"""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd

from ...support.tables import Table, markdown, percent
from .benchmarks import BENCHMARKS
from .proportions import Shares, accuracy_difference, accuracy_interval
from .statistics import Interval, interval_of_average

PICTURE = "budgets.png"
SMALLEST, FEWEST = 512, 6  # a budget in tokens; budgets


def budgets_up_to(limit: int) -> list[int]:
    """The limit, halved down to 512 tokens; for small limits at least six, down to 1. Ascending."""
    found = [limit]
    while found[0] // 2 >= SMALLEST or (len(found) < FEWEST and found[0] > 1):
        found.insert(0, found[0] // 2)
    return found


def within(samples: pd.DataFrame, verdict: str, budgets: Sequence[int]) -> pd.DataFrame:
    """Problem -> share of correct completions at each budget, and `answers`, how many have a verdict, if any has."""
    judged = samples.dropna(subset=verdict)
    right = judged[verdict].astype(bool)
    counted: dict[Any, pd.Series] = {
        budget: (right & (judged["tokens"] <= budget)).astype(float) for budget in budgets
    }
    by_problem = pd.DataFrame({**counted, "problem": judged["problem"]}).groupby("problem")
    return by_problem.mean().assign(answers=by_problem.size())


def areas(samples: pd.DataFrame, verdict: str, limit: int) -> pd.Series:
    """Problem -> mean accuracy over the budgets up to `limit`; without a completion with a verdict, no row."""
    judged = samples.dropna(subset=verdict)
    left = (1 - judged["tokens"] / limit).clip(lower=0) * judged[verdict].astype(float)
    return left.groupby(judged["problem"]).mean()


def curves(runs: Sequence[Sequence[pd.DataFrame]], verdict: str, limit: int, baseline: int = 0) -> dict[str, Any]:
    """
    The curves of several runs over the same sets, each set as important as another.

    Args:
        runs (`Sequence[Sequence[DataFrame]]`): Of each run the samples of each set.
        verdict (`str`): The column that says what is correct.
        limit (`int`): The largest budget.
        baseline (`int`): The run that the others are compared with, question by question.

    Returns:
        `dict`: `budgets`; by run, `accuracy` at each and `area`, with 95 % intervals; and `accuracy_difference` and
        `area_difference`, `None` for the baseline.
    """
    budgets = budgets_up_to(limit)
    whole = [[areas(own, verdict, limit) for own in run] for run in runs]
    judged = [reduce(pd.Index.intersection, (own.index for own in of_set)) for of_set in zip(*whole, strict=True)]
    area = [[own.loc[kept] for own, kept in zip(run, judged, strict=True)] for run in whole]
    shares = []
    for run in runs:
        found = [within(own, verdict, budgets).loc[kept] for own, kept in zip(run, judged, strict=True)]
        shares.append([[Shares(own[b].to_numpy(), own["answers"].to_numpy()) for own in found] for b in budgets])
    pairs = [[one - other for one, other in zip(own, area[baseline], strict=True)] for own in area]
    return {
        "budgets": budgets,
        "accuracy": [[accuracy_interval(sets)._asdict() for sets in own] for own in shares],
        "area": [interval_of_average(own, 0, 1)._asdict() for own in area],
        "accuracy_difference": [
            None
            if run == baseline
            else [accuracy_difference(*pair)._asdict() for pair in zip(own, shares[baseline], strict=True)]
            for run, own in enumerate(shares)
        ],
        "area_difference": [
            None if run == baseline else interval_of_average(pair)._asdict() for run, pair in enumerate(pairs)
        ],
    }


def of_one_run(samples: pd.DataFrame, verdict: str, limit: int) -> dict[str, Any]:
    """A run on one set: its curve, its area, and mean tokens of correct and of wrong completions."""
    found = curves([[samples]], verdict, limit)
    judged = samples.dropna(subset=verdict)
    tokens = judged.groupby(judged[verdict].astype(bool))["tokens"].mean()
    return {
        "budgets": found["budgets"],
        "accuracy": [entry["mean"] for entry in found["accuracy"][0]],
        "area": found["area"][0],
        "length_correct": tokens.get(True),
        "length_wrong": tokens.get(False),
    }


def budget_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Accuracy at each budget by benchmark, as Markdown; `found` has what [`of_one_run`] returns."""
    budgets = next(iter(found.values()))["budgets"]
    header = ["Acc ↑ within", *map(str, budgets), "Area", "Len, correct", "Len, wrong"]
    rows = [
        [
            BENCHMARKS[name].title,
            *(percent(value) for value in own["accuracy"]),
            percent(own["area"]["mean"]),
            *("-" if own[which] is None else f"{own[which]:.0f}" for which in ("length_correct", "length_wrong")),
        ]
        for name, own in found.items()
    ]
    return markdown(header, rows)


def paired_table(names: Sequence[str], baseline: int, average: str, found: Mapping[str, Any]) -> Table:
    """A budget a line: each run's `average`, and its difference to the baseline with interval."""
    others = [run for run in range(len(names)) if run != baseline]
    header = ["Tokens", *names, *(f"{names[run]} − {names[baseline]}" for run in others)]

    def cells(means: Sequence[Mapping[str, Any]], differences: Sequence[Any]) -> list[str]:
        apart = (Interval(**differences[run]).text(percent, signed=True) for run in others)
        return [*(percent(entry["mean"]) for entry in means), *apart]

    rows = []
    for place, budget in enumerate(found["budgets"]):
        means = [own[place] for own in found["accuracy"]]
        rows.append([str(budget), *cells(means, [own and own[place] for own in found["accuracy_difference"]])])
    rows.append(["Area", *cells(found["area"], found["area_difference"])])
    note = "Correct completions that end within so many tokens, %. Area: their mean over all budgets up to the last."
    return Table(f"{average} within token budgets", header, rows, note)


def draw_budgets(lines: Mapping[str, tuple[Sequence[int], Sequence[float | None]]], file: Path) -> Path:
    """Writes the picture: accuracy over budgets, in doublings, a line a name; the file's suffix gives the format."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter, ScalarFormatter

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axis = figure.subplots()
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color="#d9dee6", linewidth=0.8)
    for name, (budgets, shares) in lines.items():
        axis.plot(
            budgets, [math.nan if share is None else share for share in shares], marker="o", markersize=4, label=name
        )
    axis.set_xscale("log", base=2)
    axis.set_xticks(sorted({budget for budgets, _ in lines.values() for budget in budgets}))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axis.set(xlabel="token budget", ylabel="correct completions within it", ylim=(0, None))
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    figure.savefig(file, dpi=150)
    return file
