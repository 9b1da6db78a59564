"""Means with bootstrap intervals over problems, pass@k and the majority vote."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..grading.equality import without_blanks

RESAMPLES, SEED = 10_000, 0
# Indices drawn at a time: 2,818 problems x 10,000 resamples would take 225 MB.
INDICES_AT_A_TIME = 2**22


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval; all three `None` where there is nothing to average."""

    mean: float | None
    low: float | None
    high: float | None

    def as_dict(self) -> dict[str, float | None]:
        """For JSON."""
        return asdict(self)


def resampled_means(values: Sequence[float], seed: int = SEED) -> np.ndarray:
    """
    Means of resamples: as many values, drawn with replacement.

    Args:
        values (`Sequence[float]`): One for each problem, at least one.
        seed (`int`): Of the draws.

    Returns:
        `np.ndarray`: Shape (`RESAMPLES`,), float64.
    """
    array, random = np.asarray(values, dtype=np.float64), np.random.default_rng(seed)
    at_a_time = max(1, INDICES_AT_A_TIME // len(array))
    means = [
        array[random.integers(len(array), size=(min(at_a_time, RESAMPLES - start), len(array)))].mean(axis=1)
        for start in range(0, RESAMPLES, at_a_time)
    ]
    return np.concatenate(means)


def interval(values: Sequence[float]) -> Interval:
    """Mean of one value for each problem and its percentile bootstrap interval over problems."""
    if len(values) == 0:
        return Interval(None, None, None)
    return _interval(math.fsum(values) / len(values), resampled_means(values))


def interval_of_average(sets: Sequence[Sequence[float]]) -> Interval:
    """
    The unweighted mean of several sets' means, as the paper averages, and its interval.

    Problems are redrawn within each set: which sets there are is not a matter of chance.
    """
    if not sets or not all(map(len, sets)):
        return Interval(None, None, None)
    mean = math.fsum(math.fsum(values) / len(values) for values in sets) / len(sets)
    resampled = [resampled_means(values, SEED + place) for place, values in enumerate(sets)]
    return _interval(mean, np.mean(resampled, axis=0))


def _interval(mean: float, resampled: np.ndarray) -> Interval:
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Interval(mean, float(low), float(high))


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """
    The chance that k of the samples, drawn without replacement, hold a correct one (Chen et al. 2021, Eq. 1).

    Args:
        num_samples (`int`): n, at least k.
        num_correct (`int`): c of them are correct.
        k (`int`): How many are drawn.
    """
    if k > num_samples:
        raise ValueError(f"k is {k} with {num_samples} samples: it can be at most their number.")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def majority_is_correct(answers: Sequence[str | None], verdicts: Sequence[bool]) -> bool:
    """
    The verdict on the answer that most samples give; of several such, on the one given first.

    Args:
        answers (`Sequence[str | None]`): As written, needless spaces aside; `None` does not vote.
        verdicts (`Sequence[bool]`): One for each answer.
    """
    plain = [None if answer is None else without_blanks(answer) for answer in answers]
    votes = Counter(answer for answer in plain if answer is not None)
    if not votes:
        return False
    winner = votes.most_common(1)[0][0]  # of equal counts the one met first
    return verdicts[plain.index(winner)]
