r"""Check that `is_valid_in_context` detects text that negates, modifies or hides an answer."""

import pytest
from rows import rows

from trl_ces.grading.context import is_valid_in_context
from trl_ces.support.limits import MAX_LENGTH


def is_valid(text, value="5"):
    answer = rf"\boxed{{{value}}}"
    start = text.index("@")
    return is_valid_in_context(text.replace("@", answer), start, start + len(answer), value)


@rows("context/invalid")
def test_a_negated_modified_or_hidden_answer_is_rejected(text):
    assert not is_valid(text)


@rows(
    "context/valid",
    "if" + 100 * " word" + " @",
)
def test_a_valid_answer_is_accepted(text):
    assert is_valid(text)


def test_later_numbers_override_only_numeric_answers():
    assert is_valid("@. The answer is 6.", "x+1")
    assert is_valid("@. The answer is 0.33.", r"\frac{1}{3}")  # a rounded value of 1/3
    assert not is_valid("@. The answer is 0.25.", r"\frac{1}{3}")
    assert not is_valid("@. The answer is $0.5$.", "0")
    assert not is_valid("@. The answer is 9999.5.", "9900")  # differs by more than 1 %


@pytest.mark.timeout(60)  # a superlinear search would take hours
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (r"\text  " * 40 + "x", "", True),
        ("", " the answer is" + " " * 200_000 + "x", True),
        ("", " " + "1" * 200_000, True),
        ("", " for " + "and 1 " * 30_000, True),
        ("", " no wait" * 25_000, True),
        ("", ". no" * 50_000, True),
        ("", ")" * 200_000 + "^2", False),
    ],
    ids=range(7),
)
def test_text_around_an_answer_is_checked_in_linear_time(before, after, expected):
    assert is_valid(f"{before}@{after}") is expected


@pytest.mark.timeout(60)
def test_mathematics_within_an_answer_is_checked_in_linear_time():
    assert is_valid("@", r"\[" * 100_000)


def test_a_very_long_answer_is_not_compared_with_later_numbers():
    assert not is_valid("@. The answer is 6.", "5" + " " * (MAX_LENGTH - 1))
    assert is_valid("@. The answer is 6.", "5" + " " * MAX_LENGTH)


def test_an_answer_that_is_an_entire_formula_is_accepted():
    assert is_valid_in_context("Hence $5$!", 6, 9, "$5$")
