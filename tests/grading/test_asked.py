"""Test grading with the question, which can determine the noun, base, percentage, unit, order, options and names."""

from rows import rows

from trl_ces.grading import grade
from trl_ces.grading.asked import apply_question
from trl_ces.grading.numbers import MAX_DIGITS
from trl_ces.support.limits import MAX_LENGTH


@rows("asked/nouns")
def test_a_noun_or_base_from_the_question_is_removed_after_numbers(answer, question, expected):
    assert apply_question(answer, "5", question)[1] == expected


def test_a_base_is_kept_if_the_gold_has_a_base():
    assert apply_question("1011_3", "1011_2", "Write 11 in base 2.")[1] == "1011_3"


def test_very_long_answers_and_questions_are_not_changed():
    longest = "5" + " " * (MAX_DIGITS - 8) + "gizmos"
    assert apply_question(longest + " ", "5", "How many gizmos?")[1] == "5"
    assert apply_question(longest + "  ", "5", "How many gizmos?")[1] == longest + "  "
    assert apply_question("μ" * 9_900 + "x", "5", "How many gizmos?")[1] == "μ" * 9_900 + "x"
    assert apply_question("5 gizmos" + " " * MAX_LENGTH, "5", "How many gizmos?")[1].startswith("5 gizmos")
    assert apply_question("5 gizmos", "5", "How many gizmos?" * MAX_LENGTH)[1] == "5 gizmos"


@rows("asked/question")
def test_answers_are_graded_with_the_question(question, gold, answer, correct):
    assert grade(rf"\boxed{{{answer}}}", gold, question=question, with_qwen=False).correct is correct


def test_statements_are_ignored_with_boxes_only():
    text = "The answer is 5."
    assert grade(text, "5", with_qwen=False).correct
    assert grade(text, "5", with_qwen=False, boxes_only=True).answer is None


@rows("asked/notation")
def test_ratios_numbers_and_intervals_are_graded_in_different_notations(gold, answer, correct):
    assert grade(rf"\boxed{{{answer}}}", gold, with_qwen=False).correct is correct


@rows("asked/scale")
def test_a_scale_after_the_box_must_match_the_question(question, completion, correct):
    assert grade(completion, "5", question=question, with_qwen=False).correct is correct


@rows("asked/beside_the_box")
def test_text_next_to_the_box_can_change_the_answer(completion, gold, correct):
    assert grade(completion, gold, with_qwen=False).correct is correct


@rows("asked/words_of_the_question")
def test_bounds_and_scales_from_the_question_may_surround_the_box(question, completion, gold, correct):
    assert grade(completion, gold, question=question, with_qwen=False).correct is correct


@rows("asked/sentences")
def test_the_last_sentence_is_an_answer_if_it_states_one_value(question, completion, gold, correct):
    assert grade(completion, gold, question=question, with_qwen=False).correct is correct


def test_an_escaped_dollar_does_not_start_a_formula():
    text = r"Net income: \$6,840 - \$620 = $\boxed{\$6220}$."
    assert grade(text, "6,220", with_qwen=False).correct is True
