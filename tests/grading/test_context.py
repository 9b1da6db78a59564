r"""The text around an answer: `stands` is true exactly if nothing negates, modifies or hides the answer."""

import pytest
from rows import rows

from trl_ces.grading.context import stands
from trl_ces.support.limits import MAX_LENGTH


def stands_in(text, value="5"):
    answer = rf"\boxed{{{value}}}"
    start = text.index("@")
    return stands(text.replace("@", answer), start, start + len(answer), value)


@rows("context/not_stated")
def test_an_answer_that_the_text_negates_modifies_or_hides_does_not_count(text):
    assert not stands_in(text)


@rows(
    "context/stated",
    "if" + 100 * " word" + " @",
)
def test_an_answer_in_any_other_text_counts(text):
    assert stands_in(text)


def test_a_later_number_retracts_only_a_number():
    assert stands_in("@. The answer is 6.", "x+1")
    assert stands_in("@. The answer is 0.33.", r"\frac{1}{3}")  # rounded
    assert not stands_in("@. The answer is 0.25.", r"\frac{1}{3}")
    assert not stands_in("@. The answer is $0.5$.", "0")
    assert not stands_in("@. The answer is 9999.5.", "9900")  # by more than one in a hundred


@pytest.mark.timeout(60)  # a search that is not linear takes hours
@pytest.mark.parametrize(
    ("before", "behind", "expected"),
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
def test_text_around_an_answer_cannot_hang_the_trainer(before, behind, expected):
    assert stands_in(f"{before}@{behind}") is expected


@pytest.mark.timeout(60)
def test_mathematics_within_an_answer_cannot_hang_the_trainer():
    assert stands_in("@", r"\[" * 100_000)


def test_a_very_long_answer_is_not_read():
    assert not stands_in("@. The answer is 6.", "5" + " " * (MAX_LENGTH - 1))
    assert stands_in("@. The answer is 6.", "5" + " " * MAX_LENGTH)


def test_a_formula_that_is_the_answer_is_not_inside_one():
    assert stands("Hence $5$!", 6, 9, "$5$")
