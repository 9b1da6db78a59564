"""Measure accuracy, completion length and accuracy within token budgets, for one run or for several paired runs.

A completion counts within a budget if it is correct and ends within it. Its length includes the text after its final
box, and a truncated completion counts only at the largest budget.

The area is the mean accuracy over all budgets from 0 to the limit, in [0, 1]. It equals the mean over completions of
1 - tokens / limit, with 0 for incorrect ones. The reasoning efficiency gap (REG, arXiv 2506.07104) compares it between
models; it separates a model that is good at every budget from one that is short only on average.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import pandas as pd

from .intervals import Interval, Shares, accuracy_difference, accuracy_interval, interval_of_average
from .samples import FIELDS, Sample

CORRECTNESS = ("correct", "correct_qwen")  # columns: by this package's grader, by the Qwen2.5-Math script's rules
SMALLEST, FEWEST = 512, 6  # smallest budget in tokens, minimum number of budgets


def by_benchmark(samples: Sequence[Sample]) -> dict[str, pd.DataFrame]:
    """Map each benchmark to the table of its samples, sorted by problem and sample; correctness is nullable."""
    table = pd.DataFrame(samples, columns=list(FIELDS), dtype=object)
    table = table.astype({"problem": int, "sample": int, "tokens": int, **dict.fromkeys(CORRECTNESS, "boolean")})
    return {str(name): own for name, own in table.sort_values(["problem", "sample"]).groupby("benchmark")}


def accuracies(samples: pd.DataFrame, by: str, budget: float = math.inf) -> pd.DataFrame:
    """
    Compute for each problem `completions`, the number of scored completions, and `correct`, the share of them that is
    correct within the budget. Problems without a scored completion are left out. `by`: one of `CORRECTNESS`.
    """
    scored = samples.dropna(subset=by)
    within = (scored[by].astype(bool) & (scored["tokens"] <= budget)).astype(float)
    return within.groupby(scored["problem"]).agg(correct="mean", completions="count")


def scored_by_all(runs: Sequence[pd.DataFrame], by: str) -> pd.Index:
    """Return the problems of one set that have a scored completion in every run."""
    return reduce(pd.Index.intersection, (accuracies(samples, by).index for samples in runs))


def areas(samples: pd.DataFrame, by: str, limit: int) -> pd.Series:
    """Average each problem's accuracy over all budgets up to `limit`; omit problems without a scored completion."""
    scored = samples.dropna(subset=by)
    left = (1 - scored["tokens"] / limit).clip(lower=0) * scored[by].astype(float)
    return left.groupby(scored["problem"]).mean()


def pass_at(samples: pd.DataFrame, by: str) -> dict[str, float | None]:
    """
    Compute pass@k for the powers of two up to the number of samples, over problems with all completions scored: the
    probability that k of a problem's n completions include a correct one (Chen et al. 2021, Eq. 1).
    """
    problems = [own for _, own in samples.groupby("problem")[by]]
    complete = [own for own in problems if own.notna().all()]
    found = {}
    for k in (2**power for power in range(min(map(len, problems)).bit_length())):
        values = [1.0 - math.comb(len(own) - int(own.sum()), k) / math.comb(len(own), k) for own in complete]
        found[str(k)] = sum(values) / len(values) if values else None
    return found


def budgets_up_to(limit: int) -> list[int]:
    """Halve the limit down to 512 tokens, or for small limits until there are six budgets or 1; ascending."""
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
        runs (`Sequence[Sequence[DataFrame]]`): Samples of each set, for each run.
        by (`str`): The column `"correct"` or `"correct_qwen"`.
        baseline (`int`): Index of the run with which the others are compared, question by question.
        limit (`int`, *optional*): Largest token budget; without it, budgets and area are left out.

    Returns:
        `dict`: `problems`, the number of problems; `scored`, the number of problems scored in every run, on which
        accuracy and area are based; for each run `accuracy`, `length` and `area`, each with `..._difference` to the
        baseline (`None` for the baseline itself); `budgets`, the accuracy and difference at each budget.
    """
    kept = [scored_by_all(of_set, by) for of_set in zip(*runs, strict=True)]

    def each(value: Callable[[pd.DataFrame], Any]) -> list[list[Any]]:
        return [[value(own).loc[some] for own, some in zip(run, kept, strict=True)] for run in runs]

    def accuracy(budget: float = math.inf) -> dict[str, Any]:
        tables = each(lambda own: accuracies(own, by, budget))
        shares = [[Shares(own["correct"].to_numpy(), own["completions"].to_numpy()) for own in run] for run in tables]
        return _paired("accuracy", shares, baseline, accuracy_interval, accuracy_difference)

    def mean(name: str, values: list[list[pd.Series]], most: float = math.inf) -> dict[str, Any]:
        # Both runs have the same questions, so the questions' difficulty cancels in the difference.
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
