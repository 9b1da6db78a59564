"""Intervals of accuracies: published values, an oracle in plain loops, edges, symmetry, coverage by simulation."""

import math
import random

import interval_oracle as oracle
import numpy as np
import pytest

from trl_ces.lab.evaluation.proportions import (
    Shares,
    accuracy_difference,
    accuracy_interval,
    average_bounds,
    difference_bounds,
    effective_size,
    wilson,
)


def shares(right, answers):
    """`right` answers of so many, per problem."""
    counts = [answers] * len(right) if isinstance(answers, int) else answers
    return Shares(np.array(right) / np.array(counts), np.array(counts))


def bounds(*sets):
    found = accuracy_interval(sets)
    return found.mean, found.low, found.high


def test_wilsons_interval_is_the_one_in_the_literature():
    # Newcombe (1998, two-sided intervals for the single proportion, table I), method 3, four digits.
    for right, size, low, high in [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611),
                                   (1, 29, 0.0061, 0.1718)]:  # fmt: skip
        found = bounds(shares([1] * right + [0] * (size - right), 1))
        assert found == pytest.approx((right / size, low, high), abs=6e-5)
    # By hand: z² = 3.8415; (0.5 + 3.8415 / 20) / 1.38415 -+ 1.96 sqrt(0.025 + 3.8415 / 400) / 1.38415
    assert wilson(np.array(0.5), np.array(10.0)) == (
        pytest.approx(0.23659, abs=1e-5),
        pytest.approx(0.76341, abs=1e-5),
    )


def test_the_difference_of_paired_proportions_is_newcombes_method_10():
    # 36 problems right in both runs, 12 in the first alone, 2 in the second alone, by hand: Wilson's bounds are
    # 0.8654, 0.9890 of 48/50 and 0.6259, 0.8570 of 38/50; φ = (36 * 0 - 12 * 2) / sqrt(48 * 2 * 38 * 12) = -0.1147.
    # 0.2 - sqrt(0.0946² + 2 * 0.1147 * 0.0946 * 0.0970 + 0.0970²) = 0.0569; 0.2 + 0.1404 = 0.3404.
    # φ is taken for a little less, because few answers tell it.
    pairs = [(1, 1)] * 36 + [(1, 0)] * 12 + [(0, 1)] * 2
    first, second = (shares(list(run), 1) for run in zip(*pairs, strict=True))
    found = accuracy_difference([first], [second])
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, 0.0569, 0.3404), abs=0.0005)


@pytest.mark.parametrize("answers", [1, 4, 8])
@pytest.mark.parametrize("size", [1, 2, 20, 500])
def test_none_and_all_right_have_a_width_and_stay_within_0_and_1(size, answers):
    none, every = bounds(shares([0] * size, answers)), bounds(shares([answers] * size, answers))
    edge = oracle.Z**2 / (size + oracle.Z**2)  # Wilson's upper bound of 0 of n
    assert none == pytest.approx((0, 0, edge))
    assert every == pytest.approx((1, 1 - edge, 1))
    assert (none[1], every[2]) == (0, 1)
    twelve = bounds(*[shares([0] * size, answers)] * 12)
    assert twelve == pytest.approx((0, 0, oracle.Z**2 / (12 * size + oracle.Z**2)))


def random_sets(draw, sets, answers):
    found = []
    for _ in range(sets):
        skill, n = draw.random(), draw.randint(2, 40)
        counts = [draw.randint(1, answers) for _ in range(n)]
        chances = [draw.choice([0, 1, skill, skill]) for _ in range(n)]
        found.append([(sum(draw.random() < p for _ in range(k)) / k, k) for p, k in zip(chances, counts, strict=True)])
    return found


def as_shares(sets):
    return [Shares(*map(np.array, zip(*problems, strict=True))) for problems in sets]


@pytest.mark.parametrize("sets", [1, 3])
@pytest.mark.parametrize("answers", [1, 2, 8])
def test_intervals_and_differences_are_those_of_the_loops(sets, answers):
    draw = random.Random(sets * 10 + answers)
    for _ in range(20):
        first = random_sets(draw, sets, answers)
        second = [[(draw.choice([share, draw.randint(0, k) / k]), k) for share, k in problems] for problems in first]
        one, two = as_shares(first), as_shares(second)
        found, apart = accuracy_interval(one), accuracy_difference(one, two)
        assert (found.mean, found.low, found.high) == pytest.approx(oracle.accuracy(first), abs=1e-9)
        assert (apart.mean, apart.low, apart.high) == pytest.approx(oracle.difference(first, second), abs=1e-9)
        assert 0 <= found.low <= found.mean <= found.high <= 1
        assert -1 <= apart.low <= apart.mean <= apart.high <= 1
        back = accuracy_difference(two, one)
        assert (back.low, back.high) == pytest.approx((-apart.high, -apart.low))
        wrong = accuracy_interval([Shares(1 - each.right, each.answers) for each in one])
        assert (wrong.low, wrong.high) == pytest.approx((1 - found.high, 1 - found.low))


def test_more_right_answers_move_both_bounds_up_and_more_problems_narrow_them():
    found = [bounds(shares([4] * right + [0] * (30 - right), 4))[1:] for right in range(31)]
    assert found == sorted(found)
    assert [high for _, high in found] == sorted(high for _, high in found)
    widths = [high - low for n in (4, 20, 100, 500) for _, low, high in [bounds(shares([0, 1, 2, 4] * n, 4))]]
    assert widths == sorted(widths, reverse=True)


def test_an_answer_more_per_problem_tells_as_much_as_it_differs_from_the_others():
    whole, half = shares([4] * 10 + [0] * 10, 4), shares([2] * 20, 4)
    assert effective_size(whole) == 20  # the same answer four times is one answer
    assert effective_size(half) == 80  # independent as far as one can see
    mixed = shares([4, 3, 2, 1, 0] * 4, 4)
    assert 20 < effective_size(mixed) < 80
    assert effective_size(shares([1, 0, 1], 1)) == 3
    assert bounds(whole) == bounds(shares([1] * 10 + [0] * 10, 1))


def test_a_run_compared_with_itself_differs_by_nothing_give_or_take():
    own = shares([4, 3, 2, 1, 0] * 6, 4)
    same, other = accuracy_difference([own], [own]), accuracy_difference([own], [shares([0, 1, 2, 3, 4] * 6, 4)])
    assert same.mean == 0
    assert same.low == -same.high
    assert 0 < same.high < other.high / 3  # the same questions: their difficulty cancels


def test_nothing_to_average_is_none():
    empty = shares([], 4)
    for found in (accuracy_interval([]), accuracy_interval([shares([1], 1), empty]), accuracy_difference([], [])):
        assert (found.mean, found.low, found.high) == (None, None, None)


def simulated(size, answers, mean, spread, repeats=2000):
    """`repeats` sets whose problems' chances have a beta distribution."""
    generator = np.random.default_rng(size + answers)
    chances = generator.beta(mean * spread, (1 - mean) * spread, (repeats, size))
    return Shares(generator.binomial(answers, chances) / answers, np.full(size, answers))


@pytest.mark.parametrize(
    ("size", "answers", "mean", "spread"),
    [(30, 4, 0.05, 2), (20, 4, 0.1, 0.5), (20, 8, 0.3, 2), (100, 4, 0.02, 0.5), (100, 8, 0.9, 2), (30, 4, 0.98, 10)],
)
def test_the_interval_holds_the_true_accuracy_in_95_of_100_simulations(size, answers, mean, spread):
    _, low, high = average_bounds([simulated(size, answers, mean, spread)])
    covered = np.mean((low <= mean) & (mean <= high))
    assert 0.925 < covered < 0.985  # the percentile bootstrap: 0.85 to 0.90 for most of these


def test_the_average_and_the_difference_hold_the_truth_too():
    means = [0.02, 0.3, 0.6, 0.95]
    sets = [simulated(30 + place, 4, mean, 2) for place, mean in enumerate(means)]
    _, low, high = average_bounds(sets)
    assert 0.925 < np.mean((low <= math.fsum(means) / 4) & (math.fsum(means) / 4 <= high)) < 0.98
    others = [simulated(30 + place, 4, mean, 1) for place, mean in enumerate(means)]
    _, low, high = difference_bounds(sets, others)
    assert 0.925 < np.mean((low <= 0) & (high >= 0)) < 0.985
