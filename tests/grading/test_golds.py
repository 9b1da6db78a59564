"""Check that golds are split into values and, if possible, validated without algebra."""

from rows import rows

from trl_ces.grading.golds import leaves, usable
from trl_ces.support.limits import MAX_LENGTH


@rows("golds/values")
def test_a_gold_is_split_into_values(gold, values):
    assert leaves(gold) == values


@rows(
    "golds/usable",
    ("x" * (MAX_LENGTH + 1), False),
)
def test_simple_golds_need_no_algebra_and_malformed_golds_are_unusable(gold, expected):
    parsed = []
    assert usable(gold, lambda value: parsed.append(value) or True) is (expected is not False)
    assert bool(parsed) is (expected is None)
    assert usable(gold, lambda value: False) is (expected is True)
