"""GFPO's filter against completions ranked by hand, and against a loop that sorts Python numbers."""

import math
import random

import pytest
import torch
from reference import gfpo_kept

from trl_ces.methods.gfpo import gfpo_rejected

NONE = math.nan


def kept(lengths, rewards, keep, metric):
    rejected = gfpo_rejected(torch.tensor([lengths]), torch.tensor([rewards]), keep, metric)
    return (~rejected[0]).nonzero().flatten().tolist()


def test_the_most_reward_per_token_is_kept():
    # 1/30, 0/10, 1/20, 2/41: in order the fourth, third, first, second.
    lengths, rewards = [30, 10, 20, 41], [1.0, 0.0, 1.0, 2.0]
    assert kept(lengths, rewards, 1, "reward_per_token") == [2]  # 0.05 > 2/41
    assert kept(lengths, rewards, 2, "reward_per_token") == [2, 3]
    assert kept(lengths, rewards, 3, "reward_per_token") == [0, 2, 3]


def test_a_completion_without_a_reward_comes_last_and_fills_up():
    assert kept([1, 10, 20, 30], [NONE, 0.0, 1.0, NONE], 2, "length") == [1, 2]
    assert kept([1, 10, 20, 30], [NONE, -5.0, 1.0, NONE], 2, "reward_per_token") == [1, 2]
    assert kept([1, 10, 20, 30], [NONE, NONE, 1.0, NONE], 2, "length") == [0, 2]


def test_a_completion_without_a_token_counts_as_one():
    assert kept([0, 2, 2], [1.0, 1.0, 3.0], 1, "reward_per_token") == [2]
    assert kept([0, 2, 2], [1.0, 1.0, 3.0], 1, "length") == [0]


@pytest.mark.parametrize("metric", ["length", "reward_per_token"])
def test_each_group_keeps_those_that_a_loop_keeps(metric):
    generator = random.Random(0)
    groups = [
        [(generator.randrange(1, 30), generator.choice([None, 0.0, 0.5, 1.0, -1.0])) for _ in range(6)]
        for _ in range(200)
    ]
    lengths = torch.tensor([[length for length, _ in group] for group in groups])
    rewards = torch.tensor([[NONE if reward is None else reward for _, reward in group] for group in groups])
    for keep in range(1, 7):
        rejected = gfpo_rejected(lengths, rewards, keep, metric)
        assert rejected.shape == (200, 6)
        for row, group in zip(rejected.tolist(), groups, strict=True):
            assert [place for place in range(6) if not row[place]] == sorted(gfpo_kept(group, keep, metric))
