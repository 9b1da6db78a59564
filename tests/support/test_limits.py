import pytest

from trl_ces.support.limits import MAX_LENGTH, MAX_NESTING, nesting, too_big


def test_a_text_beyond_the_length_or_nesting_limit_is_too_big():
    assert not too_big("x" * MAX_LENGTH)
    assert too_big("x" * (MAX_LENGTH + 1))
    assert not too_big("(" * MAX_NESTING + ")" * MAX_NESTING)
    assert too_big("[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1))


@pytest.mark.parametrize(
    ("text", "depth"),
    [("", 0), ("{[(x)]}", 3), ("()[]{}", 1), ("((x)y(z))", 2), (")((", 1)],
)
def test_nesting_is_the_maximum_depth_of_brackets(text, depth):
    assert nesting(text) == depth
