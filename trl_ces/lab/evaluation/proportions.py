"""
Accuracy with its 95 % interval: Wilson's score interval at the number of independent completions that the data
are worth.

A set's problems stand for all problems like them. Several completions of one problem resemble each other (correlation
ρ), so n problems with k completions each are worth n / (ρ + (1 - ρ) / k), the design effect of cluster sampling (Kish
1965). The difference of two runs on the same problems takes Newcombe's square-and-add interval for paired proportions
(1998, method 10). Unlike the bootstrap, 0 of n and n of n have intervals too. docs/evaluation.md has the coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from .statistics import Interval

Z = NormalDist().inv_cdf(0.975)
# Added to the correlated variance, in problems: few correct (or few wrong) completions say little about ρ, which then
# tends to 1. Chosen by simulation: 0 undercovers accuracies near 0 and 1, more makes independent draws overcover.
CAUTION = 1 / 8


@dataclass(frozen=True)
class Shares:
    """The completions of one set of problems. Leading axes, if any, are repetitions of the whole set."""

    right: np.ndarray  # shape (..., n), share of each problem's completions that are correct, in [0, 1]
    answers: np.ndarray  # shape (n,), how many completions each share is of, at least 1


def wilson(share: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's score interval (1927), 95 %: all p with |share - p| <= z sqrt(p (1 - p) / size)."""
    middle = (share + Z**2 / (2 * size)) / (1 + Z**2 / size)
    half = Z * np.sqrt(share * (1 - share) / size + Z**2 / (4 * size**2)) / (1 + Z**2 / size)
    return np.clip(middle - half, 0, share), np.clip(middle + half, share, 1)


def effective_size(shares: Shares) -> np.ndarray:
    """The number of independent completions with the variance of the set's mean; from n to the number of all."""
    right, answers = np.asarray(shares.right, float), np.asarray(shares.answers, float)
    n, several = right.shape[-1], answers > 1
    if not several.any():
        return np.full(right.shape[:-1], float(n))
    mean = right.mean(axis=-1)
    # Per set: the variance p (1 - p) of a completion, and the part of it within problems; both unbiased.
    total = n * mean * (1 - mean) + _products(right, right) / max(n - 1, 1)
    x, k = right[..., several], answers[several]
    within = (x * (1 - x) * k / (k - 1)).mean(axis=-1) * n
    correlation = np.clip(1 - within / (total + CAUTION), 0, 1)
    return n / (correlation + (1 - correlation) * (1 / answers).mean())


def average_bounds(sets: Sequence[Shares]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Unweighted mean over the sets of their accuracies, and its bounds: of one set, Wilson's at [`effective_size`].

    Several sets vary less than one with their average: p̄ (1 - p̄) / N = sum_s p_s (1 - p_s) / n_s / S² gives N. Each
    p_s is taken with one more completion, half correct, or sets all correct or all wrong would seem not to vary.
    """
    means = np.stack([np.mean(each.right, axis=-1) for each in sets])
    sizes = np.stack([effective_size(each) for each in sets])
    mean = means.mean(axis=0)
    smooth = (means * sizes + 0.5) / (sizes + 1)
    middle = smooth.mean(axis=0)
    size = len(sets) ** 2 * middle * (1 - middle) / (smooth * (1 - smooth) / sizes).sum(axis=0)
    return mean, *wilson(mean, size)


def difference_bounds(first: Sequence[Shares], second: Sequence[Shares]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Average accuracy of the first run minus the second's, on the same problems in the same order, and its bounds.

    low = d - sqrt(a² - 2 φ a b + b²) with a and b the distances of the two runs' bounds from their means, and φ the
    correlation of these means (Newcombe 1998, method 10); φ is drawn to 0 as far as few completions tell it.
    """
    (one, low, high), (two, other_low, other_high) = average_bounds(first), average_bounds(second)
    pairs = [(np.asarray(a.right, float), np.asarray(b.right, float)) for a, b in zip(first, second, strict=True)]
    together = sum(_products(a, b) / a.shape[-1] ** 2 for a, b in pairs)
    alone = [sum((_products(run[of], run[of]) + CAUTION) / run[of].shape[-1] ** 2 for run in pairs) for of in (0, 1)]
    correlation = together / np.sqrt(alone[0] * alone[1])

    def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.sqrt(np.maximum(a**2 - 2 * correlation * a * b + b**2, 0))

    apart = one - two
    return apart, apart - distance(one - low, other_high - two), apart + distance(high - one, two - other_low)


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sum over problems of the products of the distances from the means."""
    return ((a - a.mean(axis=-1, keepdims=True)) * (b - b.mean(axis=-1, keepdims=True))).sum(axis=-1)


def accuracy_interval(sets: Sequence[Shares]) -> Interval:
    """See [`average_bounds`]; all `None` if there is no set, or one without problems."""
    if not sets or not all(len(each.right) for each in sets):
        return Interval(None, None, None)
    return Interval(*map(float, average_bounds(sets)))


def accuracy_difference(first: Sequence[Shares], second: Sequence[Shares]) -> Interval:
    """See [`difference_bounds`]; all `None` if there is no set, or one without problems."""
    if not first or not all(len(each.right) for each in first):
        return Interval(None, None, None)
    return Interval(*map(float, difference_bounds(first, second)))
