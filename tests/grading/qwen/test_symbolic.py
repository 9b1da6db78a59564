"""Test the algebra for `correct_qwen`: parsing, equality, and shortcuts that save time."""

import pytest
from rows import rows
from sympy import Expr

from trl_ces.grading.qwen import symbolic as qwen_symbolic
from trl_ces.grading.qwen.symbolic import parse, same_as_script

BACKSLASH = "\\"


def column(*entries):
    return r"\begin{pmatrix}" + r"\\".join(entries) + r"\end{pmatrix}"


@pytest.mark.parametrize("text", ["", BACKSLASH, "(2+x", r"x\%", "(1,2)", "[1,2]", r"(0,1)\cup(1,2)"])
def test_texts_that_cannot_be_parsed_return_none_without_output(text, capsys):
    parse.cache_clear()
    assert parse(text) is None
    assert capsys.readouterr() == ("", "")


@rows("qwen_symbolic/equal")
def test_expressions_that_agree_for_all_symbol_values_are_equal(gold, answer):
    assert same_as_script(gold, answer) is True


@rows("qwen_symbolic/different")
def test_expressions_that_differ_for_some_values_are_not_equal(gold, answer):
    assert same_as_script(gold, answer) is False


@rows("qwen_symbolic/constants")
def test_constants_are_compared_with_a_relative_tolerance_of_1e_4(gold, answer, expected):
    assert same_as_script(gold, answer) is expected


@rows("qwen_symbolic/relations")
def test_equations_are_compared_up_to_sign_and_inequalities_by_text(gold, answer, expected):
    assert same_as_script(gold, answer) is expected


@rows("qwen_symbolic/matrices")
def test_matrices_are_compared_to_three_decimal_places(gold, answer, expected):
    assert same_as_script(gold, answer) is expected


@pytest.mark.parametrize(("gold", "answer"), [("x^2y", "xy^2"), ("0.1x", "0.2x"), ("5", "words"), ("x", "y")])
def test_expressions_with_clearly_different_values_are_not_simplified(gold, answer, monkeypatch):
    monkeypatch.setattr(Expr, "equals", lambda *_: pytest.fail("simplified"))
    assert same_as_script(gold, answer) is False


@pytest.mark.parametrize(("gold", "answer"), [(r"\int_{0}^{x}2tdt", "x^2"), ("x^2", r"\int_{0}^{x}2tdt")])
def test_an_integral_with_symbols_is_not_evaluated_numerically(gold, answer, monkeypatch):
    monkeypatch.setattr(qwen_symbolic, "N", lambda *_: pytest.fail("evaluated"))
    assert same_as_script(gold, answer) is True


def test_constants_are_not_simplified_if_their_values_decide(monkeypatch):
    monkeypatch.setattr(Expr, "equals", lambda *_: pytest.fail("simplified"))
    assert same_as_script(r"\sqrt{8}", r"2\sqrt{2}") is True
