"""Equality in the second verdict: the rules of docs/evaluation.md, with a plain function as algebra."""

import time

import pytest

from trl_ces.grading.qwen import equality as qwen_equality
from trl_ces.grading.qwen.equality import equal_as_script, parser_problem
from trl_ces.support.limits import MAX_ITEMS, MAX_LENGTH, MAX_NESTING

DEEP = "(" * (MAX_NESTING + 1)
LONG = "x" * (MAX_LENGTH + 1)
MANY = ",".join(["1"] * MAX_ITEMS)


def no_algebra(gold, answer):
    pytest.fail(f"algebra for {gold!r} and {answer!r}")


def by_values(gold, answer):
    """Algebra for tests: texts are equal if their values are, with a number for each letter."""
    names = dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 1) | {"a": 2, "b": 3, "c": 7, "n": 11, "m": 13}
    return eval(gold, names) == eval(answer, names)


def matrix(*rows):
    return r"\begin{pmatrix}" + r"\\".join(rows) + r"\end{pmatrix}"


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        # text
        ("5", None, False),
        ("", None, False),
        ("", "", True),
        ("Yes", " yes ", True),
        (r"\sqrt{X} ", r"\sqrt{x}", True),
        (LONG, LONG, True),
        (LONG, "x", False),
        ("x", LONG, False),
        (DEEP, "x", False),
        ("x", DEEP, False),
        # letters: the last one that stands alone
        ("C", "c: because", True),
        ("C", "A or C!", True),
        ("C", "A, B, C!", True),
        # numbers: within a relative 1e-4 of the gold, a hundredth or a hundred times it; no rule follows
        ("5", "5.0", True),
        ("5", "5.", True),
        ("5", "+5", True),
        ("5", "-5", False),
        ("-5", "-5.00", True),
        ("0.5", ".5", True),
        ("1000", "1e3", True),
        ("0.001", "1E-3", True),
        ("1,234,567", "1234567", True),
        ("1234", "1,234", True),
        ("10000", "10000.9", True),
        ("10000", "9999.1", True),
        ("10000", "10001.1", False),
        ("0", "0.00001", False),
        ("5", "500", True),
        ("5", "0.05", True),
        ("5", "495", False),
        ("5", "505", False),
        ("5", "0.0505", False),
        ("5", "0.0495", False),
        ("5", "50", False),
        ("5", "0.5", False),
        ("5", "50000", False),
        # percent: a hundredth of 50 % is 0.005
        ("50%", "0.5", True),
        ("50%", "0.005", True),
        (r"50\%", "0.005", True),
        ("0.005", "50%", True),
        ("0.5%", "50", False),
        ("5", "50%", False),
        # an empty answer is wrong unless the gold is empty
        ("5", "", False),
        ("5", " ", False),
        ("{}", "", False),
        # text without round and curly brackets
        ("", "{}", True),
        ("(A,b)", "a,b", True),
        (r"\frac{1}{x}", r"\frac1x", True),
    ],
)
def test_text_letters_and_numbers_need_no_algebra(gold, answer, expected):
    assert equal_as_script(gold, answer, no_algebra) is expected


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("", "5"),
        ("x", "5"),
        ("5", "x"),
        ("5", "5\\"),  # a backslash is dropped only before a percent sign
        ("5", "5%%"),
        ("5", "1{,}234"),
        ("c", "A or C!"),  # not a choice letter
        ("C", "A, C, D!"),
        ("F", "F!"),
        ("x", "[x]"),
        ("1,x", "x,1"),
        ("pqr=5", "5"),
        ("5", "pqr=5"),
        ("p=q=5", "5"),
        ("5", "p=q=5"),
        ("p=q=5", "p=q"),
        ("p=q", "p=q=5"),
        ("p=q=5", "q=p=5"),
    ],
)
@pytest.mark.parametrize("verdict", [True, False])
def test_for_what_no_rule_decides_the_algebra_is_asked_once(gold, answer, verdict):
    asked = []
    assert equal_as_script(gold, answer, lambda *pair: asked.append(pair) or verdict) is verdict
    assert asked == [(gold, answer)]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("(1,2)", "[1.0,2]"),
        ("[1,2)", "(1,200]"),  # times 100
        (r"(\frac{1}{x},1)", r"[\frac1x,1.0]"),
        (f"({MANY})", f"[{MANY}]"),
        ("[q=5,1)", "(5,1)"),
        ("[1,\n2]", "(1,\n2.0)"),
        (matrix("1", "2"), matrix("1.0", "2.0")),
        (matrix("1&2", "3&4"), matrix("1.0&2", "3&4")),
        (matrix("1", "2"), matrix("1.0", "2", "")),  # the last row may be closed
        (matrix("1", "2"), matrix("1.0\n", "2")),
        ("q=5", "5"),
        ("pq=5", "5"),
        (" pq =5", "5.0"),
        ("q=1234", "1234.0"),
        ("5", "q=5"),
        ("5", "pq=5"),
        ("5.0", " pq =5"),
        ("1234.0", "q=1234"),
    ],
)
def test_lists_matrices_and_values_are_compared_by_their_parts(gold, answer):
    assert equal_as_script(gold, answer, no_algebra) is True


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("(1,2)", "[2,1]"),
        ("(1,2)", "[1,3]"),
        ("(1,2)", "[3,2]"),
        ("(1,2)", "[1,2,3]"),
        ("(1,2,3)", "[1,2]"),
        (f"({MANY},1)", f"[{MANY},1]"),
        # brackets at both ends of both texts make lists
        ("(1,2)", "[1,20"),
        ("[1,20", "(1,2)"),
        ("(1,2)", "01,2]"),
        ("p1,2q", "r1,2s"),
        (matrix("1", "2"), matrix("2", "1")),
        (matrix("1", "2"), matrix("1", "3")),
        (matrix("1", "2"), matrix("3", "2")),
        (matrix("1", "2"), matrix("1&2")),
        (matrix("1", "2"), matrix("1", "2", "3")),
        (matrix("1", "2", "3"), matrix("1", "2")),
        (matrix("1"), "2"),
        ("2", matrix("1")),
    ],
)
def test_where_parts_differ_the_algebra_has_the_last_word_on_the_whole(gold, answer):
    assert equal_as_script(gold, answer, lambda *pair: pair == (gold, answer)) is True
    assert equal_as_script(gold, answer, lambda *_: False) is False


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        # a, b, c, n, m are 2, 3, 7, 11, 13 and every other letter is 1
        ("(a+b,c)", "[b+a,c]", True),
        ("(a+b,c)", "[b+a,c+1]", False),
        (matrix("a+b", "c"), matrix("5", "c*x"), True),
        ("a+b=c", "b+a=c", True),
        ("a+b=c", "c=b+a", True),  # with the opposite sign
        ("a+b=c", "c=a-b", False),
        ("a+b=c-n", "c-n=a+b", True),  # the right side is subtracted as a whole
        ("a+b=c", "a+b=c+1", False),
        ("x=n+m", "m+n", True),
        ("xy=n+m", "m+n", True),
        ("x=n+m", "m-n", False),
        ("n+m", "x=m+n", True),
        ("n+m", "xy=m+n", True),
        ("n+m", "x=m-n", False),
        ("n+m", "m+n", True),
    ],
)
def test_what_is_left_is_decided_by_algebra(gold, answer, expected):
    def algebra(left, right):
        return False if "pmatrix" in left + right or "[" in left + right else by_values(left, right)

    assert equal_as_script(gold, answer, algebra) is expected


@pytest.mark.parametrize("text", ["1" * (MAX_LENGTH - 1) + "x", "(" * MAX_NESTING + "1" * 9000, "[" + "1," * 4000])
def test_the_time_of_a_comparison_grows_with_the_length_alone(text):
    start = time.process_time()
    assert equal_as_script("5", text, lambda *_: False) is False
    assert time.process_time() - start < 0.5  # milliseconds; seconds if each digit could end the number


def test_an_error_of_the_algebra_passes_through():
    def fails(gold, answer):
        raise TimeoutError

    with pytest.raises(TimeoutError):
        equal_as_script("x", "y", fails)


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
def test_an_antlr_that_cannot_read_the_parser_is_told_with_what_to_install(installed, can_run, monkeypatch):
    monkeypatch.setattr(qwen_equality, "version", {"antlr4-python3-runtime": installed}.__getitem__)
    parser_problem.cache_clear()
    problem = parser_problem()
    parser_problem.cache_clear()
    if can_run:
        assert problem is None
    else:
        assert f"not {installed}" in problem
        assert "`pip install antlr4-python3-runtime==4.13.2`" in problem
