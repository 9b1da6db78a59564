r"""
Refuse answers that only repeat the question. A copy of its formula has the value that is asked for, so no comparison
of values refuses it, and a policy that is paid for copies stops reasoning.

An answer is refused if it stands in the question, apart from blanks, brackets, `+ 0`, `1 \cdot` and the order of
terms, factors and sides; if it leaves a sum, an integral or a derivative to be worked out and the gold does not; or
if it is a number that needs more operations than the gold. It is never refused if it is spelled like the gold.

| question | gold | equal | different |
|---|---|---|---|
| `Compute $\frac12 + \frac13$.` | `\frac56` | `5/6` | `\frac13 + \frac12`, `\frac{10}{12} + 0` |
| `Find the length.` | `13` | `13` | `\sqrt{169}` |
"""

import re
from functools import lru_cache

from ..support.limits import too_big
from .forms import choice
from .notation import split_top, tidy, unwrap
from .numbers import number
from .statements import is_name, sides
from .units import split_unit

_TIMES = r"(?:\\(?:cdot|times)(?![A-Za-z])|\*)"
_UNFINISHED = re.compile(
    r"\\(?:sum|prod|[io]*int|lim|gcd|det|max|min|deg)(?![A-Za-z])|\\frac\s*\{\s*(?:d|\\partial)[^{}]*\}\s*\{\s*(?:d|\\partial)"
    r"|(?<![A-Za-z])(?:gcd|lcm|det|max|min|mod)(?![A-Za-z])(?!\s*\}?\s*(?:$|\d))"
)
_NAME = re.compile(r"(?<!\\)(?<![A-Za-z])(?![eidx](?![A-Za-z]))[A-Za-z]")


def is_copy(answer: str, gold: str, question: str) -> bool:
    """Whether the answer repeats the question, or is a number left to be worked out."""
    if not question or any(map(too_big, (answer, gold, question))):
        return False
    written, expected = tidy(answer), tidy(gold)
    if not written or not expected:
        return False
    golds = [expected, _last_side(expected)]
    if any(_ordered(written) == _ordered(one) for one in golds) or choice(expected):
        return False
    condition = re.fullmatch(r"\\\{[^:|]*(?::|\\mid(?![A-Za-z])|\|)(.*)\\\}", written, re.DOTALL)  # of {x : x^2 < 4}
    parts = (written, *(condition.groups() if condition else ()))
    if _operations(written) and any(_stands_in(_shape(part), _shapes(question)) for part in parts):
        return True
    value = split_unit(_last_side(written))[0]  # of x = 5 - 3 = 2
    if any(_ordered(value) == _ordered(one) for one in golds):
        return False
    if value.count(r"\begin") > max(1, expected.count(r"\begin")):  # a product of matrices
        return True
    if _UNFINISHED.search(value) and not _UNFINISHED.search(expected):
        return True
    name, *results = sides(expected)
    result = split_unit(results[0] if len(results) == 1 and is_name(name) else expected)[0]  # 5, of x = 5 and of 5 cm
    is_value = (
        number(result) is not None and r"\pi" not in value and not _NAME.search(re.sub(r"\\[A-Za-z]+", "", value))
    )
    return is_value and number(value) is None and r"\equiv" not in value and _operations(value) > _operations(result)


def repeats(text: str, question: str) -> bool:
    """Whether a tidied formula with an operation stands in the question."""
    return bool(_operations(text)) and _stands_in(_shape(text), _shapes(question))


def _last_side(text: str) -> str:
    return (sides(text) or [text])[-1]


_OPERATION = re.compile(
    r"[-+*/^!±=<>]|[)\d]\s*\(|\\(?:frac|cdot|times|div|sqrt|overline|dot|[lg]eq|d?binom|sum|prod|int|lim|log|ln|sin|cos|tan|sec|csc|cot|pm|bmod|lfloor|lceil|mid)"
    r"(?![A-Za-z])"
)


def _operations(text: str) -> int:
    return len(_OPERATION.findall(re.sub(r"(?:^|(?<=[=(,]))[-+]", "", text)))


_NEUTRAL = re.compile(rf"(?<![\d.^}}\w])0\+|[+-]0(?![\d.\w^])|(?<![\d.^}}\w])1{_TIMES}|(?:{_TIMES}|/)1(?![\d.\w^])")


def _shape(text: str) -> str:
    """A tidied text without what changes no value, and the sides of an equality in one order."""
    return "=".join(sorted(_bare(_NEUTRAL.sub("", re.sub(r"\s", "", unwrap(side)))) for side in split_top(text, "=")))


def _ordered(text: str) -> str:
    """The shape of a text with its sides in one order, the terms in each, and the factors in each of these."""
    return "=".join(sorted(_ordered_side(re.sub(r"\s", "", unwrap(side))) for side in split_top(text, "=")))


_FACTOR = re.compile(r"\([^()]*\)|[^()]+|[()]")


def _ordered_side(text: str) -> str:
    terms = [term for part in split_top(text, "+") for term in re.split(r"(?<=[^({\[^=,])(?=-)", part)]
    return "+".join(sorted("".join(sorted(_bare(factor) for factor in _FACTOR.findall(term))) for term in terms))


_FRACTION = re.compile(r"\\frac(?:\{([^{}]*)\}\{([^{}]*)\}|(\d)(\d))")


def _bare(text: str) -> str:
    return re.sub(rf"[{{}}()\[\]]|{_TIMES}", "", _FRACTION.sub(r"\1\3/\2\4", text))


@lru_cache(maxsize=256)
def _shapes(question: str) -> str:
    """The question's text and formulas, in turn, without brackets and without the blanks that tell no words apart."""
    pieces = [unwrap(tidy(piece)) for piece in re.split(r"\$\$?|\\[\[\]()]", question)]
    pieces[::2] = [re.sub(r"(?<![A-Za-z])\s|\s(?![A-Za-z])", "", text) for text in pieces[::2]]
    pieces[1::2] = [re.sub(r"\s", "", formula) for formula in pieces[1::2]]
    return _bare("\n".join(pieces))


_START = r"(?<![A-Za-z\d.])"


def _stands_in(shape: str, question: str) -> bool:
    """Whether the shape is a part of the question's, or one of its formulas with terms or factors in another order."""
    forms = {shape, "=".join(reversed(shape.split("=")))}
    if any(
        re.search(rf"{_START if form[:1].isalnum() else ''}{re.escape(form)}(?![A-Za-z\d^])", question)
        for form in forms
    ):
        return True
    formulas = question.split("\n")[1::2]
    return number(shape) is None and _unordered(shape) in {
        _unordered(side) for formula in formulas for side in (formula, *formula.split("="))
    }


def _unordered(shape: str) -> str:
    return "".join(sorted(re.sub(r"\\frac|[+/]", "", shape.rstrip(".,;"))))
