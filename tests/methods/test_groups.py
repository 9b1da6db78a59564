"""Test correctness and group accuracy for given rewards."""

import math
from dataclasses import replace

import pytest
import torch

from trl_ces.methods.groups import Groups, completion_facts, graded_reward

UNSCORED = math.nan


def groups_of(accuracy, group_size=2):
    """Create groups of untruncated 5-token completions; a completion with accuracy 1 is correct."""
    rewards = torch.tensor(accuracy).view(-1, group_size)
    truncated = torch.zeros_like(rewards, dtype=torch.bool)
    return Groups(rewards >= 1, ~rewards.isnan(), truncated, truncated.long() + 5, rewards, 8)


def facts_of(rows, weights=(1.0, 1.0), group_size=2):
    groups = groups_of([row[0] for row in rows], group_size)
    facts = completion_facts(groups, torch.tensor(rows), torch.tensor(weights))
    return {name: values.tolist() for name, values in facts.items()}


def test_groups_are_split_and_concatenated():
    groups = groups_of([1.0, 0.0, UNSCORED, 1.0, 0.0, 0.0])
    assert groups.group(1).correct.tolist() == [[False, True]]
    assert groups.group(1).scored.tolist() == [[False, True]]
    joined = Groups.concatenate([groups.group(2), replace(groups.group(0), max_length=9)])
    assert joined.correct.tolist() == [[False, False], [True, False]]
    assert (joined.lengths.tolist(), joined.max_length) == ([[5, 5], [5, 5]], 8)


def test_an_unscored_completion_is_neither_correct_nor_counted():
    rows = [[1.0, 0.0], [UNSCORED, 0.0], [UNSCORED, 1.0], [UNSCORED, 1.0], [0.0, 1.0], [1.0, 0.0]]
    result = facts_of(rows)
    assert result["correct"] == [True, False, False, False, False, True]
    assert result["scored"] == [True, False, False, False, True, True]
    assert result["group_correct"] == [1, 1, 0, 0, 1, 1]
    assert result["group_scored"] == [1, 1, 0, 0, 2, 2]
    assert groups_of([row[0] for row in rows]).group_accuracy.tolist() == [1.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("rows", "weights", "equal"),
    [
        ([[1.0, 0.0], [1.0, 0.0]], (1.0, 1.0), True),
        ([[1.0, 0.0], [0.0, 0.0]], (1.0, 1.0), False),
        ([[1.0, 0.0], [1.0, 0.5]], (1.0, 1.0), False),  # the second reward differs
        ([[1.0, 0.0], [1.0, 0.5]], (1.0, 0.0), True),  # the second reward has weight 0
        ([[1.0, 0.0], [0.0, 1.0]], (1.0, 1.0), True),  # the sums are equal
        ([[1.0, 0.0], [0.0, 1.0]], (2.0, 1.0), False),
        ([[1.0, 0.0], [1.0, UNSCORED]], (1.0, 1.0), True),  # missing rewards add nothing
        ([[1.0, 0.0], [0.0, UNSCORED]], (1.0, 1.0), False),
        ([[2.0, 2.0], [UNSCORED, UNSCORED]], (1.0, 1.0), True),  # a row without rewards is not compared
        ([[-2.0, 0.0], [UNSCORED, UNSCORED]], (1.0, 1.0), True),
        ([[UNSCORED, UNSCORED], [UNSCORED, UNSCORED]], (1.0, 1.0), True),
    ],
)
def test_groups_with_equal_rewards_are_marked(rows, weights, equal):
    unequal = [[7.0, 0.0], [9.0, 0.0]]  # a second group
    assert facts_of([*rows, *unequal], weights=weights)["equal_rewards"] == [equal, equal, False, False]


def test_graded_reward_returns_the_first_reward_other_than_0_and_1():
    assert graded_reward(torch.tensor([0.0, 1.0, UNSCORED, 1.0])) is None
    assert graded_reward(torch.tensor([0.0, 0.5, -1.0, 2.0])) == 0.5
    assert graded_reward(torch.tensor([1.0, UNSCORED, 2.0])) == 2.0
    assert graded_reward(torch.tensor([1.0, -1.0, 0.5])) == -1.0
    assert graded_reward(torch.tensor([UNSCORED])) is None
