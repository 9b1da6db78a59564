"""One form for answers that mean the same by convention. No computer algebra."""

import pytest

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
        (r"x>0", r"x>0, x\neq 1", r"x>0, x\neq 1"),  # a condition is all that is said
        ("x", r"x>2, x\neq 3", r"x>2, x\neq 3"),
        ("f(x)=2x", "y=2x", "f(x)=2x"),
        ("y=2x", "f(x)=2x", "y=2x"),
        ("f(x)=2x", "f=2x", "f(x)=2x"),
        ("f(x)=2x", "g=2x", "g=2x"),  # another function
        ("f(n)=2n", "f(x)=2x", "f(n)=2n"),
        ("f(n)=2n", "f(x)=2n", "f(x)=2n"),  # n is taken
        ("f(x)=2x", "2t", "2t"),
        (r"\{x \mid x>2\}", r"\{t \mid t>2\}", r"\{x \mid x>2\}"),
        ("Ce^x", "Ae^x", "Ae^x"),
        ("y=ax", "y=Ax", "y=Ax"),
        ("y=c_1x+C", "y=c_1x+C", "y=c_1x+C"),
        (r"f(n)=n", r"f(n)=n\text{ for all positive integers }n", "f(n)=n"),
        (r"\frac{x+c}{x}", r"\frac{x+c}{x}\text{ for an arbitrary constant }c", r"\frac{x+c}{x}"),
        (r"\frac{1}{x}", r"\frac{1}{x}, \omega\neq 2", r"\frac{1}{x}"),
        (r"\frac{1}{x}", r"\frac{1}{x}, |x| < 1", r"\frac{1}{x}"),
        ("c_1+c_2x+c_3y+c_4", "A+Bx+Cy+D", "c_1+c_2x+c_3y+c_4"),  # in one order: four have 24
        ("c_1+c_2x+c_3y+c_4", "B+Ax+Cy+D", "c_2+c_1x+c_3y+c_4"),
    ],
)
def test_constants_and_free_integers_are_named_as_the_golds(gold, answer, renamed):
    assert with_constants_of(gold, answer) == [renamed]


def test_a_free_integer_is_counted_from_another_start_or_down():
    counted = [r"2k\pi", r"2(k+1)\pi", r"2(k-1)\pi", r"2(-k)\pi"]
    for gold, answer in [
        (r"2k\pi, k\in\mathbb{Z}", r"2n\pi, n\in\mathbb{Z}"),
        (r"2k\pi, k\in\mathbb{Z}", r"2k\pi, k\in\mathbb{Z}"),
        (r"2k\pi, k\in\mathbb{Z}", r"2k\pi"),
        (r"2k\pi", r"2k\pi, k\in\mathbb{Z}"),
    ]:
        assert with_constants_of(gold, answer) == counted
    assert without_integer(r"2k\pi, k\in\mathbb{Z}") == r"2k\pi"
    assert without_integer(r"k\in\mathbb{Z}") == r"k\in\mathbb{Z}"


def test_constants_keep_their_numbers_first_whatever_their_braces():
    """Every other order costs a comparison of its own."""
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
def test_the_base_of_a_number(text, digits_and_base):
    assert split_base(text) == digits_and_base


@pytest.mark.parametrize(
    ("text", "residue_and_modulus"),
    [
        (r"x\equiv 10\pmod{7}", (3, 7)),
        (r"3\bmod 7", (3, 7)),
        (r"7k+10, k\in\mathbb{Z}", (3, 7)),
        (r"7k - 1, k\in\mathbb{Z}", (6, 7)),
        (r"n=4k, k\in\mathbb{Z}", (0, 4)),
        (r"0k+1, k\in\mathbb{Z}", None),
        (r"k^2, k\in\mathbb{Z}", None),
        ("7k+3", None),
        ("5", None),
    ],
)
def test_a_congruence_and_a_class_of_integers_are_one(text, residue_and_modulus):
    assert congruence(text) == residue_and_modulus


@pytest.mark.parametrize(("text", "letter"), [("C", "C"), ("(C)", "C"), (r"\textbf{(C)}\ 32", "C"), ("5", None)])
def test_the_letter_of_a_gold(text, letter):
    assert choice(text) == letter


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
        (r"\angle PQR", "anglePQR"),
        (r"\angle{RQP}", "anglePQR"),
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
