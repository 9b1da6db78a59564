"""Test the warnings, before training and after the first rollout, that a run cannot learn."""

import logging
import re

import pytest
import torch
from peft import LoraConfig
from tiny import tiny_model
from trainers import tiny_trainer

from trl_ces.layers.first_rollout import describe_example, first_rollout_warning, rounding_warning
from trl_ces.methods.groups import Groups


def groups(correct, scored=True):
    correct = torch.tensor([correct], dtype=torch.bool)
    return Groups(
        correct=correct,
        scored=torch.full_like(correct, scored),
        truncated=torch.tensor([[True, False, False, False]]),
        lengths=torch.full_like(correct, 40, dtype=torch.int64),
        rewards=correct.float(),
        max_length=50,
    )


def text_reward(completions, solution, answer, level, **kwargs):
    return [float(answer in text) for text in completions]


@pytest.mark.parametrize(
    ("rollout", "warning"),
    [
        (
            groups([0, 0, 0, 0], scored=False),
            "None for all 4 .* usable, or the reward function failed. EXAMPLE",
        ),
        (groups([0, 0, 0, 0]), r"None of the 4 .* \(25 % were truncated .* EXAMPLE"),
        (groups([1, 1, 1, 1]), "All 4 completions of the first rollout are correct"),
        (groups([1, 0, 0, 0]), "^$"),
    ],
)
def test_a_first_rollout_without_a_learning_signal_causes_a_warning(rollout, warning):
    assert re.search(warning, first_rollout_warning(rollout, "EXAMPLE"))


@pytest.mark.parametrize(
    ("completion", "row", "example"),
    [
        (
            [{"role": "assistant", "content": None}],
            {},
            "For example, the accuracy reward received messages that end with ''.",
        ),
        ("5", {"answer": True, "other": 7}, "For example, the accuracy reward received '5'."),
        (
            "7",
            {"solution": "7", "answer": 7},
            "For example, the accuracy reward received '7' with the reference answer '7'. `answer` is a number, which "
            "never equals text: compare with `str(answer)` instead.",
        ),
    ],
)
def test_the_example_warns_about_numbers_compared_with_text(completion, row, example):
    assert describe_example(text_reward, completion, row) == example


def test_the_trainer_warns_once(tmp_path, caplog):
    def accuracy_reward(completions, **kwargs):
        return [0.0] * len(completions)

    columns = {"prompt": ["1+2="] * 4, "solution": ["3"] * 4}
    trainer = tiny_trainer(tmp_path, accuracy_reward, columns, max_steps=2)
    with caplog.at_level(logging.WARNING):
        trainer.train()
    (warning,) = [record.message for record in caplog.records if "of the first rollout is correct" in record.message]
    assert "with the reference answer '3'" in warning


@pytest.mark.parametrize(
    ("dtype", "rate", "share"),
    [
        (torch.bfloat16, 2e-7, "100.0 % of the bfloat16 weights .* `learning_rate` 2e-07"),
        (torch.bfloat16, 0.0019, "50.0 %"),  # less than half the distance from 0.5 to the next bfloat16 number
        (torch.bfloat16, 0.004, "^$"),
        (torch.float32, 2e-7, "^$"),
    ],
)
def test_weights_that_rounding_leaves_unchanged_cause_a_warning(dtype, rate, share):
    assert re.search(share, rounding_warning(torch.tensor([0.5, 0.5, 0.1, 0.1], dtype=dtype), rate))


def test_the_trainer_warns_about_16_bit_weights_without_an_adapter(tmp_path, caplog):
    in_16_bits = {"model": tiny_model().bfloat16()}
    adapter = {"model": tiny_model().bfloat16(), "peft_config": LoraConfig(target_modules="all-linear")}
    for more in ({"model": tiny_model()}, adapter, in_16_bits):
        assert "The model will hardly learn" not in caplog.text
        tiny_trainer(tmp_path, more=more, learning_rate=2e-7)
    assert "The model will hardly learn" in caplog.text
