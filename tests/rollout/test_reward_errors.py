"""A reward function that fails says which row it failed on; the run stops or goes on without it, as configured."""

import asyncio
import logging

import numpy
import pytest
import torch
from datasets import Dataset
from tiny import settings, tiny_model, tiny_tokenizer

from trl_ces import CESConfig, CESTrainer
from trl_ces.rollout.reward_guard import RewardError, guarded, tolerant

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
    """Fails on what is no right answer, as a parser does on text it did not expect."""
    assert len(completions) == len(solution)
    return [1.0 / (completion == gold) for completion, gold in zip(completions, solution, strict=True)]


async def failing_later(completions, solution, **kwargs):
    return failing(completions, solution)


def failing_as_a_whole(completions, **kwargs):
    if len(completions) > 1:
        raise RuntimeError("only one at a time")
    return [1.0]


def called(func, on_error):
    result = guarded(func, "some_reward", on_error)(**ARGUMENTS)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


CASES = {
    "nan": (returning(1.0, float("nan"), 0), "returned nan for row 1 of 3", [1.0, None, 0.0]),
    "infinity": (returning(1.0, 0.5, float("inf")), "returned inf for row 2 of 3", [1.0, 0.5, None]),
    "a tensor's nan": (lambda **_: torch.tensor([1.0, 2.0, torch.nan]), "for row 2 of 3", [1.0, 2.0, None]),
    "a text": (returning("1.0", 0, 0), "returned '1.0' for row 0 of 3", [None, 0.0, 0.0]),
    "a list": (returning(1, [1], 0), r"returned [1] for row 1 of 3", [1.0, None, 0.0]),
    "a complex number": (returning(1, 1j, 0), "returned 1j for row 1 of 3", [1.0, None, 0.0]),
    "too large a number": (returning(1, 10**400, 0), "for row 1 of 3", [1.0, None, 0.0]),
    "two wrong rows": (returning(None, "x", float("nan")), "returned 'x' for row 1 of 3", [None, None, None]),
    "too few": (returning(1.0, 1.0), "returned 2 rewards for 3 completions", [None] * 3),
    "too many": (returning(1.0, 1.0, 1.0, 1.0), "returned 4 rewards for 3 completions", [None] * 3),
    "no list": (lambda **_: 1.0, "returned 1.0, a float, and not a list", [None] * 3),
    "nothing": (lambda **_: None, "returned None, a NoneType, and not a list", [None] * 3),
    "raises": (failing, "raised ZeroDivisionError: float division by zero for row 1 of 3", [1.0, None, 1.0]),
    "raises later": (failing_later, "raised ZeroDivisionError: float division by zero for row 1", [1.0, None, 1.0]),
    "raises together": (failing_as_a_whole, "on the batch, and on no row alone: only one at a time", [None] * 3),
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


@pytest.mark.parametrize("case", CASES)
def test_skip_leaves_the_rows_concerned_without_a_reward_and_says_so(case, caplog):
    func, said, rewards = CASES[case]
    with caplog.at_level(logging.WARNING, logger="trl_ces.rollout.reward_guard"):
        assert called(func, "skip") == rewards
    (record,) = caplog.records
    assert said in record.getMessage()
    lost = 2 if case == "two wrong rows" else rewards.count(None)
    assert record.getMessage().endswith(f"{lost} of 3 completions have no reward from it.")


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_rewards_of_every_honest_kind_pass_in_silence(on_error, caplog):
    honest = [
        (returning(1, 0.5, None), [1.0, 0.5, None]),
        (returning(True, False, numpy.float32(0.25)), [1.0, 0.0, 0.25]),
        (lambda **_: (1, 2, 3), [1.0, 2.0, 3.0]),
        (lambda **_: torch.tensor([1.0, -2.0, 3.0]), [1.0, -2.0, 3.0]),
        (lambda **_: numpy.array([1, 2, 3]), [1.0, 2.0, 3.0]),
    ]
    for func, rewards in honest:
        assert called(func, on_error) == rewards
    assert caplog.records == []


def test_names_signatures_and_reward_models_are_kept():
    def plain(completions, solution):
        return [float(len(gold)) for gold in solution]

    watched = guarded(tolerant(plain), "plain", "stop")
    assert watched.__name__ == "plain"
    told = {name: ARGUMENTS[name] for name in ("completions", "solution")}
    assert watched(**told, thinking_prefilled=[True] * 3, last_turns=["a"] * 3) == [1.0, 1.0, 1.0]
    model = torch.nn.Linear(1, 1)
    assert guarded(model, "model", "stop") is model
    with pytest.raises(ValueError, match="`on_reward_error` is 'ignore': it is stop or skip"):
        guarded(plain, "plain", "ignore")


def nan_for_odd(prompts, **kwargs):
    return [float("nan") if row % 2 else float(row % 4) for row in range(len(prompts))]


def trainer_with(tmp_path, on_error):
    return CESTrainer(
        model=tiny_model(),
        reward_funcs=nan_for_odd,
        args=CESConfig(**settings(tmp_path, ces_correct_threshold=2.0, ces_tau=0.5, on_reward_error=on_error)),
        train_dataset=Dataset.from_dict({"prompt": ["1+1=", "2+2="]}),
        processing_class=tiny_tokenizer(),
    )


def test_a_skipped_row_is_left_out_of_its_groups_mean_and_of_the_shaping(tmp_path):
    trainer = trainer_with(tmp_path, "skip")
    rollout = trainer._generate_and_score_completions([{"prompt": p} for p in ["1+1=", "2+2="] for _ in range(4)])
    # rewards 0, none, 2, none: mean 1 over the two
    assert rollout["scorable"].tolist() == [True, False] * 4
    assert rollout["advantages"][[0, 2]].sum().item() == pytest.approx(0, abs=1e-5)
    assert rollout["advantages"][0].item() < -0.5
    assert rollout["advantages"][[1, 3]].tolist() == [0.0, 0.0]


def test_a_run_stops_at_the_first_row_without_a_reward(tmp_path):
    with pytest.raises(RewardError, match=r"'nan_for_odd' returned nan for row 1 of 8"):
        trainer_with(tmp_path, "stop").train()
