r"""
Compare lists by the gold's labels, by the names in the question, or in the order that the question requests. Compare
times of day and scores part by part, and ratios up to a factor.

| question | gold | equal | different |
|---|---|---|---|
| `Find $a$ and $b$.` | `1, 2` | `b = 2, a = 1`, `1, 2` | `2, 1` |
| `Find the roots.` | `1, 2` | `2, 1` | `1, 3` |
| `List 2 and 1 in increasing order.` | `1, 2` | `1, 2` | `2, 1` |
| `What time is it?` | `2:30` | `2:30`, `2:30 \text{ p.m.}` | `1:15` |
| `What is the ratio?` | `2:4` | `1:2` | `4:2` |
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile
from string import ascii_lowercase

from .notation import BLANKS_AND_SIZES, LETTER, enclosed, split_top, tidy, unwrap
from .numbers import number
from .units import nouns, stems

_NAMES = r"\(([A-Za-z]+(?:,[A-Za-z]+)+)\)"
_ORDER = re.compile(
    r"\b(?!list\b[^.?]{0,60}\b(?:is|are|was|consists)\b)(?:write|list|order|arrange|put|sort|rank|enter|give|express|separate)(?:[^.?]|\.\d){0,80}"
    r"(?:\bin order\b|"
    r"\bin (?:strictly )?(?:increasing|decreasing|ascending|descending|alphabetical|numerical|the same|that) order|"
    r"\bfrom (?:left|least|most|first|\w+est) to\b)|"
    r"\b(?:find|write|list|give|what are)(?: out)? the first \w+ terms\b|"
    r"(?:\b(?:find|what|how many|determine|calculate|compute|give|state|write|list|express)\b|多少|[求是为])"
    r"(?:(?!\b(?:if|when|where|given|with)\b)(?:[^.?!。？]|\.\d)){0,200}\brespectively\b|"
    r"\bin (?:that|this) order\b|\b(?:what|how many)\b[^?]{1,200}\?\s+(?:what|how many)\b[^?]{1,200}\?|从[小大]到",
    re.IGNORECASE,
)
# A gold with names, words or units is compared by them, not by order.
_NAMED_OR_WORDED = re.compile(r"=|\\(?:max|min|text|math)|(?<![\\A-Za-z])[A-Za-z]{2,}")

_DISTINGUISHES_BLANKS = re.compile("[和与及]|分别|依次")
_TWO_BLANKS = re.compile(r"\(\\quad\)\$?\s*[,，、和]\s*\$?\(\\quad\)")


def as_ordered_lists(answer: str, gold: str, question: str) -> tuple[str, str] | None:
    """Return gold and answer as lists in the same order; `None` if the order does not matter."""
    if _TWO_BLANKS.search(question) and not _DISTINGUISHES_BLANKS.search(question):
        return gold.replace(";", ","), answer.replace(";", ",")
    if "=" not in gold and (in_order := _values_in_question_order(answer, question)):
        return gold, in_order
    if "if so" in question.lower():
        answer = re.sub(r"(?i)^yes[;,:.]\s*", "", unwrap(tidy(answer)))
    labels, values = _values_by_label(gold), _values_by_label(answer)
    if not values and not re.search("[A-Za-z]", gold):
        values = _values_by_noun(answer, question)
    if r"\times" in gold and len(values) == 2 and not labels:  # length 12, width 4 for 4 \times 12
        return gold.replace(r"\times", ","), ", ".join(values.values())
    if any(len(label) > 1 for label in labels):
        return "; ".join(labels.values()), "; ".join(_sort_values(values, [*labels])) or _as_list(answer) or answer
    if (gold_list := _as_list(gold)) is None:
        return None
    targets = _requested_names(question)
    if len(targets) == gold_list.count("; ") + 1 and not _NAMED_OR_WORDED.search(gold):
        is_swapped = _is_swapped(gold_list, targets)
        if values:
            return gold_list, "; ".join(_sort_values(values, targets[::-1] if is_swapped else targets))
        if (brackets := enclosed(tidy(answer))) and brackets[0] == "(" and gold_list[0] != "(":  # (a, b) = (1, 2)
            return gold_list, "; ".join(split_top(brackets[1], ","))
        if not (is_swapped or (len(targets[0]) == 1 and gold_list[0] == "(")) and (answer_list := _as_list(answer)):
            return gold_list, answer_list
    if values and "=" not in gold and (names := _names_in_question_order(values, question)):
        names = names[::-1] if _contradicts_comparison(gold_list, names, question) else names
        return gold_list, "; ".join(values[name] for name in names)
    answer_list = _as_list(answer) if _ORDER.search(question) else None
    return (gold_list, answer_list) if answer_list else None


def _names_in_question_order(labels: Iterable[str], question: str) -> list[str]:
    """Sort labels by their last occurrence in the question; return `[]` if a label does not occur."""
    patterns = {
        label: LETTER.format(label) if len(label) < 3 else rf"(?<![A-Za-z\\]){re.escape(label)}" for label in labels
    }
    matches = {label: [*re.finditer(word, question, re.IGNORECASE)] for label, word in patterns.items()}
    if not all(matches.values()):
        return []
    names = sorted(matches, key=lambda label: matches[label][-1].start())
    adjacent = re.search(r"\W+(?:and\W+)?".join(map(re.escape, names)), question, re.IGNORECASE)  # Find $y$ and $x$
    return sorted(names) if not adjacent and "".join(sorted(names)) in ascii_lowercase else names


_MORE = r"(?:more|older|taller|heavier|larger|greater|bigger|longer|faster|higher)"
_LESS = r"(?:less|fewer|younger|shorter|lighter|smaller|slower|lower)"


def _contradicts_comparison(values: str, names: list[str], question: str) -> bool:
    """Whether the question compares two names ("Pat is older than James") contrary to the gold's order."""
    counts = [number(value) for value in values.split("; ")]
    if len(names) != 2 or counts[0] is None or counts[1] is None or counts[0] == counts[1]:
        return False
    smaller, larger = map(re.escape, names if counts[0] < counts[1] else names[::-1])
    pattern = r"(?<![A-Za-z]){}(?:(?! and )[^.?!])*\b{} (?:\w+ ){{0,2}}than (?:[a-z]+ ){{0,3}}{}(?![A-Za-z])"
    is_reversed = [(smaller, _MORE, larger), (larger, _LESS, smaller)]
    return any(re.search(pattern.format(*words), question) for words in is_reversed)


def _sort_values(named: dict[str, str], names: list[str]) -> list[str]:
    """Return the values in the order of `names` (`""` if missing), or in the answer's order if labels do not match."""
    for case in (str, str.casefold):
        values = {case(label): value for label, value in named.items()}
        if len(values) == len(named) and values.keys() == {case(name) for name in names}:
            return [values[case(name)] for name in names]
    places = {}
    for label, value in named.items():
        # `min` matches minimum and `l` matches length: the first three letters agree, or one is a prefix of the other
        prefix_lengths = {name: _shared_letters(label.casefold(), name.casefold()) for name in names}
        best, *others = sorted(names, key=lambda name: -prefix_lengths[name])
        if prefix_lengths[best] >= min(len(label), len(best), 3):
            if others and prefix_lengths[others[0]] == prefix_lengths[best]:
                return [*named.values()]
            places[best] = value
    return [places.get(name, "") for name in names] if places and len(named) == len(names) else [*named.values()]


def _shared_letters(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


_LOW = re.compile(r"\b(?:min(?:imum|imal)?|small(?:er|est)?|least|low(?:er|est)?)\b|最[小低]", re.IGNORECASE)
_HIGH = re.compile(r"\b(?:max(?:imum|imal)?|large(?:r|st)|great(?:er|est)|high(?:er|est)?)\b|最[大高]", re.IGNORECASE)


def _is_swapped(values: str, names: list[str]) -> bool:
    """Whether the gold gives maximum and minimum in the reverse order of the question."""
    first, *others = (number(value) for value in values.split("; "))
    if len(others) != 1 or first is None or others[0] is None or first == others[0]:
        return False
    larger = int(first < others[0])
    # the smallest and the largest angle, but not the least common multiple and the greatest common divisor
    rest, last_rest = (_HIGH.sub("", _LOW.sub("", name)).strip() for name in names)
    return bool(_LOW.search(names[larger]) and _HIGH.search(names[1 - larger])) and rest in ("", last_rest)


_TARGET = r"(?:the )?\$?\\?[a-z]+(?:\(\d+\))?\$?(?:[ -][a-z]+){0,2}?"
# Find the slope and the $y$-intercept; what are the length and width? 求最大值和最小值
_TARGETS = re.compile(
    r"\b(?:find|what (?:is|are|was|were)|determine|compute|calculate|state|give|solve for) "
    rf"(?:both )?(?:the )?(?:values? of )?((?:{_TARGET}, ){{0,4}})({_TARGET}),? and ({_TARGET})"
    r"(?=[.?!,;]|\s*\Z| (?:of|for|in|if|when|that|such|on|to|at|from|value)s?\b)|"
    r"(?:[求的，。]|\A)([一-鿿]{1,4})[和与]([一-鿿]{1,4}?)(?=分别|各|[是为。？?]|\Z)",
    re.IGNORECASE,
)


@lru_cache(maxsize=256)
def _requested_names(question: str) -> list[str]:
    """Return the two to six names that the question's last request lists, in order; `[]` if there is no list."""
    groups = [match.groups() for match in _TARGETS.finditer(question)]
    names = ", ".join(filter(None, groups[-1])).split(", ") if groups else []
    return [re.sub(r"[$\\]|^the ", "", name) for name in names if name]


def _as_list(text: str) -> str | None:
    """Return a bare list `3, 1, 2` as `3; 1; 2`, so that its order counts; else `None`."""
    brackets, text = enclosed(tidy(text)), unwrap(tidy(text))
    content = brackets[1] if brackets and brackets[0] == r"\{" else text
    items = split_top(content, "," if "," in content else ";")
    items = list(text) if re.fullmatch("[A-K]{2,}", text) else items
    return "; ".join(items) if len(items) > 1 and number(text) is None else None


def _values_in_question_order(answer: str, question: str) -> str:
    """Return `(4,12)` for `(r,k) = (4,12)` and `(k,r) = (12,4)` if the question contains (r, k); else `""`."""
    values = _named_tuple(answer)
    for requested in re.findall(_NAMES, re.sub(r"\s", "", question)):
        order = requested.split(",")
        if sorted(order) == sorted(values):
            return f"({','.join(values[name] for name in order)})"
    return ""


def _named_tuple(text: str) -> dict[str, str]:
    """Map the names in `(x,y) = (1,2)` to values; return `{}` for other texts."""
    match = re.fullmatch(rf"{_NAMES}=\((.*)\)", BLANKS_AND_SIZES.sub("", tidy(text)))
    names, values = (match[1].split(","), split_top(match[2], ",")) if match else ([], [])
    return dict(zip(names, values, strict=True)) if len(names) == len(values) else {}


_NUMBER_AND_NOUN = re.compile(r"(-?[\d.,/]+)\s*((?:[A-Za-z]+ )*([A-Za-z]{3,}))")


def _values_by_noun(text: str, question: str) -> dict[str, str]:
    """Map the question's nouns in `7 goats and 4 helicopters` to values."""
    items = [_NUMBER_AND_NOUN.fullmatch(item) for item in split_top(unwrap(tidy(text)), ",")]
    values = {item[3]: item[1] for item in items if item and stems(item[2]) <= nouns(question) | {"of"}}
    return values if len(values) == len(items) > 1 else {}


_LABEL = re.compile(  # C = (1,2), radius 3, 半径为3
    r"(?:([A-Za-z](?:\(\d+\))?)(?:\([a-z]\))?\s*[:=]|([A-Za-z]{2,}[A-Za-z ]*?|[一-鿿]+?)\s*"
    r"(?:\b(?:is|at|of|on|when)\b|为|是|[:=]|(?=[-\d\\(\[]|\b[a-z]\b)))\s*(.+)",
    re.DOTALL,
)
_LABEL_OF_EXTREMUM = re.compile(r"(?:[A-Za-z]_)?\{?\\?(max|min)(?![a-z])\}?(?=\s*[:=])")  # \min, f_{\min}
_NAMED_FUNCTION = re.compile(r"\\?(sin|cos|tan)(?![a-z])[^=:]{0,40}(?==)")  # \cos(-\pi) = -1


def _values_by_label(text: str) -> dict[str, str]:
    """Map the labels in `quotient 9, remainder 3` to values; return `{}` unless every part has its own label."""
    if named := _named_tuple(text):
        return named
    items = [unwrap(item) for part in split_top(tidy(text), ";") for item in split_top(part, ",")]
    matches = [_LABEL.fullmatch(_NAMED_FUNCTION.sub(r"\1", _LABEL_OF_EXTREMUM.sub(r"\1", item))) for item in items]
    values = {item[1] or item[2]: item[3] for item in matches if item}
    return values if len(values) == len(matches) > 1 else {}


_CLOCK = re.compile(r"\d{1,2}:[0-5]\d")


def same_parts(gold: str, answer: str) -> bool | None:
    """Whether tidied texts are the same ratio, time or score; `None` if a different rule must compare them."""
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
    """Return times and scores as ordered lists, and ratios as fractions; `None` for other texts."""
    matches = [_COUNTED_PARTS.fullmatch(unwrap(tidy(text))) for text in (gold, answer)]
    if not (expected := matches[0]) or not (given := matches[1]):
        return None
    if _ASKS_RATIO.search(question):
        both = [match[1].split(":") for match in (expected, given)]
        is_ratio = all(len(parts) == 2 and int(parts[1]) for parts in both)
        return ("/".join(both[0]), "/".join(both[1])) if is_ratio else None
    if not (expected[2] or given[2] or _ASKS_TIME_OR_SCORE.search(question)):
        return None
    # A.M. and P.M. count only if the gold contains them: 10:15 A.M. equals 10:15.
    gold, answer = (
        parts.replace(":", "; ") + (f"; {am_or_pm.lower()}m" if am_or_pm and expected[2] else "")
        for parts, am_or_pm in (expected.groups(), given.groups())
    )
    return gold, answer


def _parts(text: str) -> list[Fraction]:
    """Return the numbers in `1:2:3`, or `[]` for other texts."""
    parts = [number(part) for part in split_top(text, ":")]
    return [part for part in parts if part is not None] if None not in parts else []
