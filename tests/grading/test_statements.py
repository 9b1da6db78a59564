r"""The name and the result of a statement such as `x = 2`; the interval of an inequality. No computer algebra."""

import pytest

from trl_ces.grading.statements import (
    gives_different_names,
    has_unknowns,
    has_words,
    interval_of,
    is_name,
    is_relation,
    may_be_named,
    restated,
    results,
    sides,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 2", ["x", "2"]),
        (r"x = \frac{40}{3} \approx 13.33", ["x", r"\frac{40}{3}", "13.33"]),
        ("P(X=2) = 5", ["P(X=2)", "5"]),  # not the sign inside brackets
        (r"x \leq 1", [r"x \leq 1"]),
        (r"\approxeq 3", [r"\approxeq 3"]),  # another sign
        ("7", ["7"]),
        ("", []),
    ],
)
def test_a_text_is_taken_apart_at_its_equality_signs(text, expected):
    assert sides(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x",
        " x ",
        "m_1",
        "y_{1}",
        "f(x)",
        "f'(x)",
        "f^{-1}(x)",
        "P(X=2)",
        "(x, y)",
        r"(x_1,x_{2}, \theta)",
        r"\theta",
        r"\text{Area}",
        r"\mathrm{V}",
        r"\angle ABC",
        r"\overline{AB}",
        r"\bar{x}",
        r"\vec{v}(t)",
        r"\frac{dy}{dx}",
        r"\Delta H",
        r"\sigma^2",
        "dS",
        "d y",
        r"\lim_{n \to \infty} n^2",
        "h / r",
        r"\sin\theta",
        r"\cos t",
        r"f^{\prime}(x)",
        r"\|u\|",
        r"\|\mathbf{u}\|",
        "[ v ]_{B}",
    ],
)
def test_a_value_is_given_to_a_name(text):
    assert is_name(text)


@pytest.mark.parametrize(
    "text",
    ["", "5", "2x", "x+1", "x^2", "x, y", "(x)", "(1, y)", "(x, y+1)", "f(x)+1", "5(x)", r"\log_2 32", r"\infty"],
)
def test_numbers_and_expressions_are_no_names(text):
    assert not is_name(text)


@pytest.mark.parametrize(
    "text", ["x", "f'(x)", r"\theta", "m+n", "x_1+x_2", "(x, y)", "(x_1, x_2, x_3)", r"(a, \beta)"]
)
def test_a_value_may_be_asked_for_under_this_name(text):
    assert may_be_named(text) is True


@pytest.mark.parametrize(
    "text", ["5", r"\pi", "half", "not m+n", "2x", "x^2-4y", "2+3", r"\pi+e", r"\ln x+y", "-x", "(y, x)"]
)
def test_it_is_not_asked_for_as(text):
    assert may_be_named(text) is False


@pytest.mark.parametrize("text", ["x<1", "x>1", r"x\leq 1", r"1\geq x", r"x \neq 1", r"x \lt 1", r"x\gt1"])
def test_a_text_with_an_inequality_sign_is_a_relation(text):
    assert is_relation(text)


@pytest.mark.parametrize("text", ["", "x = 1", r"\leqalign", r"\gtrdot", r"x \in S", "(1,2)"])
def test_a_text_without_an_inequality_sign_is_no_relation(text):
    assert not is_relation(text)


@pytest.mark.parametrize("text", ["x", "2x", "ab", r"\alpha", "ix", "ex", r"\sin x", "5 when", r"5\text{ cm}", "5米"])
def test_letters_that_are_neither_constants_nor_functions_are_unknowns(text):
    assert has_unknowns(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "3i",
        "2e",
        r"2\pi",
        r"\mathrm{e}^{2}",
        r"\frac{1}{2}",
        r"\sqrt[3]{2}",
        r"\log_2 32",
        r"\arcsin 1",
        r"1 \pm 2",
        r"\binom{5}{2} \cdot 3",
        r"\begin{pmatrix}1\\2\end{pmatrix}",
    ],
)
def test_constants_and_functions_are_no_unknowns(text):
    assert not has_unknowns(text)


@pytest.mark.parametrize("text", ["0 when t", r"5\text{ cm}", "ab"])  # a product of letters looks like a word
def test_runs_of_letters_are_words(text):
    assert has_words(text)


@pytest.mark.parametrize("text", ["", "7", "x", "a b", r"\cos t", r"\alpha", r"\begin{pmatrix}1\\2\end{pmatrix}"])
def test_single_letters_and_commands_are_no_words(text):
    assert not has_words(text)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x = 2", ["2"]),
        ("5 = x", ["5"]),
        (r"x = \frac{\ln 4}{2} = \ln 2", [r"\frac{\ln 4}{2}", r"\ln 2"]),
        ("2+3 = 5 = x", ["2+3", "5"]),
        (r"\log_2 32 = 5", [r"\log_2 32", "5"]),
        (r"2\arcsin 1 = \pi", [r"2\arcsin 1", r"\pi"]),  # pi is a value, though it looks like a name
        (r"\frac{40}{3} \approx 13.33", [r"\frac{40}{3}", "13.33"]),
        ("i^2 = i \\cdot i = -1", ["i^2", r"i \cdot i", "-1"]),
        ("y = 2x+1", ["2x+1"]),
        ("x = y", ["y"]),
        ("(x, y) = (1, 0)", ["(1, 0)"]),
        (r"\lim_{n \to \infty} \frac{n}{2n+1} = \frac{1}{2}", [r"\frac{1}{2}"]),
        ("y = x = 2", ["x", "2"]),
        (r"\cos t = 0 when t = \frac{\pi}{2}", [r"\frac{\pi}{2}"]),  # a side with words is not a result
        ("x = 5 cm", ["5 cm"]),  # the last side may contain words
        ("x^2 - 7 = 0", []),  # an equation is an answer as a whole
        ("2y = x", []),
        ("5 = 2y", []),
        ("5 = 2y = x", []),
        ("2y = 5 = x", []),
        ("7", []),
        ("x < 1", []),
        ("", []),
    ],
)
def test_a_statement_gives_what_stands_behind_a_name_or_where_nothing_is_unknown_every_side(statement, expected):
    assert results(statement) == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["x = 1", "y = 2"], True),
        (["x = 1", "y = 1"], True),
        (["x_1 = 1 = 2-1", "x_2 = 2"], True),
        (["x = 1", "x = 2"], False),
        (["x_1 = 1", "x _1 = 2"], False),  # spaces do not change a name
        (["x = 1", "2"], False),
        (["1", "y = 2"], False),
        (["1", "2"], False),
    ],
)
def test_values_have_an_order_where_each_has_a_name_of_its_own(items, expected):
    assert gives_different_names(items) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"-1 < x \leq 1 : (-1, 1]", "(-1, 1]"),
        ("x > 2:[3, 4]", "[3, 4]"),
        ("3:(1, 2)", "3:(1, 2)"),  # no inequality before the colon
        ("x < 1:5", "x < 1:5"),  # no interval after it
        ("x < 1:(1, 2):3", "x < 1:(1, 2):3"),
        ("3:2", "3:2"),
        ("3:x < 2", "3:x < 2"),
        ("x < 1", "x < 1"),
        ("", ""),
    ],
)
def test_an_inequality_and_its_interval_state_the_interval(text, expected):
    assert restated(text) == expected


@pytest.mark.parametrize(
    ("relation", "interval"),
    [
        ("x < 1", r"(-\infty,1)"),
        (r"x \leq 1", r"(-\infty,1]"),
        (r"x \lt 1", r"(-\infty,1)"),
        ("1 > x", r"(-\infty,1)"),
        (r"1 \geq x", r"(-\infty,1]"),
        ("x > 1", r"(1,\infty)"),
        (r"x \geq 1", r"[1,\infty)"),
        (r"x \gt 1", r"(1,\infty)"),
        ("1 < x", r"(1,\infty)"),
        (r"1 \leq x", r"[1,\infty)"),
        (r"x_1 \leq \frac{1}{2}", r"(-\infty,\frac{1}{2}]"),
        ("1 < x < 2", "(1,2)"),
        (r"1 \leq x < 2", "[1,2)"),
        (r"1 < x \leq 2", "(1,2]"),
        (r"1 \leq x \leq 2", "[1,2]"),
        ("2 > x > 1", "(1,2)"),
        (r"2 \geq x > 1", "(1,2]"),
        (r"2 > x \geq 1", "[1,2)"),
        (r"2 \gt x \gt 1", "(1,2)"),
    ],
)
def test_an_inequality_about_a_letter_is_an_interval(relation, interval):
    assert interval_of(relation) == interval


@pytest.mark.parametrize(
    "relation",
    [
        "",
        "5",
        "x = 1",
        r"x \neq 1",
        "1 < 2",
        "2x < 1",
        "1 < 2x",
        "1 < 2x < 3",
        "x < 1 < 2",
        "1 < 2 < x",
        "< 1",
        "x <",
        "x << 1",
        "0 < 1 < x < 2",
        "1 < x > 2",  # the signs point in opposite directions
        r"1 < x \geq 2",
        r"1 \leq x \geq 2",
        r"2 \geq x < 3",
        r"2 > x \leq 3",
    ],
)
def test_what_is_no_letter_between_values_is_no_interval(relation):
    assert interval_of(relation) is None
