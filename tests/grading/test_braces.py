"""Arguments without braces get them as TeX reads them."""

import pytest

from trl_ces.grading.braces import with_braces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("x+1", "x+1"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"\frac12", r"\frac{1}{2}"),
        (r"\frac123", r"\frac{1}{2}3"),
        (r"\frac 1 2", r"\frac{1}{2}"),
        (r"\frac{1}2", r"\frac{1}{2}"),
        (r"\frac1{12}", r"\frac{1}{12}"),
        (r"\frac{11} {2}", r"\frac{11}{2}"),
        (r"\frac{a}b", r"\frac{a}{b}"),
        (r"\frac\pi2", r"\frac{\pi}{2}"),
        (r"\frac\pi 2x", r"\frac{\pi}{2}x"),
        (r"\frac1\pi", r"\frac{1}{\pi}"),
        (r"\frac{\sqrt3}2", r"\frac{\sqrt{3}}{2}"),
        (r"\frac\sqrt32", r"\frac{\sqrt{32}}"),  # the root takes all digits: no denominator is left
        (r"\frac\sqrt{3}2", r"\frac{\sqrt{3}}{2}"),
        (r"\frac{\frac12}3", r"\frac{\frac{1}{2}}{3}"),
        (r"\frac\frac123", r"\frac{\frac{1}{2}}{3}"),
        (r"-\frac{\pi}6+\frac xy", r"-\frac{\pi}{6}+\frac{x}{y}"),
        (r"\binom52", r"\binom{5}{2}"),
        (r"\binom n k", r"\binom{n}{k}"),
        (r"\binom523", r"\binom{5}{2}3"),
        (r"\sqrt2", r"\sqrt{2}"),
        (r"\sqrt10", r"\sqrt{10}"),
        (r"\sqrt 12.5x", r"\sqrt{12.5}x"),
        (r"\sqrt xy", r"\sqrt{x}y"),
        (r"\sqrt\pi", r"\sqrt{\pi}"),
        (r"\sqrt\frac12", r"\sqrt{\frac{1}{2}}"),
        (r"\sqrt[3]2", r"\sqrt[3]{2}"),
        (r"\sqrt [3] {2}", r"\sqrt[3]{2}"),
        (r"\sqrt[\frac12]{2}", r"\sqrt[\frac{1}{2}]{2}"),
        (r"\sqrt\sqrt2", r"\sqrt{\sqrt{2}}"),
        ("x^2", "x^2"),
        ("x^10", "x^10"),
        ("x^{10}", "x^{10}"),
        (r"x^\pi", r"x^\pi"),
        ("x^-1", "x^{-1}"),
        ("x^ - 12y", "x^{-12}y"),
        ("e^-tx", "e^{-t}x"),
        ("x^+2", "x^{+2}"),
        ("x^-{ab}", "x^{-ab}"),
        (r"2^\frac12", r"2^{\frac{1}{2}}"),
        (r"2^ \frac12", r"2^{\frac{1}{2}}"),
        (r"2^-\frac12x", r"2^{-\frac{1}{2}}x"),
        (r"a_\frac12", r"a_{\frac{1}{2}}"),
        (r"2^\fraction", r"2^\fraction"),
        (r"\fractional12", r"\fractional12"),
        (r"\sqrtx2", r"\sqrtx2"),
        (r"\{\frac12, \sqrt3\}", r"\{\frac{1}{2}, \sqrt{3}\}"),
        (r"\frac{\{1\}}2", r"\frac{\{1\}}{2}"),
        (r"x\\\frac12", r"x\\\frac{1}{2}"),  # a new matrix row
        (r"{{\frac12}}3", r"{{\frac{1}{2}}}3"),
        # truncated
        (r"\frac", r"\frac"),
        (r"\frac1", r"\frac{1}"),
        (r"\sqrt ", r"\sqrt"),
        ("x^", "x^"),
        ("x^-", "x^-"),
        ("{x", "{x}"),
        (r"\frac{1", r"\frac{1}"),
    ],
)
def test_arguments_stand_in_braces(text, expected):
    assert with_braces(text) == expected
    assert with_braces(expected) == expected
