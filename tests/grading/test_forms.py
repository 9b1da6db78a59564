"""Test canonical forms of equivalent answers, without computer algebra."""

import pytest
from rows import rows

from trl_ces.grading.forms import (
    choice,
    chooses,
    condition,
    congruence,
    is_words,
    spelling,
    split_base,
    with_constants_of,
    without_integer,
)


@rows("forms/conditions")
def test_a_stated_set_or_condition_is_extracted(text, stated):
    assert condition(text) == stated


@rows("forms/words")
def test_words_are_distinguished_from_mathematics(text, expected):
    assert is_words(text) is expected


@rows("forms/constants")
def test_constants_and_free_integers_get_the_names_of_the_gold(gold, answer, renamed):
    assert with_constants_of(gold, answer) == [renamed]


def test_a_free_integer_may_be_shifted_or_negated():
    shifted = [r"2k\pi", r"2(k+1)\pi", r"2(k-1)\pi", r"2(-k)\pi"]
    for gold, answer in [
        (r"2k\pi, k\in\mathbb{Z}", r"2n\pi, n\in\mathbb{Z}"),
        (r"2k\pi, k\in\mathbb{Z}", r"2k\pi, k\in\mathbb{Z}"),
        (r"2k\pi, k\in\mathbb{Z}", r"2k\pi"),
        (r"2k\pi", r"2k\pi, k\in\mathbb{Z}"),
    ]:
        assert with_constants_of(gold, answer) == shifted
    assert without_integer(r"2k\pi, k\in\mathbb{Z}") == r"2k\pi"
    assert without_integer(r"k\in\mathbb{Z}") == r"k\in\mathbb{Z}"


def test_constants_with_the_same_indices_are_paired_first():
    """Each additional pairing costs a comparison, so the most likely pairing comes first."""
    assert with_constants_of("c_{1}x+c_2", "C_1x+C_{2}") == ["c_{1}x+c_2", "c_2x+c_{1}"]
    assert with_constants_of("c_{1}x+c_2", "Bx+A")[0] == "c_{1}x+c_2"
    assert with_constants_of("c_{1}x^2+c_2", "Bx+A")[0] == "c_2x+c_{1}"
    assert with_constants_of(r"c_1+\frac{c_{2}}{x}", r"C_1+\frac{C_2}{x}")[0] == r"c_1+\frac{c_{2}}{x}"
    assert len(with_constants_of("c_1+c_2x+c_3y", "A+Bx+Cy")) == 6


@pytest.mark.parametrize(
    ("text", "digits_and_base"),
    [
        ("(1011)", ("(1011)", None)),
        ("(1011)_2", ("1011", "2")),
        ("101_{two}", ("101", "2")),
        ("ff_{16}", ("FF", "16")),
        (r"1011\text{ in base }b", ("1011", "b")),
    ],
)
def test_the_base_of_a_number_is_split_off(text, digits_and_base):
    assert split_base(text) == digits_and_base


@rows("forms/congruences")
def test_congruences_and_residue_classes_have_the_same_form(text, residue_and_modulus):
    assert congruence(text) == (residue_and_modulus and tuple(residue_and_modulus))


@pytest.mark.parametrize(("text", "letter"), [("C", "C"), ("(C)", "C"), (r"\textbf{(C)}\ 32", "C"), ("5", None)])
def test_the_letter_of_a_gold_is_extracted(text, letter):
    assert choice(text) == letter


@rows("forms/spelling")
def test_notations_have_a_canonical_spelling(text, expected):
    assert spelling(text) == expected


@pytest.mark.parametrize("answer", ["B", "(B)", "B. 12", "Option B", "x = B", "b)"])
def test_an_answer_that_chooses_the_letter_is_recognized(answer):
    assert chooses(answer, "B") is True


@pytest.mark.parametrize("answer", ["A", "not B", "B is wrong", "B or C", "A, B", "Bob"])
def test_an_answer_that_does_not_choose_the_letter_is_recognized(answer):
    assert chooses(answer, "B") is False
