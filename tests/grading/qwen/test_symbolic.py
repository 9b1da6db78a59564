"""The algebra of the second verdict: what it reads, what it calls equal, and what it skips to save time."""

import pytest
from sympy import Expr

from trl_ces.grading.qwen import symbolic as qwen_symbolic
from trl_ces.grading.qwen.symbolic import parse, same_as_script

UNREADABLE = "\\"  # a backslash alone


def column(*entries):
    return r"\begin{pmatrix}" + r"\\".join(entries) + r"\end{pmatrix}"


@pytest.mark.parametrize("text", ["", UNREADABLE, "(2+x", r"x\%", "(1,2)", "[1,2]", r"(0,1)\cup(1,2)"])
def test_what_neither_parser_reads_is_nothing_and_prints_nothing(text, capsys):
    parse.cache_clear()
    assert parse(text) is None
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x^2-1", "(x-1)(x+1)"),
        ("(x-1)(x+1)", "x^2-1"),
        (r"\frac{x^2-y^2}{x-y}", "x+y"),
        (r"\sin(x+y)", r"\sin(x)\cos(y)+\cos(x)\sin(y)"),
        (r"2^{x}2^{y}", r"2^{x+y}"),
        ("x-x", "y-y"),
        ("1", r"\sin^2(x)+\cos^2(x)"),  # symbols on one side only
        (r"\sin^2(x)+\cos^2(x)", "1"),
        # Zero, up to a floating-point rounding error.
        ("(x+1)^3-x^3-3x^2-3x-1", "0"),
        ("0", r"\sqrt{x+1}\sqrt{x+1}-x-1"),
        # Not numbers: undefined functions, a limit.
        ("f(x)(x+1)", "xf(x)+f(x)"),
        ("2f(2)", "f(2)+f(2)"),
        (r"\lim_{x\to 0}\frac{\sin(x)}{x}", "1"),
        (r"\int_{0}^{x}2tdt", "x^2"),
        ("abcghjkmnpq+x", "x+qpnmkjhgcba"),  # more symbols than values to try
        ("n+1,n", "n+1,n+2"),  # the script's error: the parser stops at the comma
        ("2+", "2"),
        (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2"),  # 1*4 - 2*3, readable by latex2sympy only
        ("-2", r"\begin{vmatrix}1&2\\3&4\end{vmatrix}"),
    ],
)
def test_expressions_that_are_the_same_for_every_value_of_the_names_are_equal(gold, answer):
    assert same_as_script(gold, answer) is True


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x^2-1", "(x-1)(x-1)"),
        ("x", "-x"),
        ("x", "y"),
        ("x+1", "x"),
        ("x", "x+1"),
        ("x-1", "x"),
        (r"\sqrt{x^2}", "x"),  # not where x is negative
        ("f(x)", "2f(x)"),
        (r"\int_{0}^{x}2tdt", "x^2+1"),
        ("x", UNREADABLE),
        (UNREADABLE, "x"),
        (UNREADABLE, UNREADABLE),
        (r"\mathit{None}", UNREADABLE),  # a variable of that name is something
        (UNREADABLE, r"\mathit{None}"),
    ],
)
def test_other_expressions_are_not_equal(gold, answer):
    assert same_as_script(gold, answer) is False


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        (r"\sqrt{2}", "1.4142", True),  # 1.5e-5 off, 1.0e-5 relative
        (r"\sqrt{2}", "1.4143", True),
        (r"\sqrt{2}", "1.4144", False),  # 1.3e-4 relative
        (r"\sqrt{2}", r"-\sqrt{2}", False),
        (r"\int_{0}^{1}x^2dx", "0.33333", True),  # an integral is a number too
        (r"\frac{1}{0}", r"\frac{1}{0}", True),
        (r"\sqrt{-4}", r"2\sqrt{-1}", True),
        (r"\sqrt{-4}", r"\sqrt{-1}", False),
        (r"\sqrt{-4}", r"-2\sqrt{-1}", False),
        (r"\sqrt{-2}", r"1.4142\sqrt{-1}", False),  # the tolerance applies to real numbers only
        (r"1+\sqrt{-1}", "1", False),
        ("1", r"1+\sqrt{-1}", False),
    ],
)
def test_constants_are_equal_to_a_relative_1e_4(gold, answer, expected):
    assert same_as_script(gold, answer) is expected


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("y=2x", "2x-y=0", True),
        ("y=2x", "2x=y", True),
        ("y=2x", "y=-2x", False),
        ("2x-y=0", "2x=-y", False),
        ("x=1", "x=-1", False),
        ("2y=4x", "y=2x", False),  # the script compares the two differences, not multiples of them
        ("x-2", "x=2", False),
        ("x=2", "x-2", False),
        ("x<y+1", "x<1+y", True),
        ("x<y+1", "x<y", False),
        ("x=y=z", "x=y=t", False),  # three sides have no difference
    ],
)
def test_equations_are_equal_up_to_sign_and_other_relations_as_they_are_printed(gold, answer, expected):
    assert same_as_script(gold, answer) is expected


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        (column("x", "0.3333"), column("x", "0.3331"), True),
        (column("x", "0.333"), column("x", "0.334"), False),
        (column("x", "3"), column("x", "4-1"), True),
        (column("2x", "3"), column("x+x", "3"), True),
        (column("x", "3"), column("y", "3"), False),
        (column(r"\max(1,2)", "3"), column(r"\max(1,2)", "4-1"), True),
        (column("1", "2"), r"\begin{pmatrix}1&2\end{pmatrix}", False),
        (column("1", "2"), "2", False),
        ("2", column("1", "2"), False),
    ],
)
def test_matrices_are_equal_to_three_places(gold, answer, expected):
    assert same_as_script(gold, answer) is expected


@pytest.mark.parametrize(("gold", "answer"), [("x^2y", "xy^2"), ("0.1x", "0.2x"), ("5", "words"), ("x", "y")])
def test_values_that_clearly_differ_spare_the_simplification(gold, answer, monkeypatch):
    monkeypatch.setattr(Expr, "equals", lambda *_: pytest.fail("simplified"))
    assert same_as_script(gold, answer) is False


@pytest.mark.parametrize(("gold", "answer"), [(r"\int_{0}^{x}2tdt", "x^2"), ("x^2", r"\int_{0}^{x}2tdt")])
def test_an_integral_with_names_is_not_evaluated_which_takes_longer_than_the_comparison(gold, answer, monkeypatch):
    monkeypatch.setattr(qwen_symbolic, "N", lambda *_: pytest.fail("evaluated"))
    assert same_as_script(gold, answer) is True


def test_constants_are_not_simplified_where_numbers_decide(monkeypatch):
    monkeypatch.setattr(Expr, "equals", lambda *_: pytest.fail("simplified"))
    assert same_as_script(r"\sqrt{8}", r"2\sqrt{2}") is True
