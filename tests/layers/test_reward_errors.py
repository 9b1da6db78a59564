"""A failing reward function is named, with the row if known; the run stops, or continues without its rewards."""

import asyncio
import logging
from collections import deque

import numpy
import pytest
import torch
from trainers import tiny_trainer

from trl_ces.layers.reward_calls import LARGEST, RewardError, guard, supported_arguments

ARGUMENTS = {
    "prompts": ["1+1=", "2+2=", "3+3="],
    "completions": ["2", "5", "6"],
    "solution": ["2", "4", "6"],
    "trainer_state": {"not": "a column"},
}


def returning(*rewards):
    def some_reward(completions, **kwargs):
        return list(rewards)

    return some_reward


def failing(completions, solution, **kwargs):
    """Raises on a wrong answer, as a parser does on unexpected text."""
    return [1.0 / (completion == gold) for completion, gold in zip(completions, solution, strict=True)]


async def failing_later(completions, solution, **kwargs):
    return failing(completions, solution)


def failing_generator(completions, solution, **kwargs):
    yield from failing(completions, solution)


def called(func, on_error):
    result = guard(func, "some_reward", on_error)(**ARGUMENTS)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


CASES = {
    "nan": (returning(1.0, float("nan"), 0), "returned nan for row 1 of 3", [1.0, None, 0.0]),
    "infinity": (returning(1.0, 0.5, float("inf")), "returned inf for row 2 of 3", [1.0, 0.5, None]),
    "a tensor's nan": (lambda **_: torch.tensor([1.0, 2.0, torch.nan]), "for row 2 of 3", [1.0, 2.0, None]),
    "a text": (returning("1.0", 0, 0), "returned '1.0' for row 0 of 3", [None, 0.0, 0.0]),
    "a list": (returning(1, [1], 0), r"returned [1] for row 1 of 3", [1.0, None, 0.0]),
    "a complex number": (returning(1, 1j, 0), "returned 1j for row 1 of 3", [1.0, None, 0.0]),
    "two logits": (lambda **_: torch.eye(3)[:, :2], "returned tensor([1., 0.]) for row 0 of 3", [None] * 3),
    "too large a number": (returning(1, 10**400, 0), "for row 1 of 3", [1.0, None, 0.0]),
    "infinite as float32": (returning(1, 1e39, 0), "returned 1e+39 for row 1 of 3", [1.0, None, 0.0]),
    "two wrong rows": (returning(None, "x", float("nan")), "returned 'x' for row 1 of 3", [None, None, None]),
    "too few": (returning(1.0, 1.0), "returned 2 rewards for 3 completions", [None] * 3),
    "too many": (returning(1.0, 1.0, 1.0, 1.0), "returned 4 rewards for 3 completions", [None] * 3),
    "no list": (lambda **_: 1.0, "returned 1.0, a float, not one reward per completion", [None] * 3),
    "nothing": (lambda **_: None, "returned None, a NoneType, not one reward per completion", [None] * 3),
    "raises": (failing, "raised ZeroDivisionError: float division by zero", [None] * 3),
    "raises later": (failing_later, "raised ZeroDivisionError: float division by zero", [None] * 3),
    "raises on its way": (failing_generator, "raised ZeroDivisionError: float division by zero", [None] * 3),
}


@pytest.mark.parametrize("case", CASES)
def test_stop_names_the_function_the_row_and_the_way_out(case):
    func, said, _ = CASES[case]
    with pytest.raises(RewardError) as caught:
        called(func, "stop")
    message = str(caught.value)
    assert said in message
    assert "The reward function 'some_reward' " in message
    assert '`on_reward_error="skip"`' in message
    if "row 1" in said:
        assert "prompt '2+2=', completion '5'" in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError) == ("raised" in said)


@pytest.mark.parametrize("case", CASES)
def test_skip_leaves_the_rows_concerned_without_a_reward_and_says_so(case, caplog):
    func, said, rewards = CASES[case]
    with caplog.at_level(logging.WARNING, logger="trl_ces.layers.reward_calls"):
        assert called(func, "skip") == rewards
    (record,) = caplog.records
    assert said in record.getMessage()
    lost = 2 if case == "two wrong rows" else rewards.count(None)
    assert record.getMessage().endswith(f"{lost} of 3 completions get no reward from it.")


def test_a_function_that_takes_messages_for_text_is_told_where_the_text_is():
    def strips(completions, **kwargs):
        return [float(completion.strip() == "4") for completion in completions]

    chats = [[{"role": "assistant", "content": "4"}]]
    with pytest.raises(RewardError, match=r"no attribute 'strip' .*its text is `completion\[-1\]\[\"content\"\]`\)"):
        guard(strips, "some_reward", "stop")(prompts=["2+2="], completions=chats)

    def unreachable(completions, **kwargs):
        raise ConnectionError("no judge")

    with pytest.raises(RewardError, match="raised ConnectionError: no judge: return a finite number"):
        guard(unreachable, "some_reward", "stop")(prompts=["2+2="], completions=chats)


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("later", [False, True], ids=["plain", "async"])
def test_a_function_that_raised_is_not_called_again(on_error, later, caplog):
    seen = []

    def once(completions, **kwargs):
        seen.append(len(completions))
        raise RuntimeError("out of credit")

    async def once_later(completions, **kwargs):
        return once(completions)

    func = once_later if later else once
    if on_error == "stop":
        with pytest.raises(RewardError, match="'some_reward' raised RuntimeError: out of credit"):
            called(func, on_error)
    else:
        assert called(func, on_error) == [None] * 3
    assert seen == [3]


# Whatever TRL can iterate over.
HONEST = {
    "list": (returning(1, 0.5, None), [1.0, 0.5, None]),
    "bools and numpy": (returning(True, False, numpy.float32(0.25)), [1.0, 0.0, 0.25]),
    "tuple": (lambda **_: (1, 2, 3), [1.0, 2.0, 3.0]),
    "the largest float32": (returning(LARGEST, -LARGEST, 0), [LARGEST, -LARGEST, 0.0]),
    "tensor": (lambda **_: torch.tensor([1.0, -2.0, 3.0]), [1.0, -2.0, 3.0]),
    "array": (lambda **_: numpy.array([1, 2, 3]), [1.0, 2.0, 3.0]),
    "generator": (lambda completions, **_: (float(text) for text in completions), [2.0, 5.0, 6.0]),
    "map": (lambda completions, **_: map(int, completions), [2.0, 5.0, 6.0]),
    "deque": (lambda **_: deque([1, None, 3]), [1.0, None, 3.0]),
    "dict's values": (lambda completions, **_: dict.fromkeys(completions, 1).values(), [1.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("kind", HONEST)
def test_rewards_of_every_honest_kind_pass_in_silence(kind, on_error, caplog):
    func, rewards = HONEST[kind]
    assert called(func, on_error) == rewards
    assert caplog.records == []


def test_a_reward_model_is_not_guarded():
    model = torch.nn.Linear(1, 1)
    assert guard(model, "model", "stop") is model


def test_only_functions_that_take_the_trainers_own_keywords_get_them():
    def neither(completions, solution):
        return [float(len(gold)) for gold in solution]

    def one(completions, last_turns):
        return [float(len(turn)) for turn in last_turns]

    def any_of_them(**columns):
        return [float(len(columns))] * 3

    told = {name: ARGUMENTS[name] for name in ("completions", "solution")}
    new = {"thinking_prefilled": [True] * 3, "last_turns": ["ab"] * 3}
    assert supported_arguments(neither, {**told, **new}) == told
    assert supported_arguments(any_of_them, {**told, **new}) == {**told, **new}
    assert supported_arguments(dict, {**told, **new}) == told  # compiled, without a signature
    assert guard(neither, "neither", "stop")(**told, **new) == [1.0, 1.0, 1.0]
    assert guard(one, "one", "stop")(completions=["a"] * 3, **new) == [2.0, 2.0, 2.0]
    assert guard(any_of_them, "any_of_them", "stop")(**told, **new) == [4.0, 4.0, 4.0]


def test_the_trainer_keeps_the_users_own_objects(tmp_path):
    class Accuracy:
        """A reward whose state other code changes and reads during training."""

        def __init__(self):
            self.scale, self.calls = 1.0, 0

        def __call__(self, completions, **kwargs):
            self.calls += 1
            return [self.scale] * len(completions)

    def odd_length(completions, **kwargs):
        return [odd_length.weight] * len(completions)

    odd_length.weight = 1.0
    given = [Accuracy(), odd_length]
    trainer = trainer_with(tmp_path, "stop", given, ces_accuracy_reward="Accuracy")
    assert [kept is func for kept, func in zip(trainer.reward_funcs, given, strict=True)] == [True, True]
    trainer.reward_funcs[0].scale = 2.0
    trainer.reward_funcs[1].weight = 0.25
    assert rewards_of(trainer) == [[2.0, 0.25]] * 8
    assert given[0].calls == trainer.reward_funcs[0].calls == 1
    assert [kept is func for kept, func in zip(trainer.reward_funcs, given, strict=True)] == [True, True]


def test_a_guard_goes_even_if_the_function_fails(tmp_path):
    trainer = trainer_with(tmp_path, "stop", [failing])
    with pytest.raises(RewardError, match=r"'failing' raised TypeError: .*solution"):
        rewards_of(trainer)
    assert trainer.reward_funcs == [failing]


def test_a_function_that_fails_costs_the_others_nothing(tmp_path, caplog):
    async def broken(completions, **kwargs):
        raise ConnectionError("no judge")

    trainer = trainer_with(tmp_path, "skip", [nan_for_odd, broken], ces_accuracy_reward="nan_for_odd")
    with caplog.at_level(logging.WARNING, logger="trl_ces.layers.reward_calls"):
        rewards = torch.tensor(rewards_of(trainer))
    assert rewards[::2, 0].tolist() == [0.0, 2.0, 0.0, 2.0]
    assert rewards[1::2].isnan().all()
    assert rewards[:, 1].isnan().all()
    messages = [record.getMessage() for record in caplog.records if record.name.endswith("reward_calls")]
    assert messages == [
        "The reward function 'nan_for_odd' returned nan for row 1 of 8 (prompt '2+2=', completion 'c'); "
        "4 of 8 completions get no reward from it.",
        "The reward function 'broken' raised ConnectionError: no judge; 8 of 8 completions get no reward from it.",
    ]


def nan_for_odd(prompts, **kwargs):
    return [float("nan") if row % 2 else float(row % 4) for row in range(len(prompts))]


def trainer_with(tmp_path, on_error, rewards=nan_for_odd, **changes):
    usual = {"ces_correct_threshold": 2.0, "ces_tau": 0.5, "on_reward_error": on_error}
    return tiny_trainer(tmp_path, rewards, ["1+1=", "2+2="], **usual, **changes)


def rewards_of(trainer):
    """The rewards of eight completions, (8, functions)."""
    prompts = ["1+1=", "2+2="] * 4
    examples = [{"prompt": prompt} for prompt in prompts]
    return trainer._calculate_rewards(examples, prompts, ["c"] * 8, [[5]] * 8).tolist()


def test_a_skipped_row_is_left_out_of_its_groups_mean_and_of_the_shaping(tmp_path):
    trainer = trainer_with(tmp_path, "skip")
    rollout = trainer._generate_and_score_completions([{"prompt": p} for p in ["1+1=", "2+2="] for _ in range(4)])
    # rewards 0, none, 2, none: mean 1 over the two
    assert rollout["scored"].tolist() == [True, False] * 4
    assert rollout["advantages"][[0, 2]].sum().item() == pytest.approx(0, abs=1e-5)
    assert rollout["advantages"][0].item() < -0.5
    assert rollout["advantages"][[1, 3]].tolist() == [0.0, 0.0]
