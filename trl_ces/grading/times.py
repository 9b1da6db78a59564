r"""
Compare times of day and scores part by part, ratios up to a factor.

| question | gold | equal | different |
|---|---|---|---|
| `What time is it?` | `2:30` | `2:30`, `2:30 \text{ p.m.}` | `1:15` |
| `What is the ratio?` | `2:4` | `1:2` | `4:2` |
"""

import re
from fractions import Fraction

from .notation import split_top, tidy, unwrap
from .numbers import number

_CLOCK = re.compile(r"\d{1,2}:[0-5]\d")


def same_parts(gold: str, answer: str) -> bool | None:
    """Whether two tidied texts are the same ratio, time or score; `None` for a gold or a pair without `:`."""
    parts, others = _parts(gold), _parts(answer)
    if len(parts) < 2 or len(parts) == 2 > len(others):
        return None
    # 1:0 is a score: as a ratio it would equal 2:0.
    if 0 in parts + others or (_CLOCK.fullmatch(gold) and _CLOCK.fullmatch(answer)):
        return parts == others
    return bool(others) and [part * parts[0] for part in others] == [part * others[0] for part in parts]


_COUNTED_PARTS = re.compile(r"(\d+(?:\s*:\s*\d+)+)(?:\s*([AaPp])\.?\s?[Mm]\.?)?")
_ASKS_RATIO = re.compile(r"\bratio|proportion|\bscale\b|\bodds\b|(?<!对)比(?![分赛])", re.IGNORECASE)
_ASKS_TIME_OR_SCORE = re.compile(
    r"\bwhat time\b|\bwhen (?:do|does|did|will|is|was|should)\b|\bclock\b|\d\s*[ap]\.?m\b|\d:[0-5]\d|\bscore|"
    r"比分|几[时点]|时[刻间]",
    re.IGNORECASE,
)


def as_times(answer: str, gold: str, question: str) -> tuple[str, str] | None:
    """Times and scores as lists in order, ratios as fractions, where the question says which they are; else `None`."""
    read = [_COUNTED_PARTS.fullmatch(unwrap(tidy(text))) for text in (gold, answer)]
    if not (expected := read[0]) or not (given := read[1]):
        return None
    if _ASKS_RATIO.search(question):
        both = [found[1].split(":") for found in (expected, given)]
        is_ratio = all(len(parts) == 2 and int(parts[1]) for parts in both)
        return ("/".join(both[0]), "/".join(both[1])) if is_ratio else None
    if not (expected[2] or given[2] or _ASKS_TIME_OR_SCORE.search(question)):
        return None
    half = given[2] if expected[2] else None  # 10:15 A.M. for 10:15
    return _listed(expected[1], expected[2]), _listed(given[1], half)


def _listed(parts: str, half_of_day: str | None) -> str:
    return parts.replace(":", "; ") + (f"; {half_of_day.lower()}m" if half_of_day else "")


def _parts(text: str) -> list[Fraction]:
    """The numbers of `1:2:3`; none for any other text."""
    parts = [number(part) for part in split_top(text, ":")]
    return [part for part in parts if part is not None] if None not in parts else []
