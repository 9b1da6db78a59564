r"""
Decide whether answers can be graded against a gold. With an unparsable gold, even correct answers would score 0.

| usable | unusable |
|---|---|
| `\sqrt{2}`, `(0,1)`, `A`, `5;10`, `no solution` | `\frac{`, `---`, `\mathbf{w}(1)=(.5,.25) \mathbf{w}(2)=(.4,.1)` |
"""

import re
from collections.abc import Callable

from ..support.limits import too_big
from .equality import EXTREMUM, listed_values, tuple_values, union_parts
from .forms import condition, congruence, is_words, without_integer
from .notation import is_balanced, tidy, unwrap
from .numbers import number
from .statements import has_words, results
from .units import split_unit


def usable(gold: str, can_parse: Callable[[str], object]) -> bool:
    """Whether a gold is usable. `can_parse`, called only if needed, returns whether the algebra can parse a value."""
    if too_big(gold) or not is_balanced(gold):
        return False
    values = leaves(gold)
    return bool(values) and all(_is_plain(value) or can_parse(value) for value in values)


def leaves(gold: str) -> list[str]:
    """Split a gold's lists, sets, unions, tuples and intervals into values; remove units for the algebra."""
    written, gold = gold, condition(without_integer(EXTREMUM.sub("", tidy(gold))))
    if not gold:
        return []
    # "For j > 0, P(X = j) = ...": it is ambiguous which part an answer must state.
    if _is_plain(gold) or re.search(r"(?<![A-Za-z\\])(?:for|where|when|if)(?![A-Za-z])", written, re.IGNORECASE):
        return [written if is_words(written) and r"\begin" not in written else gold]
    for pieces in (listed_values(gold), union_parts(gold), tuple_values(gold)):
        if pieces and pieces != [gold]:
            return [leaf for piece in pieces for leaf in leaves(piece)]
    # In \|u\| = \sqrt{13}, only the value must be parsable, because answers are compared with it.
    value = _stated_value(gold)
    return [split_unit(gold)[0]] if value is None else leaves(value)


def _stated_value(gold: str) -> str | None:
    """Return a statement's result; `None` if words follow it, or if the text contains several statements."""
    candidates = results(gold)
    if not candidates or has_words(candidates[-1]):
        return None
    lengths = {len(tuple_values(result)) for result in candidates}
    return candidates[-1] if len(lengths) == 1 or not tuple_values(candidates[-1]) else None


def _is_plain(value: str) -> bool:
    bare = unwrap(value)
    return (
        number(split_unit(value)[0]) is not None
        or is_words(value)
        or congruence(value) is not None
        or r"\perp" in value
        or bare == r"\emptyset"
        or (len(bare) == 1 and bare.isalnum())
    )
