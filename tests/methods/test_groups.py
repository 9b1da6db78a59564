"""Correctness and group accuracy, from rewards written out by hand."""

import math

import pytest
import torch

from trl_ces.methods.groups import odd_reward, rollout_verdicts

NONE = math.nan


def judged(rows, accuracy_index=0, weights=(1.0, 1.0), threshold=1.0, group_size=2):
    return {
        name: values.tolist()
        for name, values in rollout_verdicts(
            torch.tensor(rows), accuracy_index, torch.tensor(weights), threshold, group_size
        ).items()
    }


def test_correct_is_an_accuracy_of_at_least_the_threshold():
    rows = [[1.0, 0.0], [0.9, 5.0], [2.0, 0.0], [0.0, 1.0]]
    assert judged(rows)["correct"] == [True, False, True, False]
    assert judged(rows, threshold=0.9)["correct"] == [True, True, True, False]
    assert judged(rows, accuracy_index=1)["correct"] == [False, True, False, True]


def test_a_completion_without_a_verdict_is_neither_right_nor_counted():
    result = judged([[1.0, 0.0], [NONE, 0.0], [NONE, 1.0], [NONE, 1.0]])
    assert result["correct"] == [True, False, False, False]
    assert result["scorable"] == [True, False, False, False]
    assert result["group_correct"] == [1, 1, 0, 0]
    assert result["group_scorable"] == [1, 1, 0, 0]


def test_groups_are_contiguous_and_counted_for_each_member():
    result = judged([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]], group_size=3)
    assert result["group_correct"] == [2, 2, 2, 2, 2, 2]
    assert result["group_scorable"] == [3] * 6


@pytest.mark.parametrize(
    ("rows", "weights", "equal"),
    [
        ([[1.0, 0.0], [1.0, 0.0]], (1.0, 1.0), True),
        ([[1.0, 0.0], [0.0, 0.0]], (1.0, 1.0), False),
        ([[1.0, 0.0], [1.0, 0.5]], (1.0, 1.0), False),  # another reward differs
        ([[1.0, 0.0], [1.0, 0.5]], (1.0, 0.0), True),  # its weight is 0
        ([[1.0, 0.0], [0.0, 1.0]], (1.0, 1.0), True),  # the sums are equal
        ([[1.0, 0.0], [0.0, 1.0]], (2.0, 1.0), False),
        ([[1.0, 0.0], [1.0, NONE]], (1.0, 1.0), True),  # missing rewards add nothing
        ([[1.0, 0.0], [0.0, NONE]], (1.0, 1.0), False),
        ([[2.0, 2.0], [NONE, NONE]], (1.0, 1.0), True),  # a row without any reward is not compared
        ([[-2.0, 0.0], [NONE, NONE]], (1.0, 1.0), True),
        ([[NONE, NONE], [NONE, NONE]], (1.0, 1.0), True),
    ],
)
def test_rewards_of_a_group_are_equal_where_only_the_shaping_can_teach(rows, weights, equal):
    apart = [[7.0, 0.0], [9.0, 0.0]]  # another group, with unequal rewards
    assert judged([*rows, *apart], weights=weights)["equal_rewards"] == [equal, equal, False, False]


def test_the_first_reward_that_is_neither_0_nor_1_is_odd():
    assert odd_reward(torch.tensor([0.0, 1.0, NONE, 1.0])) is None
    assert odd_reward(torch.tensor([0.0, 0.5, -1.0, 2.0])) == 0.5
    assert odd_reward(torch.tensor([1.0, NONE, 2.0])) == 2.0
    assert odd_reward(torch.tensor([1.0, -1.0, 0.5])) == -1.0
    assert odd_reward(torch.tensor([NONE])) is None
