"""What is said after a first rollout that teaches nothing."""

import logging
import re

import pytest
import torch
from trainers import tiny_trainer

from trl_ces.layers.first_rollout import teaches_nothing
from trl_ces.methods.groups import Groups


def groups(correct, lengths=40, scorable=True):
    correct = torch.tensor(correct, dtype=torch.bool).view(1, -1)
    return Groups(
        correct=correct,
        scorable=torch.full_like(correct, scorable),
        truncated=torch.tensor([[True, False, False, False]]),
        lengths=torch.full_like(correct, lengths, dtype=torch.float),
        rewards=correct.float(),
        max_length=50,
        prompts=torch.tensor([0]),
    )


COMPLETIONS = ["the answer is 5"] * 4


@pytest.mark.parametrize(
    ("rollout", "tau", "said"),
    [
        (
            groups([0, 0, 0, 0], scorable=False),
            0.1,
            "None for all 4 .* 'the answer is 5' against the gold '7'",
        ),
        (groups([0, 0, 0, 0]), 0.1, r"None of the 4 .* \(25 % were cut off .* 'the answer is 5' against the gold '7'"),
        (groups([1, 1, 1, 1]), 0.1, "All 4 completions of the first rollout are correct"),
        (
            groups([1, 0, 0, 0]),
            0.01,
            "No token .* has 40 tokens, .* one in 100. Set it to about 0.1,",
        ),
    ],
)
def test_a_rollout_that_teaches_nothing_is_explained(rollout, tau, said):
    assert re.search(said, teaches_nothing(rollout, tau, COMPLETIONS, ["7"] * 4))


@pytest.mark.parametrize(("rollout", "tau"), [(groups([1, 0, 0, 0]), 0.1), (groups([1, 0, 0, 0]), None)])
def test_one_that_teaches_is_not(rollout, tau):
    assert teaches_nothing(rollout, tau, [[{"role": "assistant", "content": None}]], [None]) == ""


def test_a_trainer_says_it_once(tmp_path, caplog):
    def accuracy_reward(completions, **kwargs):
        return [0.0] * len(completions)

    columns = {"prompt": ["1+2="] * 4, "solution": ["3"] * 4}
    trainer = tiny_trainer(tmp_path, accuracy_reward, columns, max_steps=2, ces_tau=0.001)
    with caplog.at_level(logging.WARNING):
        trainer.train()
    said = [record.message for record in caplog.records if "of the first rollout is correct" in record.message]
    assert len(said) == 1
    assert "against the gold '3'" in said[0]
    assert "Nothing will be shaped: a completion of at most" in caplog.text
