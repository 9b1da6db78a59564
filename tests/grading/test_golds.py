"""Golds are split into values and checked as far as possible without algebra."""

import pytest

from trl_ces.grading.golds import leaves, usable
from trl_ces.support.limits import MAX_LENGTH


@pytest.mark.parametrize(
    ("gold", "values"),
    [
        ("", []),
        ("$$", []),
        ("5", ["5"]),
        ("1,234", ["1,234"]),
        ("No, never", ["No, never"]),
        ("1, x+1", ["1", "x+1"]),
        ("1; (x+1, 3)", ["1", "x+1", "3"]),
        (r"\{1, \sqrt{2}\}", ["1", r"\sqrt{2}"]),
        (r"\pm\sqrt{2}", [r"+\sqrt{2}", r"-\sqrt{2}"]),
        (r"x \equiv 3 \pmod{7}", [r"x \equiv 3 \pmod{7}"]),
        (r"\pmb{x}+1", [r"\pmb{x}+1"]),
        (r"(-\infty,0)\cup[\sqrt{2},3]", [r"-\infty", "0", r"\sqrt{2}", "3"]),
        (r"x \in (0,\sqrt{2})", ["0", r"\sqrt{2}"]),
        (r"\{\}", [r"\emptyset"]),
        # units
        (r"\sqrt{2}\text{ cm}", [r"\sqrt{2}"]),
        # statements
        (r"\|u\|=\sqrt{13}", [r"\sqrt{13}"]),
        (r"x=(1,\sqrt{2})", ["1", r"\sqrt{2}"]),
        (r"x=\sqrt{8}=2\sqrt{2}", [r"2\sqrt{2}"]),
        ("x^2-7=0", ["x^2-7=0"]),
        ("(4,6)=2", ["2"]),  # the greatest common divisor
        ("4-2=(4,6)=2", ["2"]),
        (r"\mathbf{w}(1)=(.5,.25) \mathbf{w}(2)=(.4,.1)", [r"\mathbf{w}(1)=(0.5,0.25) \mathbf{w}(2)=(0.4,0.1)"]),
        (r"v=(.5,.25) w=2^2=(.4,.1)", ["v=(0.5,0.25) w=2^2=(0.4,0.1)"]),
        ("v=9.8t=19.6 at t", ["v=9.8t=19.6 at t"]),
        # ambiguous which part an answer has to state
        ("For j > 0, P(X = j) = 2", ["For j > 0, P(X = j) = 2"]),
        ("x+1, if x > 0", ["x+1, if x > 0"]),
    ],
)
def test_a_gold_is_taken_apart_into_its_values(gold, values):
    assert leaves(gold) == values


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("5", True),
        ("-3/4", True),
        (r"5\text{ cm}", True),
        ("x", True),
        (r"\text{B}", True),
        ("yes", True),
        ("No solution", True),
        ("1, 2", True),
        ("(1, 2)", True),
        (r"\sqrt{2}", None),
        (r"1, \sqrt{2}", None),
        ("ab", None),
        ("?", None),
        (r"x \equiv 3 \pmod{7}", True),
        ("", False),
        ("$$", False),
        (r"\frac{", False),
        ("5}", False),
        ("x" * (MAX_LENGTH + 1), False),
    ],
)
def test_numbers_letters_and_words_need_no_algebra_and_a_malformed_gold_is_refused(gold, expected):
    asked = []
    assert usable(gold, lambda value: asked.append(value) or True) is (expected is not False)
    assert bool(asked) is (expected is None)
    assert usable(gold, lambda value: False) is (expected is True)
