"""What is said after a first rollout that teaches nothing."""

import logging
import re

import pytest
import torch
from peft import LoraConfig
from tiny import scripted_accuracy_reward, tiny_model
from trainers import scripted_trainer, tiny_trainer

from trl_ces import CESConfig
from trl_ces.layers.first_rollout import automatic_tau, describe_example, warn_if_nothing_to_learn, warn_of_rounding
from trl_ces.methods.groups import Groups
from trl_ces.train.recipe import load_recipe


def groups(correct, lengths=40, scored=True):
    correct = torch.tensor(correct, dtype=torch.bool).view(1, -1)
    return Groups(
        correct=correct,
        scored=torch.full_like(correct, scored),
        truncated=torch.tensor([[True, False, False, False]]),
        lengths=torch.full_like(correct, lengths, dtype=torch.float),
        rewards=correct.float(),
        max_length=50,
        prompts=torch.tensor([0]),
    )


def read_as_text(completions, solution, answer, level, **kwargs):
    return [float(answer in text) for text in completions]


SEEN = describe_example(read_as_text, "the answer is 5", {"solution": "7", "answer": "7", "row": 3})


@pytest.mark.parametrize(
    ("rollout", "tau", "said"),
    [
        (
            groups([0, 0, 0, 0], scored=False),
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
def test_a_rollout_that_warn_if_nothing_to_learn_is_explained(rollout, tau, said):
    assert re.search(said, warn_if_nothing_to_learn(rollout, tau, SEEN))


@pytest.mark.parametrize(("rollout", "tau"), [(groups([1, 0, 0, 0]), 0.1), (groups([1, 0, 0, 0]), None)])
def test_one_that_teaches_is_not(rollout, tau):
    assert warn_if_nothing_to_learn(rollout, tau, SEEN) == ""


@pytest.mark.parametrize(
    ("completion", "row", "said"),
    [
        ([{"role": "assistant", "content": None}], {}, "For example, it got ''."),
        ("5", {"answer": True, "other": 7}, "For example, it got '5'."),
        (
            "7",
            {"solution": "7", "answer": 7},
            "For example, it got '7' against the gold '7'. `answer` is a number, never equal to text: "
            "if the reward compares the two, take `str(...)`.",
        ),
    ],
)
def test_what_a_reward_saw_names_a_number_that_it_may_take_for_text(completion, row, said):
    assert describe_example(read_as_text, completion, row) == said


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


@pytest.mark.parametrize(
    ("dtype", "rate", "stay"),
    [
        (torch.bfloat16, 2e-7, "100.0 % of the bfloat16 weights .* `learning_rate` 2e-07"),
        (torch.bfloat16, 0.0019, "50.0 %"),  # less than half of the distance between 0.5 and the next number
        (torch.bfloat16, 0.004, None),
        (torch.float32, 2e-7, None),
    ],
)
def test_weights_too_coarse_for_the_learning_rate_are_told(dtype, rate, stay):
    said = warn_of_rounding(torch.tensor([0.5, 0.5, 0.1, 0.1], dtype=dtype), rate)
    assert re.search(stay, said) if stay else said == ""


def test_a_trainer_says_that_its_weights_are_too_coarse(tmp_path, caplog):
    coarse = {"model": tiny_model().bfloat16()}
    adapter = {"model": tiny_model().bfloat16(), "peft_config": LoraConfig(target_modules="all-linear")}
    for more in ({"model": tiny_model()}, adapter, coarse):
        assert "Little will be learned" not in caplog.text
        tiny_trainer(tmp_path, more=more, learning_rate=2e-7)
    assert "Little will be learned" in caplog.text


@pytest.mark.parametrize(("length", "tau"), [(3983, 0.01), (400, 0.01), (70, 0.0571), (20, 0.2), (2, 1.0)])
def test_auto_is_four_tokens_a_completion_and_no_less_than_the_papers_share(length, tau):
    assert automatic_tau(length) == tau


def test_the_first_rollout_decides_and_the_number_stays(tmp_path, caplog):
    def accuracy_reward(completion_ids, **kwargs):
        seen.append([len(ids) for ids in completion_ids])
        return [float(number % 2) for number in range(len(completion_ids))]

    class Kept(CESConfig):
        def __post_init__(self):
            super().__post_init__()
            configs.append(self)

    seen, configs = [], []
    columns = {"prompt": ["1+2="] * 8, "solution": ["3"] * 8}
    trainer = tiny_trainer(tmp_path, accuracy_reward, columns, config_class=Kept, max_steps=3, ces_tau="auto")
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert len(seen) > 1
    mean = sum(seen[0]) / len(seen[0])
    assert trainer.args.ces_tau == automatic_tau(mean)
    assert configs[0].ces_tau == "auto"  # for the next trainer
    assert caplog.text.count(f"`ces_tau: auto` is {automatic_tau(mean):g}, from the first rollout's mean length.") == 1


def test_an_evaluation_before_the_first_rollout_has_a_tau_of_its_own(tmp_path):
    script = {
        prompt: [{"completion_ids": [2] * length, "accuracy": float(row % 2), "bonus": 0.0} for row in range(4)]
        for prompt, length in {"1+2=": 8, "3+4=": 20}.items()
    }
    changes = {"max_steps": 1, "per_device_train_batch_size": 4, "shuffle_dataset": False, "ces_tau": "auto"}
    trainer = scripted_trainer(tmp_path, script, [scripted_accuracy_reward], max_completion_length=20, **changes)
    trainer.evaluate()
    assert trainer.args.ces_tau == "auto"
    assert trainer.state.log_history[-1]["eval_ces/selected_tokens"] == 1.5  # floor(8 * 0.2857 / 2), floor(20 * ...)
    trainer.train()
    assert trainer.args.ces_tau == automatic_tau(8)


def test_a_recipe_takes_auto_or_a_number_for_a_tau():
    for text, value in (("auto", "auto"), ("0.05", 0.05)):
        assert load_recipe(["arithmetic"], {"ces_tau": [text]}).training["ces_tau"] == value
