r"""
Reject answers that only repeat the question. A copied formula has the requested value, so comparing values cannot
reject it, and a policy that is rewarded for copies stops reasoning.

An answer is rejected if it occurs in the question, up to spaces, brackets, `+ 0`, `1 \cdot` and the order of terms,
factors and sides; if it contains an unevaluated sum, integral or derivative and the gold does not; or if it is a
number with more operations than the gold. An answer that is spelled like the gold is never rejected.

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
_UNEVALUATED = re.compile(
    r"\\(?:sum|prod|[io]*int|lim|gcd|det|max|min|deg)(?![A-Za-z])|\\frac\s*\{\s*(?:d|\\partial)[^{}]*\}\s*\{\s*(?:d|\\partial)"
    r"|(?<![A-Za-z])(?:gcd|lcm|det|max|min|mod)(?![A-Za-z])(?!\s*\}?\s*(?:$|\d))"
)
_NAME = re.compile(r"(?<!\\)(?<![A-Za-z])(?![eidx](?![A-Za-z]))[A-Za-z]")


def is_copy(answer: str, gold: str, question: str) -> bool:
    """Whether the answer repeats the question or is an unevaluated number."""
    if not question or any(map(too_big, (answer, gold, question))):
        return False
    answer_text, gold_text = tidy(answer), tidy(gold)
    if not answer_text or not gold_text:
        return False
    golds = [gold_text, _last_side(gold_text)]
    if any(_sorted_shape(answer_text) == _sorted_shape(expected_form) for expected_form in golds) or choice(gold_text):
        return False
    condition = re.fullmatch(r"\\\{[^:|]*(?::|\\mid(?![A-Za-z])|\|)(.*)\\\}", answer_text, re.DOTALL)  # {x : x^2 < 4}
    parts = (answer_text, *(condition.groups() if condition else ()))
    if _operations(answer_text) and any(_occurs_in(_shape(part), _question_shape(question)) for part in parts):
        return True
    value = split_unit(_last_side(answer_text))[0]  # 2 in x = 5 - 3 = 2
    if any(_sorted_shape(value) == _sorted_shape(expected_form) for expected_form in golds):
        return False
    if value.count(r"\begin") > max(1, gold_text.count(r"\begin")):  # a product of matrices
        return True
    if _UNEVALUATED.search(value) and not _UNEVALUATED.search(gold_text):
        return True
    name, *results = sides(gold_text)
    result = split_unit(results[0] if len(results) == 1 and is_name(name) else gold_text)[0]  # 5 in x = 5 and 5 cm
    is_value = (
        number(result) is not None and r"\pi" not in value and not _NAME.search(re.sub(r"\\[A-Za-z]+", "", value))
    )
    return is_value and number(value) is None and r"\equiv" not in value and _operations(value) > _operations(result)


def repeats(text: str, question: str) -> bool:
    """Whether a tidied formula contains an operation and occurs in the question."""
    return bool(_operations(text)) and _occurs_in(_shape(text), _question_shape(question))


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
    """Remove brackets and neutral terms from a tidied text, and sort the sides of an equality."""
    return "=".join(sorted(_strip(_NEUTRAL.sub("", re.sub(r"\s", "", unwrap(side)))) for side in split_top(text, "=")))


def _sorted_shape(text: str) -> str:
    """Remove brackets from a text, and sort its sides, the terms of each side and the factors of each term."""
    return "=".join(sorted(_sorted_side(re.sub(r"\s", "", unwrap(side))) for side in split_top(text, "=")))


_FACTOR = re.compile(r"\([^()]*\)|[^()]+|[()]")


def _sorted_side(text: str) -> str:
    terms = [term for part in split_top(text, "+") for term in re.split(r"(?<=[^({\[^=,])(?=-)", part)]
    return "+".join(sorted("".join(sorted(_strip(factor) for factor in _FACTOR.findall(term))) for term in terms))


_FRACTION = re.compile(r"\\frac(?:\{([^{}]*)\}\{([^{}]*)\}|(\d)(\d))")


def _strip(text: str) -> str:
    return re.sub(rf"[{{}}()\[\]]|{_TIMES}", "", _FRACTION.sub(r"\1\3/\2\4", text))


@lru_cache(maxsize=256)
def _question_shape(question: str) -> str:
    """Return the question's texts and formulas in alternate lines, without brackets or needless spaces."""
    pieces = [unwrap(tidy(piece)) for piece in re.split(r"\$\$?|\\[\[\]()]", question)]
    pieces[::2] = [re.sub(r"(?<![A-Za-z])\s|\s(?![A-Za-z])", "", text) for text in pieces[::2]]
    pieces[1::2] = [re.sub(r"\s", "", formula) for formula in pieces[1::2]]
    return _strip("\n".join(pieces))


_START = r"(?<![A-Za-z\d.])"


def _occurs_in(shape: str, question: str) -> bool:
    """Whether the question contains the shape, up to the order of terms and factors in a formula."""
    forms = {shape, "=".join(reversed(shape.split("=")))}
    if any(
        re.search(rf"{_START if form[:1].isalnum() else ''}{re.escape(form)}(?![A-Za-z\d^])", question)
        for form in forms
    ):
        return True
    formulas = question.split("\n")[1::2]
    return number(shape) is None and _sorted_characters(shape) in {
        _sorted_characters(side) for formula in formulas for side in (formula, *formula.split("="))
    }


def _sorted_characters(shape: str) -> str:
    return "".join(sorted(re.sub(r"\\frac|[+/]", "", shape.rstrip(".,;"))))
