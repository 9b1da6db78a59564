"""Check that groups split over processes get the same length rewards as on one process."""

import math

import length_oracles
import pytest
import torch
from group_processes import ACCURACIES, PROMPTS, gathered_rewards, make_script
from length_oracles import SETTINGS
from processes import run_processes


def expected_rewards():
    """Return a list per reward function: the accuracies, then the oracle's values of each length reward."""
    script = make_script()
    columns = [[], *([] for _ in SETTINGS)]
    for prompt, accuracies in zip(PROMPTS, ACCURACIES, strict=True):
        lengths = [sum(row["mask"]) for row in script[prompt]]  # without tool output
        columns[0] += accuracies
        for column, name in zip(columns[1:], SETTINGS, strict=True):
            values = getattr(length_oracles, name)(accuracies, lengths, **SETTINGS[name][-1])
            column += [None if accuracy is None else value for accuracy, value in zip(accuracies, values, strict=True)]
    return columns


# Twelve rows form groups of four. Two processes have six rows each and share a group; four processes have three rows
# each.
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_rewards_of_a_group_split_over_processes_match_the_oracle(tmp_path, processes):
    one, _ = gathered_rewards(tmp_path, 1)
    for actual, expected in zip(one.T.tolist(), expected_rewards(), strict=True):
        values = [math.nan if value is None else value for value in expected]
        assert actual == pytest.approx(values, rel=1e-6, abs=1e-6, nan_ok=True)
    run_processes("group_processes.py", tmp_path / "several", processes, timeout=240)
    for rank in range(processes):
        actual = torch.load(tmp_path / "several" / f"rewards{rank}.pt", weights_only=True)
        assert torch.equal(actual.nan_to_num(9), one.nan_to_num(9)), rank
