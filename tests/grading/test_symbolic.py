"""Test equality by computer algebra, without a worker. Expected results were computed by hand."""

import pytest
from rows import rows

from trl_ces.grading import symbolic
from trl_ces.grading.symbolic import expression, same


@rows("symbolic/equal")
def test_equal_values_are_recognized(gold, answer):
    assert same(gold, answer) is True


@rows(
    "symbolic/different",
    (r"\frac{1}{3}", "0." + "3" * 500),  # longer than the longest number that is parsed
)
def test_different_values_are_recognized(gold, answer):
    assert same(gold, answer) is False


@rows("symbolic/not_simplified")
def test_values_with_different_leading_digits_are_not_simplified(gold, answer, monkeypatch):
    monkeypatch.setattr(symbolic.sympy, "simplify", lambda *_, **__: pytest.fail("simplified"))
    monkeypatch.setattr(symbolic, "verify", lambda *_, **__: pytest.fail("simplified"))
    assert same(gold, answer) is False


def test_constants_whose_first_nine_digits_agree_are_compared_by_algebra(monkeypatch):
    compared = []
    monkeypatch.setattr(symbolic, "verify", lambda *pair, **_: compared.append(pair) or True)
    assert same(r"\sqrt{2}", r"\sqrt{2}+10^{-9}") is True
    assert len(compared) == 1


@pytest.mark.parametrize("text", ["", "---", r"\frac{1}{", "3 4", "x=1=2<3)", "2 3 \\frac{1}{2}"])
def test_malformed_texts_are_not_parsed(text):
    assert expression(text) is None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("text", ["x" * 200, "(" * 40 + "x" + ")y" * 40, "2(3)" * 40, "(" * 40 + "2" + ")3" * 40])
def test_long_and_deep_products_are_parsed_quickly(text):
    assert expression(text) is not None


def test_minutes_of_arc_are_parsed():
    assert expression(r"63 45^{\prime}") is not None


def test_a_memory_error_is_raised_and_not_cached(monkeypatch):
    def raise_error(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(symbolic, "normalize_latex", raise_error)
        with pytest.raises(MemoryError):
            same("u+v+w", "w+v+u")
    assert same("u+v+w", "w+v+u") is True
