"""Means with bootstrap-t intervals over problems, and pass@k."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES, SEED = 10_000, 0
# Indices drawn at a time; for 2,818 problems all of them would take 225 MB.
INDICES_AT_A_TIME = 2**22


class Interval(NamedTuple):
    """A mean and its 95 % interval; all `None` if there is nothing to average, the ends if nothing tells them."""

    mean: float | None
    low: float | None
    high: float | None

    @property
    def arms(self) -> tuple[float, float]:
        """From the mean down and up to the interval's ends; NaN without one."""
        if self.mean is None or self.low is None or self.high is None:
            return math.nan, math.nan
        return self.mean - self.low, self.high - self.mean

    def text(self, write: Callable[[float | None], str], signed: bool = False) -> str:
        """`69.6 [67.1, 72.0]`; without an interval the mean alone."""
        mean, *ends = (("+" if signed and value is not None and value >= 0 else "") + write(value) for value in self)
        return mean if self.low is None else f"{mean} [{', '.join(ends)}]"


def interval_of_average(sets: Sequence[Sequence[float]], least: float = -math.inf, most: float = math.inf) -> Interval:
    """
    The unweighted mean of several sets' means, as in the paper, with its bootstrap-t interval (Efron and
    Tibshirani 1993, section 12.5): skewed values such as lengths need it. For accuracies see proportions.py.

    Problems are resampled within each set, because the choice of sets is not random. t = (mean* - mean) / error*, with
    the standard errors of the resamples; those below half the sample's count as that half, because a resample of few
    distinct values would make t arbitrarily large. There is no interval where a set has one problem, or none varies:
    resampling it gives itself.
    """
    if not sets or not all(map(len, sets)):
        return Interval(None, None, None)
    mean = math.fsum(math.fsum(values) / len(values) for values in sets) / len(sets)
    centred = [np.asarray(values, dtype=np.float64) - math.fsum(values) / len(values) for values in sets]
    error = math.sqrt(sum(values.var() / max(len(values) - 1, 1) for values in centred)) / len(sets)
    if error == 0 or min(map(len, sets)) == 1:
        return Interval(mean, None, None)
    resampled = [_resampled(values, SEED + place) for place, values in enumerate(centred)]
    means = sum(means for means, _ in resampled) / len(sets)
    errors = np.sqrt(sum(squares for _, squares in resampled)) / len(sets)
    low, high = np.quantile(means / np.maximum(errors, error / 2), [0.025, 0.975])
    ends = mean - high * error, mean - low * error
    return Interval(mean, *(float(min(max(end, least), most)) for end in ends))


def _resampled(values: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of resamples, which are as many values drawn with replacement, and their squared standard errors."""
    random, at_a_time = np.random.default_rng(seed), max(1, INDICES_AT_A_TIME // len(values))
    means, squares = [], []
    for start in range(0, RESAMPLES, at_a_time):
        drawn = values[random.integers(len(values), size=(min(at_a_time, RESAMPLES - start), len(values)))]
        means.append(drawn.mean(axis=1))
        squares.append(drawn.var(axis=1) / max(len(values) - 1, 1))
    return np.concatenate(means), np.concatenate(squares)


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The probability that k samples, drawn without replacement, contain a correct one (Chen et al. 2021, Eq. 1)."""
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)
