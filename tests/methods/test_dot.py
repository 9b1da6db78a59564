"""DOT's limits against a loop over one group, and by hand."""

import math
import random

import pytest
import torch

from trl_ces.methods.dot import dot_limits, largest_deviation


def limits_by_hand(lengths, correct, alpha, least):
    if not all(correct):
        return lengths
    mean = sum(lengths) / len(lengths)
    std = math.sqrt(sum((length - mean) ** 2 for length in lengths) / (len(lengths) - 1))
    longest = math.floor(mean + alpha * std)
    return [longest if length - longest >= least else length for length in lengths]


def test_each_group_is_cut_as_a_loop_cuts_it():
    generator, cut = random.Random(0), 0
    for _ in range(300):
        size, alpha, least = generator.randint(2, 20), generator.choice([0.5, 1.0, 3.0]), generator.randint(1, 40)
        rows = [[generator.randint(1, generator.choice([20, 400])) for _ in range(size)] for _ in range(3)]
        correct = [[generator.random() < 0.97 for _ in range(size)] for _ in rows]
        found = dot_limits(torch.tensor(rows), torch.tensor(correct), alpha, least)
        assert found.dtype == torch.int64
        expected = [limits_by_hand(row, own, alpha, least) for row, own in zip(rows, correct, strict=True)]
        assert found.tolist() == expected
        cut += found.tolist() != rows
    assert cut > 50


@pytest.mark.parametrize(("least", "kept"), [(5, 25), (6, 30)])
def test_lengths_10_10_10_30_end_at_the_mean_and_one_deviation(least, kept):
    lengths = torch.tensor([[10, 10, 10, 30]])  # mean 15, std 10
    right = torch.tensor([[True] * 4])
    assert dot_limits(lengths, right, 1.0, least).tolist() == [[10, 10, 10, kept]]
    assert dot_limits(lengths, torch.tensor([[True, True, False, True]]), 1.0, least).tolist() == lengths.tolist()


@pytest.mark.parametrize("size", [2, 4, 11])
def test_one_among_equals_is_as_far_from_the_mean_as_can_be(size):
    lengths = torch.tensor([[10] * (size - 1) + [10000]])
    right = torch.ones_like(lengths, dtype=torch.bool)
    farthest = largest_deviation(size)
    assert dot_limits(lengths, right, farthest + 0.001, 1).tolist() == lengths.tolist()
    assert dot_limits(lengths, right, farthest - 0.001, 1).tolist() != lengths.tolist()
