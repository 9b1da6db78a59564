"""A group split over processes gets the length rewards of one process, on every process."""

import math

import length_oracles
import pytest
import torch
from length_reward_processes import ACCURACIES, PROMPTS, gathered_rewards, make_script
from length_rules import RULES
from processes import run_processes


def expected_rewards():
    """One list per reward: the accuracy, then each rule's, by its oracle."""
    script = make_script()
    columns = [[], *([] for _ in RULES)]
    for prompt, accuracies in zip(PROMPTS, ACCURACIES, strict=True):
        lengths = [sum(row["mask"]) for row in script[prompt]]  # the policy's own tokens
        columns[0] += accuracies
        for column, name in zip(columns[1:], RULES, strict=True):
            values = getattr(length_oracles, name)(accuracies, lengths, **RULES[name][-1])
            column += [None if accuracy is None else value for accuracy, value in zip(accuracies, values, strict=True)]
    return columns


def test_the_rewards_of_a_rollout_are_the_oracles(tmp_path):
    result, _ = gathered_rewards(tmp_path, 1)
    for found, expected in zip(result.T.tolist(), expected_rewards(), strict=True):
        meant = [math.nan if value is None else value for value in expected]
        assert found == pytest.approx(meant, rel=1e-6, abs=1e-6, nan_ok=True)


# Groups of four completions. Of two processes with six each, both hold half of the middle group; of four with three
# each, every group lies on two.
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_group_split_over_processes_has_the_rewards_of_one(tmp_path, processes):
    one, _ = gathered_rewards(tmp_path / "one", 1)
    run_processes("length_reward_processes.py", tmp_path / "several", processes, timeout=240)
    for rank in range(processes):
        there = torch.load(tmp_path / "several" / f"rewards{rank}.pt", weights_only=True)
        assert torch.equal(there.nan_to_num(9), one.nan_to_num(9)), rank  # to the last bit
