"""What is measured: accuracy, completion length, and accuracy within token budgets, for one run or several, paired.

A completion counts within a budget if it is correct and ends within it. The text behind its final box belongs to it,
and a truncated completion counts only at the largest budget.

The area is the mean accuracy over all budgets from 0 to the limit, in [0, 1]: the mean of 1 - tokens / limit over
completions, where an incorrect one gives 0. The reasoning efficiency gap (REG, arXiv 2506.07104) compares it between
models: it distinguishes a model that is short only in the mean from one that is good at every budget.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import pandas as pd

from .intervals import Interval, Shares, accuracy_difference, accuracy_interval, interval_of_average
from .samples import FIELDS, Sample

CORRECTNESS = ("correct", "correct_qwen")  # columns: by the project's grader, by the Qwen2.5-Math script's rules
SMALLEST, FEWEST = 512, 6  # a budget in tokens; budgets


def by_benchmark(samples: Sequence[Sample]) -> dict[str, pd.DataFrame]:
    """Benchmark -> table of its samples, sorted by problem and sample; correctness is a nullable boolean."""
    table = pd.DataFrame(samples, columns=list(FIELDS), dtype=object)
    table = table.astype({"problem": int, "sample": int, "tokens": int, **dict.fromkeys(CORRECTNESS, "boolean")})
    return {str(name): own for name, own in table.sort_values(["problem", "sample"]).groupby("benchmark")}


def accuracies(samples: pd.DataFrame, by: str, budget: float = math.inf) -> pd.DataFrame:
    """
    Problem -> `correct`, the share of scored completions that are correct within the budget, and `completions`, their
    number. Problems without a scored completion are left out. `by`: one of `CORRECTNESS`.
    """
    scored = samples.dropna(subset=by)
    within = (scored[by].astype(bool) & (scored["tokens"] <= budget)).astype(float)
    return within.groupby(scored["problem"]).agg(correct="mean", completions="count")


def scored_by_all(runs: Sequence[pd.DataFrame], by: str) -> pd.Index:
    """The problems of one set that have a scored completion in every run."""
    return reduce(pd.Index.intersection, (accuracies(samples, by).index for samples in runs))


def areas(samples: pd.DataFrame, by: str, limit: int) -> pd.Series:
    """Problem -> mean accuracy over the budgets up to `limit`; problems without a scored completion are left out."""
    scored = samples.dropna(subset=by)
    left = (1 - scored["tokens"] / limit).clip(lower=0) * scored[by].astype(float)
    return left.groupby(scored["problem"]).mean()


def pass_at(samples: pd.DataFrame, by: str) -> dict[str, float | None]:
    """
    pass@k for the powers of two up to the number of samples, over problems with all completions scored: the
    probability that k of a problem's n completions contain a correct one (Chen et al. 2021, Eq. 1).
    """
    problems = [own for _, own in samples.groupby("problem")[by]]
    complete = [own for own in problems if own.notna().all()]
    found = {}
    for k in (2**power for power in range(min(map(len, problems)).bit_length())):
        values = [1.0 - math.comb(len(own) - int(own.sum()), k) / math.comb(len(own), k) for own in complete]
        found[str(k)] = sum(values) / len(values) if values else None
    return found


def budgets_up_to(limit: int) -> list[int]:
    """The limit, halved down to 512 tokens; for small limits at least six, down to 1. Ascending."""
    found = [limit]
    while found[0] // 2 >= SMALLEST or (len(found) < FEWEST and found[0] > 1):
        found.insert(0, found[0] // 2)
    return found


def measure(
    runs: Sequence[Sequence[pd.DataFrame]], by: str, baseline: int = 0, limit: int | None = None
) -> dict[str, Any]:
    """
    Measure several runs over the same sets, all sets with the same weight, with 95 % intervals.

    Args:
        runs (`Sequence[Sequence[DataFrame]]`): For each run the samples of each set.
        by (`str`): The column `"correct"` or `"correct_qwen"`.
        baseline (`int`): The run that the others are compared with, question by question.
        limit (`int`, *optional*): The largest token budget; without it, budgets and area are left out.

    Returns:
        `dict`: `problems` and `scored`, the number that every run has scored, which alone count in accuracy and area;
        by run `accuracy`, `length` and `area`, each with `..._difference` to the baseline (whose own is `None`);
        `budgets`, for each budget its accuracy and difference.
    """
    kept = [scored_by_all(of_set, by) for of_set in zip(*runs, strict=True)]

    def each(value: Callable[[pd.DataFrame], Any]) -> list[list[Any]]:
        return [[value(own).loc[some] for own, some in zip(run, kept, strict=True)] for run in runs]

    def accuracy(budget: float = math.inf) -> dict[str, Any]:
        tables = each(lambda own: accuracies(own, by, budget))
        shares = [[Shares(own["correct"].to_numpy(), own["completions"].to_numpy()) for own in run] for run in tables]
        return _paired("accuracy", shares, baseline, accuracy_interval, accuracy_difference)

    def mean(name: str, values: list[list[pd.Series]], most: float = math.inf) -> dict[str, Any]:
        # The same questions in both runs, so their difficulty cancels in the difference.
        return _paired(
            name,
            values,
            baseline,
            lambda own: interval_of_average(own, 0, most),
            lambda own, other: interval_of_average([a - b for a, b in zip(own, other, strict=True)]),
        )

    found = {
        "problems": sum(own["problem"].nunique() for own in runs[0]),
        "scored": sum(map(len, kept)),
        **accuracy(),
        **mean("length", [[own.groupby("problem")["tokens"].mean() for own in run] for run in runs]),
    }
    if limit is not None:
        found |= mean("area", each(lambda own: areas(own, by, limit)), most=1)
        found["budgets"] = [{"budget": budget, **accuracy(budget)} for budget in budgets_up_to(limit)]
    return found


def _paired(
    name: str, runs: list[Any], baseline: int, interval: Callable[..., Interval], difference: Callable[..., Interval]
) -> dict[str, Any]:
    return {
        name: [interval(own)._asdict() for own in runs],
        f"{name}_difference": [
            None if run == baseline else difference(own, runs[baseline])._asdict() for run, own in enumerate(runs)
        ],
    }
