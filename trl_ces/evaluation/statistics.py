"""Means with bootstrap intervals over problems, pass@k and the majority vote."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..grading.equality import without_blanks

RESAMPLES, SEED = 10_000, 0
# Indices drawn at a time; for 2,818 problems all of them would take 225 MB.
INDICES_AT_A_TIME = 2**22


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval; all `None` if there is nothing to average."""

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
        values (`Sequence[float]`): One per problem, at least one.
        seed (`int`): Of the random draws.

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
    """Mean of one value per problem, with its percentile bootstrap interval over problems."""
    if len(values) == 0:
        return Interval(None, None, None)
    return _interval(math.fsum(values) / len(values), resampled_means(values))


def interval_of_average(sets: Sequence[Sequence[float]]) -> Interval:
    """
    The unweighted mean of several sets' means, as in the paper, with its interval.

    Problems are resampled within each set, because the choice of sets is not random.
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
    The probability that k samples, drawn without replacement, contain a correct one (Chen et al. 2021, Eq. 1).

    Args:
        num_samples (`int`): n, at least k.
        num_correct (`int`): c.
        k (`int`): Number of samples drawn.

    Raises:
        ValueError: if k is above n.
    """
    if k > num_samples:
        raise ValueError(f"k is {k} with {num_samples} samples: it must not exceed their number.")
    return 1.0 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def majority_is_correct(answers: Sequence[str | None], verdicts: Sequence[bool]) -> bool:
    """
    The verdict on the most frequent answer, the first of ties.

    Args:
        answers (`Sequence[str | None]`): Compared as written, insignificant spaces aside; `None` does not vote.
        verdicts (`Sequence[bool]`): One per answer.
    """
    plain = [None if answer is None else without_blanks(answer) for answer in answers]
    votes = Counter(answer for answer in plain if answer is not None)
    if not votes:
        return False
    winner = votes.most_common(1)[0][0]  # the first of ties
    return verdicts[plain.index(winner)]
