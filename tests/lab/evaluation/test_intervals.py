"""Intervals of accuracies and lengths: published values, a plain-loop oracle, edge cases, and simulated coverage."""

import math
import random

import interval_oracle as oracle
import numpy as np
import pytest

from trl_ces.lab.evaluation.intervals import (
    Shares,
    accuracy_difference,
    accuracy_interval,
    effective_size,
    interval_of_average,
    wilson,
)


def shares(correct, completions):
    """Make `Shares` from the numbers of correct and total completions per problem."""
    counts = [completions] * len(correct) if isinstance(completions, int) else completions
    return Shares(np.array(correct) / np.array(counts), np.array(counts))


def bounds(*sets):
    return tuple(accuracy_interval(sets))


def test_wilson_interval_matches_published_values():
    # Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3.
    for correct, size, low, high in [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611),
                                     (1, 29, 0.0061, 0.1718)]:  # fmt: skip
        interval = bounds(shares([1] * correct + [0] * (size - correct), 1))
        assert interval == pytest.approx((correct / size, low, high), abs=6e-5)
    # By hand: z² = 3.8415; (0.5 + 3.8415 / 20) / 1.38415 ± 1.96 sqrt(0.025 + 3.8415 / 400) / 1.38415
    assert wilson(0.5, 10.0) == pytest.approx((0.23659, 0.76341), abs=1e-5)


def test_paired_difference_follows_newcombes_method_10():
    # By hand: 36 problems are correct in both runs, 12 only in the first run, 2 only in the second run.
    # Wilson bounds: 0.8654, 0.9890 for 48/50 and 0.6259, 0.8570 for 38/50.
    # φ = (36 * 0 - 12 * 2) / sqrt(48 * 2 * 38 * 12) = -0.1147.
    # 0.2 - sqrt(0.0946² + 2 * 0.1147 * 0.0946 * 0.0970 + 0.0970²) = 0.0569; 0.2 + 0.1404 = 0.3404.
    # The tolerance allows for the shrinkage of φ.
    pairs = [(1, 1)] * 36 + [(1, 0)] * 12 + [(0, 1)] * 2
    first, second = (shares(list(run), 1) for run in zip(*pairs, strict=True))
    assert tuple(accuracy_difference([first], [second])) == pytest.approx((0.2, 0.0569, 0.3404), abs=0.0005)


@pytest.mark.parametrize("completions", [1, 4])
@pytest.mark.parametrize("size", [1, 2, 500])
def test_all_incorrect_and_all_correct_sets_have_wilson_intervals(size, completions):
    upper = oracle.Z**2 / (size + oracle.Z**2)  # upper Wilson bound for 0 of n
    assert bounds(shares([0] * size, completions)) == pytest.approx((0, 0, upper))
    assert bounds(shares([completions] * size, completions)) == pytest.approx((1, 1 - upper, 1))
    combined = bounds(*[shares([0] * size, completions)] * 12)
    assert combined == pytest.approx((0, 0, oracle.Z**2 / (12 * size + oracle.Z**2)))


def random_sets(rng, sets, completions):
    problem_sets = []
    for _ in range(sets):
        skill, n = rng.random(), rng.randint(2, 40)
        counts = [rng.randint(1, completions) for _ in range(n)]
        chances = [rng.choice([0, 1, skill, skill]) for _ in range(n)]
        problem_sets.append(
            [(sum(rng.random() < p for _ in range(k)) / k, k) for p, k in zip(chances, counts, strict=True)]
        )
    return problem_sets


def as_shares(sets):
    return [Shares(*map(np.array, zip(*problems, strict=True))) for problems in sets]


@pytest.mark.parametrize("sets", [1, 3])
@pytest.mark.parametrize("completions", [1, 2, 8])
def test_intervals_and_differences_match_the_oracle(sets, completions):
    rng = random.Random(sets * 10 + completions)
    for _ in range(20):
        first = random_sets(rng, sets, completions)
        second = [[(rng.choice([share, rng.randint(0, k) / k]), k) for share, k in problems] for problems in first]
        first_shares, second_shares = as_shares(first), as_shares(second)
        interval, difference = accuracy_interval(first_shares), accuracy_difference(first_shares, second_shares)
        assert tuple(interval) == pytest.approx(oracle.accuracy(first), abs=1e-9)
        assert tuple(difference) == pytest.approx(oracle.difference(first, second), abs=1e-9)
        assert 0 <= interval.low <= interval.mean <= interval.high <= 1
        assert -1 <= difference.low <= difference.mean <= difference.high <= 1


def test_effective_size_depends_on_the_correlation_within_problems():
    same, half = shares([4] * 10 + [0] * 10, 4), shares([2] * 20, 4)
    assert effective_size(same) == 20  # four identical completions count as one
    assert effective_size(half) == 80  # the estimated correlation is 0
    assert 20 < effective_size(shares([4, 3, 2, 1, 0] * 4, 4)) < 80
    assert effective_size(shares([1, 0, 1], 1)) == 3
    assert bounds(same) == bounds(shares([1] * 10 + [0] * 10, 1))


def test_difference_between_a_run_and_itself_is_zero():
    run = shares([4, 3, 2, 1, 0] * 6, 4)
    same, other = accuracy_difference([run], [run]), accuracy_difference([run], [shares([0, 1, 2, 3, 4] * 6, 4)])
    assert (same.mean, same.low) == (0, -same.high)
    assert 0 < same.high < other.high / 3  # identical results are fully correlated


def test_intervals_without_values_are_none():
    empty = shares([], 4)
    intervals = (accuracy_interval([]), accuracy_interval([shares([1], 1), empty]), accuracy_difference([], []))
    assert {tuple(interval) for interval in (*intervals, interval_of_average([[1.0], []]))} == {(None, None, None)}


def simulate_sets(size, completions, mean, spread, repeats=1000):
    """Simulate `repeats` sets in which the accuracies of the problems follow a beta distribution."""
    generator = np.random.default_rng(size + completions)
    chances = generator.beta(mean * spread, (1 - mean) * spread, (repeats, size))
    correct_shares = generator.binomial(completions, chances) / completions
    return [Shares(correct, np.full(size, completions)) for correct in correct_shares]


def coverage(intervals, truth):
    return np.mean([interval.low <= truth <= interval.high for interval in intervals])


@pytest.mark.parametrize(
    ("size", "completions", "mean", "spread"),
    [(30, 4, 0.05, 2), (20, 4, 0.1, 0.5), (20, 8, 0.3, 2), (100, 4, 0.02, 0.5), (100, 8, 0.9, 2), (30, 4, 0.98, 10)],
)
def test_interval_covers_the_true_accuracy_in_95_percent_of_simulations(size, completions, mean, spread):
    intervals = [accuracy_interval([simulated]) for simulated in simulate_sets(size, completions, mean, spread)]
    assert 0.925 < coverage(intervals, mean) < 0.985  # the percentile bootstrap mostly covers 0.85 to 0.90


def test_average_and_difference_cover_the_true_values():
    means = [0.02, 0.3, 0.6, 0.95]
    runs = [[simulate_sets(30 + number, 4, mean, spread) for number, mean in enumerate(means)] for spread in (2, 1)]
    first, second = (list(zip(*sets, strict=True)) for sets in runs)
    assert 0.925 < coverage(map(accuracy_interval, first), math.fsum(means) / 4) < 0.98
    assert 0.925 < coverage(map(accuracy_difference, first, second), 0) < 0.985


def test_interval_of_an_average_matches_the_bootstrap_t_oracle():
    for values in ([0.0, 0.25, 1.0, 1.0, 0.5, 0.75], [100.0, 120.0, 130.0, 150.0, 170.0, 900.0, 90.0, 95.0]):
        interval, (mean, low, high) = interval_of_average([values]), oracle.bootstrap_t([values])
        width = (high - low) / 20
        assert tuple(interval) == (pytest.approx(mean), pytest.approx(low, abs=width), pytest.approx(high, abs=width))
        assert interval_of_average([values]) == interval
    # One long completion makes the interval asymmetric.
    assert interval.high - interval.mean > 1.5 * (interval.mean - interval.low)
    values = [[1.0, 1.0, 1.0, 1.0, 0.2]]  # an area is at most 1
    assert interval_of_average(values).high > 1 == interval_of_average(values, 0, 1).high
    assert interval_of_average([[0.5] * 7]) == (0.5, None, None)
    assert interval_of_average([[0.5], [0.0, 1.0]]) == (0.5, None, None)  # the variance of a single problem is unknown
    assert interval_of_average([[25.0, 100.0]]).low < 0 == interval_of_average([[25.0, 100.0]], minimum=0).low


def test_sets_are_resampled_independently():
    generator = np.random.default_rng(1)
    sets = [list(generator.normal(size=4000)), list(generator.normal(size=50))]  # needs more than one chunk of indices
    interval = interval_of_average(sets)
    standard_error = math.sqrt(np.var(sets[0]) / 4000 + np.var(sets[1]) / 50) / 2
    assert interval.mean == pytest.approx((np.mean(sets[0]) + np.mean(sets[1])) / 2)
    assert interval.high - interval.low == pytest.approx(2 * 2.0 * standard_error, rel=0.06)
    # Sets with equal values are also resampled independently.
    equal = interval_of_average([sets[1], sets[1]])
    assert equal.high - equal.low == pytest.approx(2 * 2.0 * np.std(sets[1]) / math.sqrt(100), rel=0.08)
