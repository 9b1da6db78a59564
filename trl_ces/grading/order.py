r"""
In which order an answer has to state several values: that of the gold's labels, of the question's names, or the one it
asks for.
"""

import re
from string import ascii_lowercase

from .notation import BLANKS_AND_SIZES, LETTER, enclosed, split_top, tidy, unwrap
from .numbers import number
from .units import nouns, stems

_LABEL = re.compile(  # C = (1,2), radius 3, 半径为3
    r"(?:([A-Za-z])(?:\([a-z]\))?\s*[:=]|([A-Za-z]{2,}[A-Za-z ]*?|[一-鿿]+?)\s*"
    r"(?:\b(?:is|at|of)\b|为|是|[:=]|(?=[-\d\\(\[]|\b[a-z]\b)))\s*(.+)",
    re.DOTALL,
)
_ORDER = re.compile(
    r"\b(?:write|list|order|arrange|put|sort|rank|enter|give|express|separate)(?:[^.?]|\.\d){0,80}(?:\bin order\b|"
    r"\bin (?:strictly )?(?:increasing|decreasing|ascending|descending|alphabetical|numerical|the same|that) order|"
    r"\bfrom (?:left|least|most|first|\w+est) to\b)|"
    r"\b(?:find|write|list|give|what are)(?: out)? the first \w+ terms\b|"
    r"\brespectively\b|\bin (?:that|this) order\b|从[小大]到",
    re.IGNORECASE,
)
_NOUNS_BEHIND = re.compile(r"(-?[\d.,/]+)\s*((?:[A-Za-z]+ )*([A-Za-z]{3,}))")
_NAMES = r"\(([A-Za-z](?:,[A-Za-z])+)\)"


def by_order(answer: str, gold: str, question: str) -> tuple[str, str] | None:
    """Gold and answer as lists in the order of the gold's labels, of the question's names, or that is asked for."""
    if "=" not in gold and (in_order := _in_order_of_names(answer, question)):
        return gold, in_order
    if "if so" in question.lower():
        answer = re.sub(r"(?i)^yes[;,:.]\s*", "", unwrap(tidy(answer)))
    labels, named = _labelled(gold), _labelled(answer)
    if not named and not re.search("[A-Za-z]", gold):
        named = _counted(answer, question)
    if any(len(label) > 1 for label in labels):
        initials = {label[0].lower(): value for label, value in named.items()}
        values = list(named.values())
        if labels.keys() == named.keys():
            values = [named[label] for label in labels]
        elif len(initials) == len(labels):
            values = [initials.get(label[0].lower(), "") for label in labels]
        return "; ".join(labels.values()), "; ".join(values) or _in_order(answer) or answer
    last = {name: [*re.finditer(LETTER.format(name), question, re.IGNORECASE)][-1:] for name in named}
    if named and "=" not in gold and all(last.values()) and (ordered := _in_order(gold)):
        names = sorted(named, key=lambda name: last[name][0].start())
        beside = re.search(r"\W+(?:and\W+)?".join(names), question, re.IGNORECASE)  # Find $y$ and $x$
        if not beside and "".join(sorted(names)) in ascii_lowercase:
            names.sort()
        return ordered, "; ".join(named[name] for name in names)
    if _ORDER.search(question) and (ordered := _in_order(gold)) and (listed := _in_order(answer)):
        return ordered, listed
    return None


def _in_order(text: str) -> str | None:
    """`3, 1, 2` as `3; 1; 2`, whose order counts; `None` for anything but a bare list."""
    brackets, text = enclosed(tidy(text)), unwrap(tidy(text))
    items = split_top(brackets[1] if brackets and brackets[0] == r"\{" else text, ",")
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


def _counted(text: str, question: str) -> dict[str, str]:
    """`7 goats and 4 helicopters` as values by the question's nouns."""
    items = [_NOUNS_BEHIND.fullmatch(item) for item in split_top(unwrap(tidy(text)), ",")]
    values = {item[3]: item[1] for item in items if item and stems(item[2]) <= nouns(question) | {"of"}}
    return values if len(values) == len(items) > 1 else {}


def _labelled(text: str) -> dict[str, str]:
    """`quotient 9, remainder 3` as values by labels; nothing for a text of which a part has no label of its own."""
    if named := _named_tuple(text):
        return named
    found = [_LABEL.fullmatch(unwrap(item)) for part in split_top(tidy(text), ";") for item in split_top(part, ",")]
    values = {item[1] or item[2]: item[3] for item in found if item}
    return values if len(values) == len(found) > 1 else {}
