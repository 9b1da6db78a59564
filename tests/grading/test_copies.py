"""Check that formulas copied from the question are rejected as answers."""

import logging

import pytest
from rows import rows

from trl_ces import rewards
from trl_ces.grading import grade, grade_many
from trl_ces.rewards import accuracy_reward


def boxed(answers):
    return [rf"\boxed{{{answer}}}" for answer in answers]


@rows("copies/copied")
def test_a_copied_formula_is_rejected_only_if_the_question_is_given(question, gold, copies):
    golds = [gold] * len(copies)
    assert accuracy_reward(boxed(copies), golds) == [1.0] * len(copies)
    assert accuracy_reward(boxed(copies), golds, prompts=[question] * len(copies)) == [0.0] * len(copies)


@rows("copies/correct")
def test_correct_answers_are_accepted_if_the_question_is_given(question, gold, answers):
    golds, prompts = [gold] * len(answers), [question] * len(answers)
    assert accuracy_reward(boxed(answers), golds, prompts=prompts) == [1.0] * len(answers)


def test_correct_qwen_does_not_depend_on_the_question():
    for question in (None, "Simplify $(x+1)(x-1)$."):
        assert grade(r"\boxed{(x+1)(x-1)}", "x^2-1", question, with_qwen=True).correct_qwen


def test_a_formula_from_the_question_of_another_row_is_accepted():
    golds, questions = ["12", "12"], [r"Find $\frac{24}{2}$.", "How many months are there in a year?"]
    answers = boxed([r"\frac{24}{2}", r"\frac{24}{2}"])
    assert [graded.correct for graded in grade_many(answers, golds, questions=questions)] == [False, True]


def test_grading_without_prompts_warns_once_that_copies_are_accepted(caplog):
    rewards._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="trl_ces.rewards"):
        accuracy_reward([r"\boxed{1}"], ["1"], prompts=["One?"])
        assert not caplog.records
        accuracy_reward([r"\boxed{1}"], ["1"])
        accuracy_reward([r"\boxed{2}"], ["2"])
    assert len(caplog.records) == 1


@pytest.mark.parametrize("answer", ["", "=", "==", "{}", "()", "+", "|", r"\{:\}", ","])
def test_an_answer_without_content_is_incorrect(answer):
    assert accuracy_reward([rf"\boxed{{{answer}}}"], ["5"], prompts=["What is $2 + 3$?"]) == [0.0]
