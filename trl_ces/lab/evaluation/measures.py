"""Accuracy, completion length and accuracy within token budgets, for one run or several runs on the same problems.

A completion counts at a budget if it is correct and not longer than the budget. The length includes the text after the
final box. A truncated completion can count only at the largest budget.

The area under the accuracy-budget curve is the mean accuracy over all budgets from 0 to the limit. It equals the mean
of 1 - tokens / limit over all completions, where incorrect completions contribute 0. The reasoning efficiency gap
(REG, arXiv 2506.07104) compares the areas of two models. Unlike the mean length, the area shows whether a model is
accurate at every budget.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import pandas as pd

from .intervals import Interval, Shares, accuracy_difference, accuracy_interval, interval_of_average
from .samples import FIELDS, Sample

CORRECTNESS = ("correct", "correct_qwen")  # columns of this package's grader and of the Qwen2.5-Math rules
SMALLEST_BUDGET, MIN_BUDGETS = 512, 6  # smallest budget in tokens; minimum number of budgets


def by_benchmark(samples: Sequence[Sample]) -> dict[str, pd.DataFrame]:
    """Map each benchmark to the table of its samples, sorted by problem and sample; correctness may be NA."""
    table = pd.DataFrame(samples, columns=list(FIELDS), dtype=object)
    table = table.astype({"problem": int, "sample": int, "tokens": int, **dict.fromkeys(CORRECTNESS, "boolean")})
    return {str(name): rows for name, rows in table.sort_values(["problem", "sample"]).groupby("benchmark")}


def accuracies(samples: pd.DataFrame, by: str, budget: float = math.inf) -> pd.DataFrame:
    """
    Count each problem's scored completions (`completions`) and compute the share that is correct within the budget
    (`correct`). Problems without a scored completion are omitted. `by`: one of `CORRECTNESS`.
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
    remaining = (1 - scored["tokens"] / limit).clip(lower=0) * scored[by].astype(float)
    return remaining.groupby(scored["problem"]).mean()


def pass_at(samples: pd.DataFrame, by: str) -> dict[str, float | None]:
    """Compute pass@k (Chen et al. 2021, Eq. 1) for k = 1, 2, 4, ... over problems whose completions are all scored."""
    problems = [correct for _, correct in samples.groupby("problem")[by]]
    complete = [correct for correct in problems if correct.notna().all()]
    estimates = {}
    for k in (2**power for power in range(min(map(len, problems)).bit_length())):
        values = [
            1.0 - math.comb(len(correct) - int(correct.sum()), k) / math.comb(len(correct), k) for correct in complete
        ]
        estimates[str(k)] = sum(values) / len(values) if values else None
    return estimates


def budgets_up_to(limit: int) -> list[int]:
    """List budgets in ascending order: halve `limit` down to 512 tokens, or further until there are six budgets."""
    budgets = [limit]
    while budgets[0] // 2 >= SMALLEST_BUDGET or (len(budgets) < MIN_BUDGETS and budgets[0] > 1):
        budgets.insert(0, budgets[0] // 2)
    return budgets


def measure(
    runs: Sequence[Sequence[pd.DataFrame]], by: str, baseline: int = 0, limit: int | None = None
) -> dict[str, Any]:
    """
    Measure several runs on the same sets, with 95 % intervals. All sets have the same weight.

    `runs`: for each run, the samples of each set. The result contains the number of `problems` and the number of
    problems that are `scored` in every run, from which accuracy and area are computed. `accuracy`, `length` and `area`
    have one value per run, and `..._difference` is the difference from the `baseline` run. `budgets` contains the
    accuracies at each token budget up to `limit`. Without `limit`, `area` and `budgets` are omitted.
    """
    problems = [scored_by_all(tables_of_set, by) for tables_of_set in zip(*runs, strict=True)]

    def per_problem(value: Callable[[pd.DataFrame], Any]) -> list[list[Any]]:
        return [[value(samples).loc[indices] for samples, indices in zip(run, problems, strict=True)] for run in runs]

    def accuracy(budget: float = math.inf) -> dict[str, Any]:
        tables = per_problem(lambda samples: accuracies(samples, by, budget))
        shares = [
            [Shares(samples["correct"].to_numpy(), samples["completions"].to_numpy()) for samples in run]
            for run in tables
        ]
        return _with_differences("accuracy", shares, baseline, accuracy_interval, accuracy_difference)

    def mean(name: str, values: list[list[pd.Series]], maximum: float = math.inf) -> dict[str, Any]:
        # Both runs have the same problems, so the difficulty of the problems cancels in the difference.
        return _with_differences(
            name,
            values,
            baseline,
            lambda samples: interval_of_average(samples, 0, maximum),
            lambda samples, other: interval_of_average([a - b for a, b in zip(samples, other, strict=True)]),
        )

    results = {
        "problems": sum(samples["problem"].nunique() for samples in runs[0]),
        "scored": sum(map(len, problems)),
        **accuracy(),
        **mean("length", [[samples.groupby("problem")["tokens"].mean() for samples in run] for run in runs]),
    }
    if limit is not None:
        results |= mean("area", per_problem(lambda samples: areas(samples, by, limit)), maximum=1)
        results["budgets"] = [{"budget": budget, **accuracy(budget)} for budget in budgets_up_to(limit)]
    return results


def _with_differences(
    name: str, runs: list[Any], baseline: int, interval: Callable[..., Interval], difference: Callable[..., Interval]
) -> dict[str, Any]:
    return {
        name: [interval(values)._asdict() for values in runs],
        f"{name}_difference": [
            None if run == baseline else difference(values, runs[baseline])._asdict()
            for run, values in enumerate(runs)
        ],
    }
