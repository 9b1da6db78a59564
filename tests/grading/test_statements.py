"""Test names and results of statements such as `x = 2`, and intervals of inequalities, without computer algebra."""

import pytest
from rows import rows

from trl_ces.grading.statements import (
    gives_different_names,
    has_unknowns,
    has_words,
    interval_of,
    is_name,
    is_relation,
    may_be_named,
    results,
    sides,
    without_restatement,
)


@rows("statements/sides")
def test_a_text_is_split_at_its_equals_signs(text, expected):
    assert sides(text) == expected


@rows("statements/names")
def test_names_of_values_are_recognized(text):
    assert is_name(text)


@pytest.mark.parametrize(
    "text",
    ["", "5", "2x", "x+1", "x^2", "x, y", "(x)", "(1, y)", "(x, y+1)", "f(x)+1", "5(x)", r"\log_2 32", r"\infty"],
)
def test_numbers_and_expressions_are_not_names(text):
    assert not is_name(text)


@pytest.mark.parametrize(
    "text", ["x", "f'(x)", r"\theta", "m+n", "x_1+x_2", "(x, y)", "(x_1, x_2, x_3)", r"(a, \beta)"]
)
def test_names_that_a_question_may_ask_for_are_recognized(text):
    assert may_be_named(text) is True


@pytest.mark.parametrize(
    "text", ["5", r"\pi", "half", "not m+n", "2x", "x^2-4y", "2+3", r"\pi+e", r"\ln x+y", "-x", "(y, x)"]
)
def test_texts_that_a_question_cannot_ask_for_are_rejected(text):
    assert may_be_named(text) is False


@pytest.mark.parametrize("text", ["x<1", "x>1", r"x\leq 1", r"1\geq x", r"x \neq 1", r"x \lt 1", r"x\gt1"])
def test_a_text_with_an_inequality_sign_is_a_relation(text):
    assert is_relation(text)


@pytest.mark.parametrize("text", ["", "x = 1", r"\leqalign", r"\gtrdot", r"x \in S", "(1,2)"])
def test_a_text_without_an_inequality_sign_is_not_a_relation(text):
    assert not is_relation(text)


@pytest.mark.parametrize("text", ["x", "2x", "ab", r"\alpha", "ix", "ex", r"\sin x", "5 when", r"5\text{ cm}", "5米"])
def test_letters_that_are_neither_constants_nor_functions_are_unknowns(text):
    assert has_unknowns(text)


@rows("statements/constants")
def test_constants_and_functions_are_not_unknowns(text):
    assert not has_unknowns(text)


@pytest.mark.parametrize("text", ["0 when t", r"5\text{ cm}", "ab"])  # a product of letters looks like a word
def test_runs_of_letters_are_words(text):
    assert has_words(text)


@pytest.mark.parametrize("text", ["", "7", "x", "a b", r"\cos t", r"\alpha", r"\begin{pmatrix}1\\2\end{pmatrix}"])
def test_single_letters_and_commands_are_not_words(text):
    assert not has_words(text)


@rows("statements/results")
def test_results_are_the_sides_after_a_name_or_without_unknowns(statement, expected):
    assert results(statement) == expected


@rows("statements/different_names")
def test_statements_with_different_names_are_detected(items, expected):
    assert gives_different_names(items) is expected


@rows("statements/restatements")
def test_an_inequality_followed_by_its_interval_is_reduced_to_the_interval(text, expected):
    assert without_restatement(text) == expected


@rows("statements/intervals")
def test_an_inequality_for_a_letter_is_converted_to_an_interval(relation, interval):
    assert interval_of(relation) == interval


@rows("statements/no_intervals")
def test_other_relations_are_not_intervals(relation):
    assert interval_of(relation) is None
