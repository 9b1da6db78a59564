"""What the question says about its answer: nouns, base, percentage, unit, order, options, names, words around it."""

from rows import rows

from trl_ces.grading import grade
from trl_ces.grading.asked import as_asked
from trl_ces.grading.numbers import MAX_DIGITS
from trl_ces.support.limits import MAX_LENGTH


@rows("asked/nouns")
def test_a_noun_or_base_of_the_question_is_dropped_after_a_number(answer, question, expected):
    assert as_asked(answer, "5", question)[1] == expected


def test_a_base_is_kept_when_the_gold_has_one():
    assert as_asked("1011_3", "1011_2", "Write 11 in base 2.")[1] == "1011_3"


def test_a_very_long_answer_or_question_is_left_alone():
    longest = "5" + " " * (MAX_DIGITS - 8) + "gizmos"
    assert as_asked(longest + " ", "5", "How many gizmos?")[1] == "5"
    assert as_asked(longest + "  ", "5", "How many gizmos?")[1] == longest + "  "
    assert as_asked("μ" * 9_900 + "x", "5", "How many gizmos?")[1] == "μ" * 9_900 + "x"
    assert as_asked("5 gizmos" + " " * MAX_LENGTH, "5", "How many gizmos?")[1].startswith("5 gizmos")
    assert as_asked("5 gizmos", "5", "How many gizmos?" * MAX_LENGTH)[1] == "5 gizmos"


@rows("asked/question")
def test_an_answer_is_judged_by_its_question(question, gold, answer, correct):
    assert grade(rf"\boxed{{{answer}}}", gold, question=question, with_qwen=False).correct is correct


def test_boxes_only_ignores_statements():
    text = "The answer is 5."
    assert grade(text, "5", with_qwen=False).correct
    assert grade(text, "5", with_qwen=False, boxes_only=True).answer is None


@rows("asked/notation")
def test_ratios_commas_intervals_and_sides(gold, answer, correct):
    assert grade(rf"\boxed{{{answer}}}", gold, with_qwen=False).correct is correct


@rows("asked/scale")
def test_a_scale_after_the_box_must_be_the_questions(question, completion, correct):
    assert grade(completion, "5", question=question, with_qwen=False).correct is correct


@rows("asked/beside_the_box")
def test_text_beside_the_box(completion, gold, correct):
    assert grade(completion, gold, with_qwen=False).correct is correct


def test_an_escaped_dollar_opens_no_formula():
    text = r"Net income: \$6,840 - \$620 = $\boxed{\$6220}$."
    assert grade(text, "6,220", with_qwen=False).correct is True
