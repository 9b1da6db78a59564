"""Test the rules of equality with a simple function instead of computer algebra."""

import pytest
from rows import answers_to, rows

from trl_ces.grading.equality import count_values, equal, listed_values, tuple_values, union_parts
from trl_ces.support.limits import MAX_ITEMS, MAX_LENGTH, MAX_NESTING


def no_algebra(gold, answer):
    pytest.fail(f"algebra was called for {gold!r} and {answer!r}")


def algebra(*known):
    """Make a substitute for the algebra that considers only these pairs equal."""
    return lambda gold, answer: (gold, answer) in known


@rows("equality/braces")
def test_braces_around_several_characters_are_kept(gold, answer):
    assert equal(gold, answer, algebra()) is False
    assert equal(gold, answer, algebra((gold, answer))) is True


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("x^{2}", "x^2"), ("x_{1}+{y}", "x_1+y"), (r"\frac{a}{b}", r"\frac ab"), ("x^{2}{}", "x^2"), ("yes", "{yes}")],
)
def test_braces_around_at_most_one_character_are_removed(gold, answer):
    assert equal(gold, answer, no_algebra) is True


@answers_to("equality/without_algebra")
def test_pairs_decided_by_a_rule_need_no_algebra(gold, answer, expected):
    assert equal(gold, answer, no_algebra) is expected


@rows("equality/to_the_algebra")
@pytest.mark.parametrize("result", [True, False])
def test_remaining_pairs_are_compared_once_by_algebra(gold, answer, sides, result):
    compared = []
    assert equal(gold, answer, lambda *pair: compared.append(pair) or result) is result
    assert compared == [tuple(sides)]


@rows("equality/with_algebra")
def test_parts_that_need_algebra_are_compared_by_algebra(gold, answer, known, expected):
    assert equal(gold, answer, algebra(*zip(known[::2], known[1::2], strict=True))) is expected


def test_an_exception_raised_by_the_algebra_is_not_caught():
    def raise_error(gold, answer):
        raise LookupError(gold)

    with pytest.raises(LookupError, match="x"):
        equal("x", "y+1", raise_error)


def test_texts_beyond_the_size_limits_are_compared_only_as_text():
    long, deep = "x+" * MAX_LENGTH + "x", "(" * MAX_NESTING + "(x+1)" + ")" * MAX_NESTING
    for text in (long, deep):
        assert equal(text, f" {text}", no_algebra) is True
        assert equal(text, "x", no_algebra) is False
        assert equal("x", text, no_algebra) is False


def test_the_number_of_sides_of_a_statement_is_limited():
    assert equal("5", "x" + "=5" * (MAX_ITEMS - 1), no_algebra) is True
    assert equal("5", "x" + "=5" * MAX_ITEMS, no_algebra) is False


def test_the_length_of_lists_and_unions_is_limited():
    values = [str(value) for value in range(1, MAX_ITEMS + 2)]
    assert equal(", ".join(values[1:]), ", ".join(values[:0:-1]), no_algebra) is True
    assert equal(", ".join(values), ", ".join(values[::-1]), no_algebra) is False
    intervals = [f"({value},0)" for value in values]
    assert equal(r"\cup".join(intervals[1:]), r"\cup".join(intervals[:0:-1]), no_algebra) is True
    # The algebra compares a longer union as a whole.
    assert equal(r"\cup".join(intervals), r"\cup".join(intervals[::-1]), algebra()) is False


@rows(
    "equality/counts",
    ("1;2" + " " * MAX_LENGTH, 1),
)
def test_the_values_of_a_gold_are_counted(gold, count):
    assert count_values(gold) == count


@rows("equality/lists")
def test_a_list_is_split_into_values(text, values):
    assert listed_values(text) == values


@rows("equality/tuples")
def test_a_tuple_is_split_into_entries(text, values):
    assert tuple_values(text) == values


def test_a_union_is_split_into_parts():
    assert union_parts(r"(0,1) \cup [2,3)\cup A") == ["(0,1)", "[2,3)", "A"]
    assert union_parts("(0,1)") == ["(0,1)"]
    assert union_parts(r"\cupdot") == [r"\cupdot"]


def test_constants_are_first_renamed_in_the_order_of_the_golds_terms():
    compared = []
    answer = "y=c_1e^{3x}+c_2e^x+c_3e^{2x}"
    assert equal("y=c_1e^x+c_2e^{2x}+c_3e^{3x}", answer, lambda _, renamed: compared.append(renamed) or True)
    assert set(compared) == {"c_3e^{3x}+c_1e^x+c_2e^{2x}"}
