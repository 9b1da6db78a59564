"""Test equality for `correct_qwen` (see docs/evaluation.md) with a simple function instead of algebra."""

import time

import pytest
from rows import rows

from trl_ces.grading.qwen import equality as qwen_equality
from trl_ces.grading.qwen.equality import equal_as_script, parser_problem
from trl_ces.support.limits import MAX_ITEMS, MAX_LENGTH, MAX_NESTING

LONG = "x" * (MAX_LENGTH + 1)
MANY = ",".join(["1"] * MAX_ITEMS)


def no_algebra(gold, answer):
    pytest.fail(f"algebra was called for {gold!r} and {answer!r}")


def by_values(gold, answer):
    """Compare the values of two texts, with a number in place of each letter."""
    names = dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 1) | {"a": 2, "b": 3, "c": 7, "n": 11, "m": 13}
    return eval(gold, names) == eval(answer, names)


def matrix(*rows):
    return r"\begin{pmatrix}" + r"\\".join(rows) + r"\end{pmatrix}"


@rows(
    "qwen_equality/direct",
    (LONG, LONG, True),
    (LONG, "x", False),
    ("x", LONG, False),
)
def test_texts_letters_and_numbers_are_compared_without_algebra(gold, answer, expected):
    assert equal_as_script(gold, answer, no_algebra) is expected


@rows("qwen_equality/to_the_algebra")
@pytest.mark.parametrize("result", [True, False])
def test_remaining_pairs_are_compared_once_by_algebra(gold, answer, result):
    compared = []
    assert equal_as_script(gold, answer, lambda *pair: compared.append(pair) or result) is result
    assert compared == [(gold, answer)]


@rows(
    "qwen_equality/parts",
    (f"({MANY})", f"[{MANY}]"),
)
def test_lists_matrices_and_values_are_compared_part_by_part(gold, answer):
    assert equal_as_script(gold, answer, no_algebra) is True


@rows(
    "qwen_equality/different_parts",
    (f"({MANY},1)", f"[{MANY},1]"),
)
def test_algebra_compares_the_whole_texts_if_parts_differ(gold, answer):
    assert equal_as_script(gold, answer, lambda *pair: pair == (gold, answer)) is True
    assert equal_as_script(gold, answer, lambda *_: False) is False


@rows("qwen_equality/by_algebra")
def test_algebra_decides_pairs_that_differ_in_notation(gold, answer, expected):
    def algebra(left, right):
        return False if "pmatrix" in left + right or "[" in left + right else by_values(left, right)

    assert equal_as_script(gold, answer, algebra) is expected


@pytest.mark.parametrize("text", ["1" * (MAX_LENGTH - 1) + "x", "(" * MAX_NESTING + "1" * 9000, "[" + "1," * 4000])
def test_a_comparison_takes_linear_time(text):
    start = time.process_time()
    assert equal_as_script("5", text, lambda *_: False) is False
    assert time.process_time() - start < 0.5  # takes milliseconds; a quadratic search would take seconds


def test_an_exception_raised_by_the_algebra_is_not_caught():
    def raise_error(gold, answer):
        raise TimeoutError

    with pytest.raises(TimeoutError):
        equal_as_script("x", "y", raise_error)


@pytest.mark.parametrize(
    ("installed", "can_run"),
    [
        ("3.13.0", False),
        ("4.9.3", False),
        ("4.10", False),
        ("4.11.0", True),
        ("4.13.2", True),
        ("4.13.0rc1", True),
        ("5", False),
        ("5.0.0", False),
        ("5.12.1", False),
    ],
)
def test_an_incompatible_antlr_is_reported_with_the_version_to_install(installed, can_run, monkeypatch):
    monkeypatch.setattr(qwen_equality, "version", {"antlr4-python3-runtime": installed}.__getitem__)
    parser_problem.cache_clear()
    problem = parser_problem()
    parser_problem.cache_clear()
    if can_run:
        assert problem is None
    else:
        assert f"not {installed}" in problem
        assert "`pip install antlr4-python3-runtime==4.13.2`" in problem
