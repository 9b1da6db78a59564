"""A group split over processes gets the length rewards, and GFPO's, QLPO's and DLER's advantages, of one process."""

import json
import math

import length_oracles
import pytest
import torch
from group_processes import ACCURACIES, OF_ALL, PROMPTS, VARIANTS, gathered_rewards, make_script, make_trainer, scored
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


# Groups of four completions on processes of six or three rows: of two both hold half of the middle group, of four each
# group lies on two.
@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.slow)])
def several(request, tmp_path_factory):
    """The number of processes, and the folder of what each has found."""
    folder = tmp_path_factory.mktemp("groups") / "several"
    run_processes("group_processes.py", folder, request.param, timeout=240)
    return request.param, folder


def test_a_group_split_over_processes_has_the_rewards_of_one(several, tmp_path):
    processes, folder = several
    one, _ = gathered_rewards(tmp_path, 1)
    for rank in range(processes):
        there = torch.load(folder / f"rewards{rank}.pt", weights_only=True)
        assert torch.equal(there.nan_to_num(9), one.nan_to_num(9)), rank  # to the last bit


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_group_split_over_processes_has_the_advantages_of_one(several, tmp_path, variant):
    processes, folder = several
    one = make_trainer(tmp_path, **VARIANTS[variant])
    expected = scored(one)
    assert not any(math.isnan(value) for value in expected["advantages"])
    for rank in range(processes):
        there = json.loads((folder / f"{variant}{rank}.json").read_text())
        assert {name: there[name] for name in expected} == expected, rank
        for name in OF_ALL:
            assert there["metrics"][name] == pytest.approx(one._metrics["train"][name], nan_ok=True), name
