"""Grading starts once the completions exist, alongside the forwards for the old log-probs."""

import os
import threading
from types import SimpleNamespace

import pytest
import torch
from test_trainer_seam import make_trainer

from trl_ces import CESTrainer
from trl_ces.grading import early, grader
from trl_ces.rewards import accuracy_reward
from trl_ces.rollout.reward_guard import start_early

QUESTION = {"solution": ["7", None], "thinking_prefilled": [False, False], "last_turns": [r"\boxed{7}", "7"]}


@pytest.fixture
def asked(monkeypatch):
    """Names of the threads that asked for grades, in order."""
    threads, grade_many = [], early.grade_many

    def spied(*arguments, **settings):
        threads.append(threading.current_thread().name)
        return grade_many(*arguments, **settings)

    monkeypatch.setattr(early, "grade_many", spied)
    return threads


def ask(**changes):
    question = {**QUESTION, **changes}
    return accuracy_reward(completions=question["last_turns"], **question)


def test_grades_that_were_started_are_not_worked_out_again(asked):
    accuracy_reward.start_early(prompts=["a", "b"], **QUESTION)
    assert ask() == [1.0, None]
    assert len(asked) == 1
    assert asked[0].startswith("trl_ces_early")
    assert ask() == [1.0, None]  # handed out once
    assert asked[1:] == [threading.current_thread().name]


def test_nobody_waits_for_grades_that_are_only_started(monkeypatch):
    may_go_on, grade_many = threading.Event(), early.grade_many

    def waits(*arguments, **settings):
        assert may_go_on.wait(timeout=60)
        return grade_many(*arguments, **settings)

    monkeypatch.setattr(early, "grade_many", waits)
    accuracy_reward.start_early(**QUESTION)
    may_go_on.set()
    assert ask() == [1.0, None]


def test_the_second_verdict_is_not_worked_out(monkeypatch):
    monkeypatch.setattr(grader, "predict", lambda *_: pytest.fail("extracted for the script"))
    accuracy_reward.start_early(**QUESTION)
    assert ask() == [1.0, None]
    assert ask() == [1.0, None]


@pytest.mark.parametrize(
    ("changes", "rewards_of"),
    [
        ({"solution": ["8", "7"]}, [0.0, 0.0]),
        ({"last_turns": [r"\boxed{8}", "7"]}, [0.0, None]),
        ({"thinking_prefilled": [True, False]}, [0.0, None]),  # prefilled, and thinking is never closed
    ],
    ids=["solution", "text", "prefilled"],
)
def test_another_question_is_answered_for_itself(asked, changes, rewards_of):
    accuracy_reward.start_early(**QUESTION)
    assert ask(**changes) == rewards_of
    assert len(asked) == 2


def test_an_error_is_raised_where_the_rewards_are_asked_for(monkeypatch):
    def fails(*arguments, **settings):
        raise RuntimeError("A grading worker did not start.")

    monkeypatch.setattr(early, "grade_many", fails)
    accuracy_reward.start_early(**QUESTION)
    with pytest.raises(RuntimeError, match="did not start"):
        ask()


def test_a_forked_process_does_not_wait_for_its_parents_thread(asked):
    accuracy_reward.start_early(**QUESTION)
    child = os.fork()
    if child == 0:
        os._exit(0 if ask() == [1.0, None] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ask() == [1.0, None]
    assert len(asked) == 1


def test_functions_without_a_start_and_reward_models_are_left_alone():
    told = []
    eager = SimpleNamespace(start_early=lambda **columns: told.append(columns))
    model = torch.nn.Linear(1, 1)
    model.start_early = None
    start_early([len, model, eager], [{"prompt": "a", "solution": "1"}, {"prompt": "b", "solution": "2"}])
    assert told == [{"prompt": ["a", "b"], "solution": ["1", "2"]}]


def test_the_trainer_grades_beside_the_forwards_for_the_old_log_probs(tmp_path, monkeypatch):
    """The forwards here wait for grading, and would hang if it started after them."""
    grading_began, in_time, grade_many = threading.Event(), [], early.grade_many

    def spied(*arguments, **settings):
        grading_began.set()
        return grade_many(*arguments, **settings)

    def rollout(prompts, trainer):
        encode = trainer.processing_class.encode
        answers = [r"\boxed{7}<eos>" if row % 4 == 0 else r"\boxed{8}<eos>" for row in range(len(prompts))]
        return {
            "prompt_ids": [encode(prompt) for prompt in prompts],
            "completion_ids": [encode(answer) for answer in answers],
            "logprobs": None,
        }

    columns = {"prompt": ["1+6=", "2+5="], "solution": ["7", "7"]}
    # Four steps per rollout: the later ones need the log-probs of the policy that generated it.
    steps = {"per_device_train_batch_size": 2, "steps_per_generation": 4}
    trainer = make_trainer(tmp_path, [accuracy_reward], columns, rollout_func=rollout, **steps)
    forward = CESTrainer._get_per_token_logps_and_entropies

    def watched(self, *arguments, **settings):
        in_time.append(grading_began.wait(timeout=60))
        return forward(self, *arguments, **settings)

    monkeypatch.setattr(early, "grade_many", spied)
    monkeypatch.setattr(CESTrainer, "_get_per_token_logps_and_entropies", watched)
    rows = [{name: values[prompt] for name, values in columns.items()} for prompt in (0, 0, 0, 0, 1, 1, 1, 1)]
    batch = trainer._generate_and_score_completions(rows)
    assert in_time == [True]
    assert batch["correct"].tolist() == [True, False, False, False] * 2
    assert batch["group_correct"].tolist() == [1] * 8
