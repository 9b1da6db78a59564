"""Correctness and group accuracy, from rewards written out by hand."""

import copy
import math
from dataclasses import replace

import pytest
import torch

from trl_ces.methods.groups import Groups, completion_facts, from_mean, graded_reward, prompt_number

NONE = math.nan


def groups_of(accuracy, group_size=2):
    """Groups whose completions are correct at an accuracy of 1, 5 tokens long and not cut off."""
    rewards = torch.tensor(accuracy).view(-1, group_size)
    no = torch.zeros_like(rewards, dtype=torch.bool)
    return Groups(rewards >= 1, ~rewards.isnan(), no, no.long() + 5, rewards, 8, torch.arange(len(rewards)))


def judged(rows, weights=(1.0, 1.0), group_size=2):
    groups = groups_of([row[0] for row in rows], group_size)
    found = completion_facts(groups, torch.tensor(rows), torch.tensor(weights))
    return {name: values.tolist() for name, values in found.items()}


def test_groups_are_taken_apart_and_joined_again():
    groups = groups_of([1.0, 0.0, NONE, 1.0, 0.0, 0.0])
    assert groups.group(1).correct.tolist() == [[False, True]]
    assert groups.group(1).scored.tolist() == [[False, True]]
    joined = Groups.joined([groups.group(2), replace(groups.group(0), max_length=9)])
    assert joined.correct.tolist() == [[False, False], [True, False]]
    assert (joined.lengths.tolist(), joined.max_length) == ([[5, 5], [5, 5]], 8)
    assert joined.prompts.tolist() == [2, 0]


def test_a_prompts_number_is_its_own_in_every_run():
    said = [{"role": "user", "content": "1+2="}]
    assert prompt_number("1+2=") == 1644050413134782461
    assert -(2**63) <= min(prompt_number(str(number)) for number in range(9)) < 0  # int64
    assert prompt_number(said) == prompt_number([{"content": "1+2=", "role": "user"}])
    assert len({prompt_number(prompt) for prompt in ("1+2=", "1+2= ", said, [*said, *said])}) == 4
    pictured = [{"role": "user", "content": [{"type": "image", "image": object()}]}]
    assert prompt_number(pictured) == prompt_number(copy.deepcopy(pictured))


def test_a_completion_without_a_verdict_is_neither_right_nor_counted():
    result = judged([[1.0, 0.0], [NONE, 0.0], [NONE, 1.0], [NONE, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert result["correct"] == [True, False, False, False, False, True]
    assert result["scored"] == [True, False, False, False, True, True]
    assert result["group_correct"] == [1, 1, 0, 0, 1, 1]
    assert result["group_scored"] == [1, 1, 0, 0, 2, 2]


def test_a_length_is_measured_from_the_mean_of_those_that_count():
    counted = torch.tensor([[True, False, False], [True, False, True], [False, False, False]])
    lengths = torch.tensor([[10, 30, 5], [10, 30, 5], [10, 30, 5]])
    assert from_mean(lengths, counted).tolist() == [[0.0, 20.0, -5.0], [2.5, 22.5, -2.5], [0.0, 0.0, 0.0]]


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
    assert graded_reward(torch.tensor([0.0, 1.0, NONE, 1.0])) is None
    assert graded_reward(torch.tensor([0.0, 0.5, -1.0, 2.0])) == 0.5
    assert graded_reward(torch.tensor([1.0, NONE, 2.0])) == 2.0
    assert graded_reward(torch.tensor([1.0, -1.0, 0.5])) == -1.0
    assert graded_reward(torch.tensor([NONE])) is None
