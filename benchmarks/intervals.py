"""Coverage of the evaluation's 95 % intervals, by simulation: accuracy, averages, differences, lengths.

Problems are drawn from a beta distribution of difficulty, answers to each from its chance of being right. Spread is
the distribution's concentration: 0, every problem is always or never solved; inf, all problems are alike. A cell is
the share of simulated data sets, in %, whose interval holds the true mean: 95 is right, 93 to 97 is what we ask for.
Accuracies above one half mirror those below. Seeds are fixed.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from math import comb, inf

import numpy as np

from trl_ces.evaluation.proportions import Shares, average_bounds, difference_bounds
from trl_ces.evaluation.statistics import interval
from trl_ces.support.tables import markdown

PROBLEMS, ANSWERS = (20, 30, 100, 500), (1, 4, 8)
MEANS = (0.02, 0.05, 0.1, 0.3, 0.5)
SPREADS = (0.0, 0.5, 2.0, 10.0, inf)
LOW, HIGH = 93.0, 97.0
MATH12 = [30, 40, 600, 101, 2818, 118, 382, 1319, 272, 675, 1000, 1000]
MIXED = [0.35, 0.75, 0.9, 0.8, 0.75, 0.7, 0.75, 0.9, 0.4, 0.55, 0.92, 0.9]
WEAK = [0.0, 0.05, 0.2, 0.1, 0.1, 0.05, 0.1, 0.1, 0.02, 0.02, 0.3, 0.15]
AVERAGES = {
    "12 sets of 20, all at 0.02": ([20] * 12, [0.02] * 12),
    "12 sets of 20, 0 to 0.3": ([20] * 12, WEAK),
    "12 sets of 20, 0.35 to 0.92": ([20] * 12, MIXED),
    "the twelve sets, 0 to 0.3": (MATH12, WEAK),
    "the twelve sets, 0.35 to 0.92": (MATH12, MIXED),
    "30 at 0.05 and 30 at 0.9": ([30, 30], [0.05, 0.9]),
    "30 at 0.1 and 500 at 0.9": ([30, 500], [0.1, 0.9]),
}
# What the second run changes: the shift of its log odds, and the share of problems on which the two runs' chances go
# together; on the others they are independent.
PAIRS = ((0.0, 1.0), (0.7, 1.0), (0.7, 0.5), (0.0, 0.0))
LENGTHS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "log-normal, sd 0.5": lambda random, size: _log_normal(random, size, 0.5, 0.3),
    "log-normal, sd 0.9, cut off at 6": lambda random, size: np.minimum(_log_normal(random, size, 0.9, 0.5), 6),
    "log-normal, sd 1.1": lambda random, size: _log_normal(random, size, 1.1, 0.5),
    "one problem in ten runs into the limit": lambda random, size: np.where(
        random.random((*size[:-1], 1)) < 0.1, 16.0, _log_normal(random, size, 0.4, 0.3)
    ),
}


def _log_normal(random: np.random.Generator, size: tuple[int, ...], between: float, within: float) -> np.ndarray:
    return np.exp(random.normal(0, between, (*size[:-1], 1)) + random.normal(0, within, size))


def right_answers(k: int, mean: float, spread: float) -> np.ndarray:
    """Probability of 0 to k right answers to a problem, the beta-binomial distribution. Shape (k + 1,)."""
    if mean == 0 or spread == 0:
        return np.array([1 - mean, *[0.0] * (k - 1), mean])
    if spread == inf:
        return binomial(np.array(mean), k)
    a, b = mean * spread, (1 - mean) * spread
    logs = [_log_beta(a + right, b + k - right) - _log_beta(a, b) for right in range(k + 1)]
    return np.array([comb(k, right) * math.exp(log) for right, log in enumerate(logs)])


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def binomial(chance: np.ndarray, count: int) -> np.ndarray:
    """Probability of 0 to `count` right answers, last axis."""
    return np.stack([comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(count + 1)], axis=-1)


def covered(bounds: tuple[np.ndarray, np.ndarray, np.ndarray], truth: float) -> float:
    """In %; on the edge counts as in."""
    return 100 * float(np.mean((bounds[1] <= truth + 1e-9) & (truth - 1e-9 <= bounds[2])))


def outcomes(random: np.random.Generator, n: int, probability: np.ndarray, repeats: int) -> np.ndarray:
    """Which outcome each of n problems has, in any order. Shape (repeats, n)."""
    counts = random.multinomial(n, probability / probability.sum(), size=repeats)
    return np.repeat(np.tile(np.arange(len(probability)), repeats), counts.ravel()).reshape(repeats, n)


def draw(random: np.random.Generator, n: int, k: int, mean: float, spread: float, repeats: int) -> Shares:
    """`repeats` data sets of n problems with k answers each."""
    return Shares(outcomes(random, n, right_answers(k, mean, spread), repeats) / k, np.full(n, k))


def spreads(k: int) -> tuple[float, ...]:
    """One answer per problem is the same whatever the spread."""
    return (inf,) if k == 1 else SPREADS


def cell(found: list[float]) -> str:
    """`94.1` or `93.2-96.8`; `*` if any is outside of what we ask for."""
    low, high = min(found), max(found)
    text = f"{low:.1f}" if len(found) == 1 else f"{low:.1f}-{high:.1f}"
    return text + ("" if low >= LOW and high <= HIGH else " *")


def tally(found: list[float]) -> str:
    inside = sum(LOW <= value <= HIGH for value in found)
    below, above = sum(value < LOW for value in found), sum(value > HIGH for value in found)
    return (
        f"{inside} of {len(found)} are within {LOW:.0f} to {HIGH:.0f} %, {below} below (lowest {min(found):.1f}), "
        f"{above} above (highest {max(found):.1f}); median {np.median(found):.1f}."
    )


def percentile(values: np.ndarray, random: np.random.Generator, resamples: int = 1000) -> tuple[np.ndarray, ...]:
    """The percentile bootstrap of each row's mean, for comparison. Shape (repeats, n)."""
    repeats, n = values.shape
    low, high = np.empty(repeats), np.empty(repeats)
    for row in range(repeats):
        means = values[row][random.integers(n, size=(resamples, n))].mean(axis=1)
        low[row], high[row] = np.quantile(means, [0.025, 0.975])
    return values.mean(axis=1), low, high


def accuracy_rows(repeats: int, found: list[float]) -> Iterator[list[str]]:
    for n in PROBLEMS:
        for k in ANSWERS:
            row = [str(n), str(k)]
            for mean in MEANS:
                random = np.random.default_rng(0)
                here = [
                    covered(average_bounds([draw(random, n, k, mean, spread, repeats)]), mean) for spread in spreads(k)
                ]
                found += here
                row.append(cell(here))
            yield row


def average_rows(repeats: int, found: list[float]) -> Iterator[list[str]]:
    for title, (sizes, means) in AVERAGES.items():
        row = [title]
        for k in ANSWERS:
            random, here = np.random.default_rng(0), []
            for spread in (inf,) if k == 1 else (0.5, 2.0, inf):
                sets = [draw(random, n, k, mean, spread, repeats) for n, mean in zip(sizes, means, strict=True)]
                here.append(covered(average_bounds(sets), math.fsum(means) / len(means)))
            found += here
            row.append(cell(here))
        yield row


def difference_rows(repeats: int, found: list[float]) -> Iterator[list[str]]:
    for n in PROBLEMS[:3]:
        for k in ANSWERS:
            row = [str(n), str(k)]
            for mean in MEANS:
                random, here = np.random.default_rng(0), []
                for spread in (0.5, 2.0):
                    for pair in PAIRS:
                        *runs, truth = draw_pair(random, n, k, mean, spread, pair, repeats)
                        here.append(covered(difference_bounds(*([run] for run in runs)), truth))
                found += here
                row.append(cell(here))
            yield row


def draw_pair(
    random: np.random.Generator, n: int, k: int, mean: float, spread: float, pair: tuple[float, float], repeats: int
) -> tuple[Shares, Shares, float]:
    """As [`draw`], of two runs on the same problems, and their true difference."""
    shift, together = pair
    # 20,000 problems are the population, so that its mean difference and the two runs' joint distribution are known.
    first = random.beta(mean * spread, (1 - mean) * spread, 20_000).clip(1e-9, 1 - 1e-9)
    other = np.where(random.random(len(first)) < together, first, random.permutation(first))
    second = 1 / (1 + (1 - other) / other * math.exp(-shift))
    joint = binomial(first, k).T @ binomial(second, k)
    one, two = (
        Shares(right / k, np.full(n, k)) for right in np.divmod(outcomes(random, n, joint.ravel(), repeats), k + 1)
    )
    return one, two, float(first.mean() - second.mean())


def length_rows(repeats: int, found: list[float]) -> Iterator[list[str]]:
    for title, lengths in LENGTHS.items():
        for n in (20, 30, 100):
            random = np.random.default_rng(0)
            truth = float(lengths(np.random.default_rng(1), (2_000, 500, 4)).mean())
            values = lengths(random, (repeats, n, 4)).mean(axis=-1)
            ours = np.array([(i.mean, i.low, i.high) for i in (interval(row, resamples=1000) for row in values)])
            here = covered(tuple(ours.T), truth)
            found.append(here)
            yield [title, str(n), cell([here]), f"{covered(percentile(values, random), truth):.1f}"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=4000, help="simulated data sets of a cell; a tenth for lengths")
    repeats = parser.parse_args(arguments).repeats
    means = [f"{mean:g}" for mean in MEANS]
    parts = (
        ("Accuracy of one set: lowest and highest over the spreads", ["n", "k", *means], accuracy_rows, repeats),
        ("Average of sets", ["sets", *(f"k = {k}" for k in ANSWERS)], average_rows, repeats // 4),
        ("Difference of two runs on the same problems", ["n", "k", *means], difference_rows, repeats // 2),
        ("Length", ["lengths", "n", "bootstrap-t", "percentile bootstrap"], length_rows, repeats // 10),
    )
    for title, header, rows, count in parts:
        found: list[float] = []
        print(f"{title}, {count} data sets a cell\n\n{markdown(header, list(rows(count, found)))}\n\n{tally(found)}\n")
    random, count = np.random.default_rng(0), max(1, repeats // 8)
    before = [covered(percentile(draw(random, 30, 4, 0.05, spread, count).right, random), 0.05) for spread in SPREADS]
    pairs = [draw_pair(random, 30, 4, 0.05, spread, pair, count) for spread in (0.5, 2.0) for pair in PAIRS]
    apart = [covered(percentile(one.right - two.right, random), truth) for one, two, truth in pairs]
    print(
        f"The percentile bootstrap at n = 30, k = 4, 0.05: accuracy {cell(before)}, difference {cell(apart)}, "
        f"{count} data sets a cell."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
