r"""
Decide in which order an answer has to state several values: that of the gold's labels, of the question's names, or
the one it asks for.

| question | gold | equal | different |
|---|---|---|---|
| `Find $a$ and $b$.` | `1, 2` | `b = 2, a = 1`, `1, 2` | `2, 1` |
| `Find the roots.` | `1, 2` | `2, 1` | `1, 3` |
| `List 2 and 1 in increasing order.` | `1, 2` | `1, 2` | `2, 1` |
"""

import re
from functools import lru_cache
from string import ascii_lowercase

from .notation import BLANKS_AND_SIZES, LETTER, enclosed, split_top, tidy, unwrap
from .numbers import number
from .units import nouns, stems

_NAMES = r"\(([A-Za-z](?:,[A-Za-z])+)\)"


_ORDER = re.compile(
    r"\b(?:write|list|order|arrange|put|sort|rank|enter|give|express|separate)(?:[^.?]|\.\d){0,80}(?:\bin order\b|"
    r"\bin (?:strictly )?(?:increasing|decreasing|ascending|descending|alphabetical|numerical|the same|that) order|"
    r"\bfrom (?:left|least|most|first|\w+est) to\b)|"
    r"\b(?:find|write|list|give|what are)(?: out)? the first \w+ terms\b|"
    r"(?:\b(?:find|what|how many|determine|calculate|compute|give|state|write|list|express)\b|多少|[求是为])"
    r"(?:(?!\b(?:if|when|where|given|with)\b)(?:[^.?!。？]|\.\d)){0,200}\brespectively\b|"
    r"\bin (?:that|this) order\b|\b(?:what|how many)\b[^?]{1,200}\?\s+(?:what|how many)\b[^?]{1,200}\?|从[小大]到",
    re.IGNORECASE,
)
# A gold with names, words or units binds by these.
_NAMED_OR_WORDED = re.compile(r"=|\\(?:max|min|text|math)|(?<![\\A-Za-z])[A-Za-z]{2,}")
_NEXT_BLANK = re.compile(r"\(\\quad\)\$?\s*[,，、和]\s*\$?\(\\quad\)")


def by_order(answer: str, gold: str, question: str) -> tuple[str, str] | None:
    """Gold and answer as lists in the order of the gold's labels, of the question's names, or that is asked for."""
    if _NEXT_BLANK.search(question) and not re.search(
        "[和与及]|分别|依次", question
    ):  # nothing tells the blanks apart
        return gold.replace(";", ","), answer.replace(";", ",")
    if "=" not in gold and (in_order := _in_order_of_names(answer, question)):
        return gold, in_order
    if "if so" in question.lower():
        answer = re.sub(r"(?i)^yes[;,:.]\s*", "", unwrap(tidy(answer)))
    labels, named = _labelled(gold), _labelled(answer)
    if not named and not re.search("[A-Za-z]", gold):
        named = _counted(answer, question)
    if r"\times" in gold and len(named) == 2 and not labels:  # length 12, width 4 for 4 \times 12
        return gold.replace(r"\times", ","), ", ".join(named.values())
    if any(len(label) > 1 for label in labels):
        return "; ".join(labels.values()), "; ".join(_by_name(named, [*labels])) or _in_order(answer) or answer
    ordered, asked = _in_order(gold), _asked_names(question)
    if ordered and len(asked) == ordered.count("; ") + 1 and not _NAMED_OR_WORDED.search(gold):
        is_swapped = _is_swapped(ordered, asked)
        if named:
            return ordered, "; ".join(_by_name(named, asked[::-1] if is_swapped else asked))
        if (brackets := enclosed(tidy(answer))) and brackets[0] == "(" and ordered[0] != "(":  # (a, b) = (1, 2)
            return ordered, "; ".join(split_top(brackets[1], ","))
        if not (is_swapped or (len(asked[0]) == 1 and ordered[0] == "(")) and (listed := _in_order(answer)):
            return ordered, listed
    last = {name: [*re.finditer(_word(name), question, re.IGNORECASE)][-1:] for name in named}
    if named and "=" not in gold and all(last.values()) and ordered:
        names = sorted(named, key=lambda name: last[name][0].start())
        beside = re.search(r"\W+(?:and\W+)?".join(names), question, re.IGNORECASE)  # Find $y$ and $x$
        if not beside and "".join(sorted(names)) in ascii_lowercase:
            names.sort()
        return ordered, "; ".join(named[name] for name in names)
    if ordered and _ORDER.search(question) and (listed := _in_order(answer)):
        return ordered, listed
    return None


def _by_name(named: dict[str, str], names: list[str]) -> list[str]:
    """The labelled values in the order of these names, `""` for one without; as they are if labels fit none or two."""
    for case in (str, str.casefold):
        values = {case(label): value for label, value in named.items()}
        if len(values) == len(named) and values.keys() == {case(name) for name in names}:
            return [values[case(name)] for name in names]
    # `min` fits minimum and `l` fits length: the first three letters are the same, or one starts with the other
    starts = [(label, name, min(len(label), len(name), 3)) for label in named for name in names]
    fitting = [(label, name) for label, name, size in starts if label[:size].casefold() == name[:size].casefold()]
    if len(named) != len(names) or not fitting or len({label for label, _ in fitting}) < len(fitting):
        return [*named.values()]
    places = {name: named[label] for label, name in fitting}
    return [places.get(name, "") for name in names]


_LOW = re.compile(r"\b(?:min(?:imum|imal)?|small(?:er|est)?|least|low(?:er|est)?)\b|最[小低]", re.IGNORECASE)
_HIGH = re.compile(r"\b(?:max(?:imum|imal)?|larg(?:er?|est)|great(?:er|est)|high(?:er|est)?)\b|最[大高]", re.IGNORECASE)


def _is_swapped(values: str, names: list[str]) -> bool:
    """Whether a gold states maximum and minimum in another order than the question asks for them."""
    first, *others = (number(value) for value in values.split("; "))
    if len(others) != 1 or first is None or others[0] is None or first == others[0]:
        return False
    place = first < others[0]  # of the larger value
    (rest, low), (other, high) = _LOW.subn("", names[place]), _HIGH.subn("", names[not place])
    # the smallest and the largest angle, but not the least common multiple and the greatest common divisor
    return bool(low and high) and (rest.strip() == other.strip() or not (other if place else rest).strip())


def _word(name: str) -> str:
    return LETTER.format(name) if len(name) < 3 else rf"(?<![A-Za-z\\]){name}"


_ASKED_NAME = r"(?:the )?\$?\\?[a-z]+\$?(?:[ -][a-z]+){0,2}?"
# Find the slope and the $y$-intercept of it; what are the length and width? 求最大值和最小值
_ASKED_NAMES = re.compile(
    r"\b(?:find|what (?:is|are|was|were)|determine|compute|calculate|state|give|solve for) "
    rf"(?:both )?(?:the )?(?:values? of )?((?:{_ASKED_NAME}, ){{0,4}})({_ASKED_NAME}),? and ({_ASKED_NAME})"
    r"(?=[.?!,;]|\s*\Z| (?:of|for|in|if|when|that|such|on|to|at|from|value)s?\b)|"
    r"(?:[求的，。]|\A)([一-鿿]{1,4})[和与]([一-鿿]{1,4}?)(?=分别|各|[是为。？?]|\Z)",
    re.IGNORECASE,
)


@lru_cache(maxsize=256)
def _asked_names(question: str) -> list[str]:
    """The two to six different things that a question asks for, in its order; none for any other question."""
    found = _ASKED_NAMES.search(question)
    names = ", ".join(filter(None, found.groups())).split(", ") if found else []
    return [re.sub(r"[$\\]|^the ", "", name) for name in names if name]


def _in_order(text: str) -> str | None:
    """`3, 1, 2` as `3; 1; 2`, whose order counts; `None` for anything but a bare list."""
    brackets, text = enclosed(tidy(text)), unwrap(tidy(text))
    listed = brackets[1] if brackets and brackets[0] == r"\{" else text
    items = split_top(listed, "," if "," in listed else ";")
    items = list(text) if re.fullmatch("[A-K]{2,}", text) else items
    return "; ".join(items) if len(items) > 1 and number(text) is None else None


def _in_order_of_names(answer: str, question: str) -> str:
    """`(4,12)` for `(r,k) = (4,12)` and `(k,r) = (12,4)` where the question has (r, k); else `""`."""
    named = _named_tuple(answer)
    for asked in re.findall(_NAMES, re.sub(r"\s", "", question)):
        order = asked.split(",")
        if sorted(order) == sorted(named):
            return f"({','.join(named[name] for name in order)})"
    return ""


def _named_tuple(text: str) -> dict[str, str]:
    """The values of `(x,y) = (1,2)` by its names; nothing for anything else."""
    named = re.fullmatch(rf"{_NAMES}=\((.*)\)", BLANKS_AND_SIZES.sub("", tidy(text)))
    names, values = (named[1].split(","), split_top(named[2], ",")) if named else ([], [])
    return dict(zip(names, values, strict=True)) if len(names) == len(values) else {}


_NOUNS_BEHIND = re.compile(r"(-?[\d.,/]+)\s*((?:[A-Za-z]+ )*([A-Za-z]{3,}))")


def _counted(text: str, question: str) -> dict[str, str]:
    """`7 goats and 4 helicopters` as values by the question's nouns."""
    items = [_NOUNS_BEHIND.fullmatch(item) for item in split_top(unwrap(tidy(text)), ",")]
    values = {item[3]: item[1] for item in items if item and stems(item[2]) <= nouns(question) | {"of"}}
    return values if len(values) == len(items) > 1 else {}


_LABEL = re.compile(  # C = (1,2), radius 3, 半径为3
    r"(?:([A-Za-z])(?:\([a-z]\))?\s*[:=]|([A-Za-z]{2,}[A-Za-z ]*?|[一-鿿]+?)\s*"
    r"(?:\b(?:is|at|of|on|when)\b|为|是|[:=]|(?=[-\d\\(\[]|\b[a-z]\b)))\s*(.+)",
    re.DOTALL,
)
_EXTREMUM = re.compile(r"(?:[A-Za-z]_)?\{?\\?(max|min)(?![a-z])\}?(?=\s*[:=])")  # \min, f_{\min}
_NAMED_FUNCTION = re.compile(r"\\?(sin|cos|tan)(?![a-z])[^=:]{0,40}(?==)")  # \cos(-\pi) = -1


def _labelled(text: str) -> dict[str, str]:
    """`quotient 9, remainder 3` as values by labels; nothing for a text of which a part has no label of its own."""
    if named := _named_tuple(text):
        return named
    items = [unwrap(item) for part in split_top(tidy(text), ";") for item in split_top(part, ",")]
    found = [_LABEL.fullmatch(_NAMED_FUNCTION.sub(r"\1", _EXTREMUM.sub(r"\1", item))) for item in items]
    values = {item[1] or item[2]: item[3] for item in found if item}
    return values if len(values) == len(found) > 1 else {}
