"""Golds are split into values and checked as far as possible without algebra."""

from rows import rows

from trl_ces.grading.golds import leaves, usable
from trl_ces.support.limits import MAX_LENGTH


@rows("golds/values")
def test_the_values_of_a_gold(gold, values):
    assert leaves(gold) == values


@rows(
    "golds/usable",
    ("x" * (MAX_LENGTH + 1), False),
)
def test_numbers_letters_and_words_need_no_algebra_and_a_malformed_gold_is_refused(gold, expected):
    asked = []
    assert usable(gold, lambda value: asked.append(value) or True) is (expected is not False)
    assert bool(asked) is (expected is None)
    assert usable(gold, lambda value: False) is (expected is True)
