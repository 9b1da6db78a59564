"""One form for answers that mean the same by convention. No computer algebra."""

import pytest

from trl_ces.grading.forms import chooses, condition, is_words, spelling, with_constants_of


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        (r"x \in [1,2)", "[1,2)"),
        (r"x_1 \in [1,2)", "[1,2)"),
        (r"\{x \mid x > 2\}", "x > 2"),
        (r"\{x \in \mathbb{R} : x > 2\}", "x > 2"),
        ("-1 < x : (-1,1]", "(-1,1]"),
        (r"$\dfrac{1}{2}$", r"\frac{1}{2}"),
        (r"\{1, 2\}", r"\{1, 2\}"),
        (r"\text{No solution.}", r"\emptyset"),
        ("DNE", "does not exist"),
        (r"x < 1 \lor x > 2", "x < 1 , x > 2"),
        (r"p \lor q", r"p \lor q"),  # no condition
    ],
)
def test_the_set_or_condition_that_a_text_states(text, stated):
    assert condition(text) == stated


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", True),
        ("yes.", True),
        ("No", True),
        ("on", True),
        ("up", True),
        ("am", True),
        ("pm", True),
        (r"\text{cat}", True),
        ("IV", True),
        ("5am", True),
        ("2:35 P.M.", True),
        ("Not a function", True),
        ("7 apples", True),
        ("是", True),
        (r"\textcircled{1}", True),
        ("7", False),
        ("x", False),
        ("ab", False),
        ("2ab", False),
        ("log", False),
        ("sinh", False),
        ("arcsin x", False),
        (r"\alpha\beta", False),
        (r"\frac{x}{2}", False),
    ],
)
def test_words_are_told_from_mathematics(text, expected):
    assert is_words(text) is expected


@pytest.mark.parametrize(
    ("gold", "answer", "renamed"),
    [
        ("x^2+C", "x^2+c", "x^2+C"),
        ("x^2+C", r"x^2+\text{const.}", "x^2+C"),
        ("x^2", "x^2+c", "x^2+c"),
        ("c_1x", "C_1x", "c_1x"),
        ("C_1x", "C_1x", "C_1x"),
        ("c_1x", "C_1x+c_2", "C_1x+c_2"),  # c is taken
        ("y=Ce^x", "y(x)=Ae^x", "y=Ce^x"),
        (r"\frac{1}{x}", r"x^{-1}, x\neq 0", "x^{-1}"),
        (r"2k\pi, k\in\mathbb{Z}", r"2n\pi", r"2n\pi"),
        (r"2k\pi", r"2n\pi, n\in\mathbb{Z}", r"2n\pi, n\in\mathbb{Z}"),
        (r"k\pi, k\in\mathbb{Z}", r"n\pi k, n\in\mathbb{Z}", r"n\pi k"),  # k is taken
    ],
)
def test_constants_and_free_integers_are_named_as_the_golds(gold, answer, renamed):
    assert with_constants_of(gold, answer) == [renamed]


def test_a_free_integer_is_counted_from_another_start_or_down():
    counted = [r"2k\pi", r"2(k+1)\pi", r"2(k-1)\pi", r"2(-k)\pi"]
    assert with_constants_of(r"2k\pi, k\in\mathbb{Z}", r"2n\pi, n\in\mathbb{Z}") == counted


def test_constants_keep_their_numbers_first_whatever_their_braces():
    """Every other order costs a comparison of its own."""
    assert with_constants_of("c_{1}x+c_2", "C_1x+C_{2}") == ["c_{1}x+c_2", "c_2x+c_{1}"]
    assert with_constants_of("c_{1}x+c_2", "Bx+A")[0] == "c_2x+c_{1}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\textcircled{1}\textcircled{2}", r"\textcircled{1}\textcircled{2}"),
        (r"\textcircled{1}, \textcircled{2}", r"\textcircled{1}\textcircled{2}"),
        (r"\text{x.}", "x"),
        (".5x", ".5x"),
        ("The Frog", "frog"),
        ("a b", "ab"),
        ("3 4", "3~4"),
    ],
)
def test_what_is_written_alike_is_spelled_alike(text, expected):
    assert spelling(text) == expected


@pytest.mark.parametrize("answer", ["B", "(B)", "B. 12", "Option B", "x = B", "b)"])
def test_a_letter_is_chosen(answer):
    assert chooses(answer, "B") is True


@pytest.mark.parametrize("answer", ["A", "not B", "B is wrong", "B or C", "A, B", "Bob"])
def test_it_is_not_chosen(answer):
    assert chooses(answer, "B") is False
