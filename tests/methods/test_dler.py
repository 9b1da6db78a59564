"""DLER's whitening against tokens written out one by one."""

import math
import random

import pytest
import torch

from trl_ces.methods.dler import whitened


def whitened_by_hand(differences, tokens):
    every = [d for d, count in zip(differences, tokens, strict=True) for _ in range(count)]
    mean = sum(every) / len(every)
    variance = sum((d - mean) ** 2 for d in every) / (len(every) - 1)
    return [(d - mean) / math.sqrt(variance + 1e-8) for d in differences]


def test_tokens_are_whitened_one_by_one():
    generator = random.Random(0)
    for _ in range(200):
        size = generator.randint(2, 12)
        differences = [generator.uniform(-1, 1) * generator.choice([1, 1e-4]) for _ in range(size)]
        tokens = [generator.randint(1, 60) for _ in range(size)]
        found = whitened(torch.tensor(differences, dtype=torch.float64), torch.tensor(tokens))
        assert found.tolist() == pytest.approx(whitened_by_hand(differences, tokens), rel=1e-9, abs=1e-9)
    found = whitened(torch.tensor([1.0, -1.0]), torch.tensor([1, 1]))  # variance 2
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx([2**-0.5, -(2**-0.5)])


@pytest.mark.parametrize("tokens", [[3, 4, 5], [0, 0, 0], [1, 0, 0]])
def test_where_nothing_differs_there_is_no_advantage(tokens):
    found = whitened(torch.full((3,), 0.1), torch.tensor(tokens))
    if sum(tokens):
        assert found.abs().max() < 1e-6
    assert found.isfinite().all()
