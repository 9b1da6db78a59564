"""Check that invalid rewards cause an error or a warning that names the function and, if known, the row."""

import asyncio
import logging
from collections import Counter, deque
from types import MappingProxyType

import numpy
import pandas
import pytest
import torch
from trainers import tiny_trainer

from trl_ces.layers.reward_calls import LARGEST, RewardError, guard

ARGUMENTS = {
    "prompts": ["1+1=", "2+2=", "3+3="],
    "completions": ["2", "5", "6"],
    "solution": ["2", "4", "6"],
    "trainer_state": {"not": "a column"},
}
NAN = float("nan")
LOGGER = "trl_ces.layers.reward_calls"


def reward_that_returns(*rewards):
    return lambda completions, **kwargs: list(rewards)


def failing(completions, solution, **kwargs):
    """Raise for an incorrect completion, as a parser does for unexpected text."""
    return [1.0 / (completion == gold) for completion, gold in zip(completions, solution, strict=True)]


async def failing_async(completions, solution, **kwargs):
    return failing(completions, solution)


def failing_generator(completions, solution, **kwargs):
    yield from failing(completions, solution)


def call(func, on_error):
    result = guard(func, "some_reward", on_error)(**ARGUMENTS)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


# name: (function, problem in the message, rewards with "skip")
INVALID = {
    "nan": (reward_that_returns(1.0, NAN, 0), "returned nan for row 1 of 3", [1.0, None, 0.0]),
    "infinity": (reward_that_returns(1.0, 0.5, float("inf")), "returned inf for row 2 of 3", [1.0, 0.5, None]),
    "nan in a tensor": (lambda **_: torch.tensor([1.0, 2.0, torch.nan]), "for row 2 of 3", [1.0, 2.0, None]),
    "text": (reward_that_returns("1.0", 0, 0), "returned '1.0' for row 0 of 3", [None, 0.0, 0.0]),
    "a list": (reward_that_returns(1, [1], 0), "returned [1] for row 1 of 3", [1.0, None, 0.0]),
    "a complex number": (reward_that_returns(1, 1j, 0), "returned 1j for row 1 of 3", [1.0, None, 0.0]),
    "two logits": (lambda **_: torch.eye(3)[:, :2], "returned tensor([1., 0.]) for row 0 of 3", [None] * 3),
    "integer too large": (reward_that_returns(1, 10**400, 0), "for row 1 of 3", [1.0, None, 0.0]),
    "infinite as float32": (reward_that_returns(1, 1e39, 0), "returned 1e+39 for row 1 of 3", [1.0, None, 0.0]),
    "two invalid rows": (reward_that_returns(None, "x", NAN), "returned 'x' for row 1 of 3", [None, None, None]),
    "too few": (reward_that_returns(1.0, 1.0), "returned 2 rewards for 3 completions", [None] * 3),
    "too many": (reward_that_returns(1.0, 1.0, 1.0, 1.0), "returned 4 rewards for 3 completions", [None] * 3),
    "a number": (lambda **_: 1.0, "returned 1.0, a float, instead of one reward per completion", [None] * 3),
    **{
        type(value).__name__: (
            lambda value=value, **_: value,
            f"a {type(value).__name__}, instead of one reward per completion",
            [None] * 3,
        )
        for value in (
            {0: 1.0, 1: 0.0, 2: 1.0},
            Counter({0: 1, 1: 2, 2: 3}),
            MappingProxyType({0: 1.0, 1: 0.0, 2: 1.0}),
            {0.0, 1.0, 0.5},
            frozenset({0, 1, 2}),
            {0: 1.0, 1: 0.0, 2: 1.0}.keys(),
            {0: 1.0, 1: 0.0, 2: 1.0}.values(),
            {0: 1.0, 1: 0.0, 2: 1.0}.items(),
            "101",
            b"101",
            numpy.array(1.0),
            torch.tensor(1.0),
            pandas.DataFrame([[1.0, 0.0, 1.0]] * 3),
        )
    },
    "bytes in a list": (reward_that_returns(1, b"1", 0), "returned b'1' for row 1 of 3", [1.0, None, 0.0]),
    "None": (lambda **_: None, "returned None, a NoneType, instead of one reward per completion", [None] * 3),
    "raises": (failing, "raised ZeroDivisionError: float division by zero", [None] * 3),
    "raises, async": (failing_async, "raised ZeroDivisionError: float division by zero", [None] * 3),
    "raises, generator": (failing_generator, "raised ZeroDivisionError: float division by zero", [None] * 3),
}


@pytest.mark.parametrize("case", INVALID)
def test_the_error_names_the_function_the_row_and_the_remedy(case):
    func, problem, _ = INVALID[case]
    with pytest.raises(RewardError) as error:
        call(func, "stop")
    message = str(error.value)
    assert message.startswith("The reward function 'some_reward' ")
    assert problem in message
    assert '`on_reward_error="skip"`' in message
    if "row 1" in problem:
        assert "prompt '2+2=', completion '5'" in message
    assert isinstance(error.value.__cause__, ZeroDivisionError) == ("raised" in problem)


@pytest.mark.parametrize("case", INVALID)
def test_skip_warns_and_leaves_invalid_rows_without_a_reward(case, caplog):
    func, problem, rewards = INVALID[case]
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        assert call(func, "skip") == rewards
    (record,) = caplog.records
    assert problem in record.getMessage()
    num_skipped = 2 if case == "two invalid rows" else rewards.count(None)
    assert record.getMessage().endswith(f"{num_skipped} of 3 completions get no reward from this function.")


# TRL accepts any iterable.
VALID = {
    "list": (reward_that_returns(1, 0.5, None), [1.0, 0.5, None]),
    "bools and numpy": (reward_that_returns(True, False, numpy.float32(0.25)), [1.0, 0.0, 0.25]),
    "the largest float32": (reward_that_returns(LARGEST, -LARGEST, 0), [LARGEST, -LARGEST, 0.0]),
    "tuple": (lambda **_: (1, 2, 3), [1.0, 2.0, 3.0]),
    "tensor": (lambda **_: torch.tensor([1.0, -2.0, 3.0]), [1.0, -2.0, 3.0]),
    "array": (lambda **_: numpy.array([1, 2, 3]), [1.0, 2.0, 3.0]),
    "generator": (lambda completions, **_: (float(text) for text in completions), [2.0, 5.0, 6.0]),
    "column of logits": (lambda **_: torch.tensor([[1.0], [0.0], [3.0]]), [1.0, 0.0, 3.0]),
    "series with a shuffled index": (lambda **_: pandas.Series([1.0, 2.0, 3.0], index=[2, 0, 1]), [1.0, 2.0, 3.0]),
    "deque": (lambda **_: deque([1, None, 3]), [1.0, None, 3.0]),
}


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("kind", VALID)
def test_valid_rewards_pass_without_a_warning(kind, on_error, caplog):
    func, rewards = VALID[kind]
    assert call(func, on_error) == rewards
    assert caplog.records == []


def test_the_error_has_a_hint_if_messages_are_read_as_text():
    def strip_reward(completions, **kwargs):
        return [float(completion.strip() == "4") for completion in completions]

    chats = [[{"role": "assistant", "content": "4"}]]
    with pytest.raises(RewardError, match=r"no attribute 'strip' .*the text is `completion\[-1\]\[\"content\"\]`\)"):
        guard(strip_reward, "some_reward", "stop")(prompts=["2+2="], completions=chats)

    def judge_reward(completions, **kwargs):
        raise ConnectionError("no judge")

    with pytest.raises(RewardError, match="raised ConnectionError: no judge: correct the function, or"):
        guard(judge_reward, "some_reward", "stop")(prompts=["2+2="], completions=chats)


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_function_that_raised_is_not_called_again(on_error):
    calls = []

    def raises(completions, **kwargs):
        calls.append(len(completions))
        raise RuntimeError("out of credit")

    if on_error == "stop":
        with pytest.raises(RewardError, match="'some_reward' raised RuntimeError: out of credit"):
            call(raises, on_error)
    else:
        assert call(raises, on_error) == [None] * 3
    assert calls == [3]


def test_a_reward_model_is_not_guarded():
    model = torch.nn.Linear(1, 1)
    assert guard(model, "model", "stop") is model


def test_functions_receive_only_the_new_keywords_that_they_accept():
    arguments = {name: ARGUMENTS[name] for name in ("completions", "solution")}
    new = {"thinking_prefilled": [True] * 3, "last_turns": ["ab"] * 3}
    neither = guard(lambda completions, solution: [float(len(gold)) for gold in solution], "neither", "stop")
    one = guard(lambda completions, last_turns: [float(len(turn)) for turn in last_turns], "one", "stop")
    every = guard(lambda **columns: [float(len(columns))] * 3, "every", "stop")
    compiled = guard(dict, "compiled", "skip")  # `dict` has no signature
    assert neither(**arguments, **new) == [1.0] * 3
    assert one(completions=["a"] * 3, **new) == [2.0] * 3
    assert every(**arguments, **new) == [4.0] * 3
    assert compiled(prompts=["a", "b"], completions=["c", "d"], **new) == [None] * 2  # a dict is not a list of rewards


# Tests with a trainer.


def nan_for_odd_rows(prompts, **kwargs):
    return [NAN if row % 2 else float(row % 4) for row in range(len(prompts))]


def make_trainer(tmp_path, on_error, rewards=nan_for_odd_rows, **changes):
    defaults = {"ces_correct_threshold": 2.0, "ces_tau": 0.5, "on_reward_error": on_error}
    return tiny_trainer(tmp_path, rewards, ["1+1=", "2+2="], **defaults, **changes)


def rewards_of(trainer):
    """Return the rewards of eight completions, shape (8, functions)."""
    prompts = ["1+1=", "2+2="] * 4
    examples = [{"prompt": prompt} for prompt in prompts]
    return trainer._calculate_rewards(examples, prompts, ["c"] * 8, [[5]] * 8).tolist()


def test_the_trainer_keeps_the_users_reward_objects(tmp_path):
    class Accuracy:
        """Reward with state that other code reads and changes during training."""

        def __init__(self):
            self.scale, self.calls = 1.0, 0

        def __call__(self, completions, **kwargs):
            self.calls += 1
            return [self.scale] * len(completions)

    reward = Accuracy()
    trainer = make_trainer(tmp_path, "stop", [reward])
    trainer.reward_funcs[0].scale = 2.0
    assert rewards_of(trainer) == [[2.0]] * 8
    assert trainer.reward_funcs[0] is reward
    assert reward.calls == 1


def test_guards_are_removed_after_an_error(tmp_path):
    def parse_reward(completions, **kwargs):
        return [float(text) for text in completions]

    trainer = make_trainer(tmp_path, "stop", [parse_reward])
    with pytest.raises(RewardError, match="'parse_reward' raised ValueError: could not convert string to float"):
        rewards_of(trainer)
    assert trainer.reward_funcs == [parse_reward]


def test_skipped_rows_are_excluded_from_group_means_and_shaping(tmp_path):
    trainer = make_trainer(tmp_path, "skip")
    rollout = trainer._generate_and_score_completions([{"prompt": p} for p in ["1+1=", "2+2="] for _ in range(4)])
    assert rollout["scored"].tolist() == [True, False] * 4  # rewards 0, None, 2, None: mean 1
    assert rollout["advantages"][[0, 2]].sum().item() == pytest.approx(0, abs=1e-5)
    assert rollout["advantages"][0].item() < -0.5
    assert rollout["advantages"][[1, 3]].tolist() == [0.0, 0.0]
