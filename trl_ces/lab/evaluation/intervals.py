"""
95 % intervals over problems: Wilson intervals for accuracies, bootstrap-t intervals for other means.

The problems of a set are treated as a random sample of similar problems. Completions of one problem are correlated
(ρ), so n problems with k completions each count as n / (ρ + (1 - ρ) / k) independent completions (design effect of
cluster sampling, Kish 1965). The difference between two runs on the same problems uses Newcombe's square-and-add
interval for paired proportions (1998, method 10). Unlike bootstrap intervals, these intervals are also defined if
all completions are correct or all are incorrect. docs/evaluation.md lists their coverage.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

Z = NormalDist().inv_cdf(0.975)
# This constant is added to the variance in the denominator of correlations, in units of problems. With few correct (or
# few incorrect) completions, the estimate of ρ is uncertain, and the constant moves the estimate towards 1. The value
# was chosen by simulation. With 0, the coverage of intervals for accuracies near 0 and 1 is below 95 %. Larger values
# make intervals for independent completions too wide.
EXTRA_VARIANCE = 1 / 8
RESAMPLES, SEED = 10_000, 0
# Number of resampling indices drawn at once; all indices for 2,818 problems would take 225 MB.
INDICES_PER_CHUNK = 2**22


class Interval(NamedTuple):
    """A mean and its 95 % interval; fields that cannot be computed are `None`."""

    mean: float | None
    low: float | None
    high: float | None

    def text(self, format_number: Callable[[float | None], str], signed: bool = False) -> str:
        """Format as `69.6 [67.1, 72.0]`, or only the mean if there is no interval."""
        mean, *ends = (
            ("+" if signed and value is not None and value >= 0 else "") + format_number(value) for value in self
        )
        return mean if self.low is None else f"{mean} [{', '.join(ends)}]"


def interval_of_average(
    sets: Sequence[Sequence[float]], minimum: float = -math.inf, maximum: float = math.inf
) -> Interval:
    """
    Compute the unweighted mean of several sets' means, as in the paper, with its bootstrap-t interval (Efron and
    Tibshirani 1993, section 12.5), which is suitable for skewed values such as lengths.

    Problems are resampled within each set, because the sets are not a random sample. t = (mean* - mean) / error*,
    where error* is the standard error of a resample, but at least half of the sample's standard error. Otherwise, a
    resample with few distinct values could make t arbitrarily large. `low` and `high` are `None` if a set has only one
    problem or if the values within each set are equal. `minimum` and `maximum` clip the ends of the interval.
    """
    if not sets or not all(map(len, sets)):
        return Interval(None, None, None)
    mean = math.fsum(math.fsum(values) / len(values) for values in sets) / len(sets)
    centred = [np.asarray(values, dtype=np.float64) - math.fsum(values) / len(values) for values in sets]
    error = math.sqrt(sum(values.var() / max(len(values) - 1, 1) for values in centred)) / len(sets)
    if error == 0 or min(map(len, sets)) == 1:
        return Interval(mean, None, None)
    resamples = [_resample(values, SEED + number) for number, values in enumerate(centred)]
    means = sum(means for means, _ in resamples) / len(sets)
    errors = np.sqrt(sum(squares for _, squares in resamples)) / len(sets)
    low, high = np.quantile(means / np.maximum(errors, error / 2), [0.025, 0.975])
    ends = mean - high * error, mean - low * error
    return Interval(mean, *(float(min(max(end, minimum), maximum)) for end in ends))


def _resample(values: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw `RESAMPLES` bootstrap samples; return their means and squared standard errors."""
    random, chunk = np.random.default_rng(seed), max(1, INDICES_PER_CHUNK // len(values))
    means, squares = [], []
    for start in range(0, RESAMPLES, chunk):
        samples = values[random.integers(len(values), size=(min(chunk, RESAMPLES - start), len(values)))]
        means.append(samples.mean(axis=1))
        squares.append(samples.var(axis=1) / max(len(values) - 1, 1))
    return np.concatenate(means), np.concatenate(squares)


@dataclass(frozen=True)
class Shares:
    """Per-problem shares of correct completions for a set of n problems."""

    correct: np.ndarray  # shape (n,), share of correct completions of each problem, in [0, 1]
    completions: np.ndarray  # shape (n,), number of completions per problem, at least 1


def wilson(share: float, size: float) -> tuple[float, float]:
    """Compute Wilson's 95 % score interval (1927): all p with |share - p| <= z sqrt(p (1 - p) / size)."""
    center = (share + Z**2 / (2 * size)) / (1 + Z**2 / size)
    half_width = Z * math.sqrt(share * (1 - share) / size + Z**2 / (4 * size**2)) / (1 + Z**2 / size)
    return min(max(center - half_width, 0.0), share), max(min(center + half_width, 1.0), share)


def effective_size(shares: Shares) -> float:
    """Compute the equivalent number of independent completions: from n (ρ = 1) to all completions (ρ = 0)."""
    correct, n, repeated = shares.correct, len(shares.correct), shares.completions > 1
    if not repeated.any():
        return n
    mean = correct.mean()
    # n times unbiased estimates of a completion's variance p (1 - p): the total, and the part within problems.
    total = n * mean * (1 - mean) + _products(correct, correct) / max(n - 1, 1)
    x, k = correct[repeated], shares.completions[repeated]
    within = (x * (1 - x) * k / (k - 1)).mean() * n
    correlation = min(max(1 - within / (total + EXTRA_VARIANCE), 0.0), 1.0)
    return n / (correlation + (1 - correlation) * (1 / shares.completions).mean())


def _products(a: np.ndarray, b: np.ndarray) -> float:
    """Sum the products of the deviations from the two means over all problems."""
    return ((a - a.mean()) * (b - b.mean())).sum()


def accuracy_interval(sets: Sequence[Shares]) -> Interval:
    """
    Compute the unweighted mean of the sets' accuracies with its Wilson interval.

    The sample size N of one set is its [`effective_size`]. For S sets with effective sizes n_s, N solves
    p̄ (1 - p̄) / N = sum_s p_s (1 - p_s) / n_s / S². Each p_s includes one additional, half-correct completion;
    otherwise, sets with only correct or only incorrect completions would have zero variance. All fields are `None` if
    there are no sets or a set has no problems.
    """
    return Interval(*_bounds(sets)) if _not_empty(sets) else Interval(None, None, None)


def _not_empty(sets: Sequence[Shares]) -> bool:
    return bool(sets) and all(len(shares.correct) for shares in sets)


def _bounds(sets: Sequence[Shares]) -> tuple[float, float, float]:
    means = np.array([shares.correct.mean() for shares in sets])
    sizes = np.array([effective_size(shares) for shares in sets])
    smooth = (means * sizes + 0.5) / (sizes + 1)
    middle = smooth.mean()
    size = len(sets) ** 2 * middle * (1 - middle) / (smooth * (1 - smooth) / sizes).sum()
    mean = float(means.mean())
    return mean, *wilson(mean, float(size))


def accuracy_difference(first: Sequence[Shares], second: Sequence[Shares]) -> Interval:
    """
    Subtract the second run's average accuracy from the first run's, for the same problems in the same order.

    low = d - sqrt(x² - 2 φ x y + y²), where d is the difference of the means, x and y are the distances of the two
    runs' bounds from their means, and φ is the correlation of the means (Newcombe 1998, method 10), shrunk towards 0
    if there are few completions.
    """
    if not _not_empty(first):
        return Interval(None, None, None)
    (first_mean, low, high), (second_mean, other_low, other_high) = _bounds(first), _bounds(second)
    pairs = [(a.correct, b.correct) for a, b in zip(first, second, strict=True)]
    covariance = sum(_products(a, b) / len(a) ** 2 for a, b in pairs)
    variances = [
        sum((_products(pair[run], pair[run]) + EXTRA_VARIANCE) / len(pair[run]) ** 2 for pair in pairs)
        for run in (0, 1)
    ]
    correlation = covariance / math.sqrt(variances[0] * variances[1])

    def distance(a: float, b: float) -> float:
        return math.sqrt(max(a**2 - 2 * correlation * a * b + b**2, 0.0))

    difference = first_mean - second_mean
    low_end = difference - distance(first_mean - low, other_high - second_mean)
    return Interval(difference, low_end, difference + distance(high - first_mean, second_mean - other_low))
