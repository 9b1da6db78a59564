r"""
Normalize answers as the Qwen2.5-Math evaluation script does, for example by removing units and `x=`. Regular
expressions are only applied to texts of at most `MAX_NORMALIZED` characters.
"""

import re
from functools import lru_cache

from ...support.comparison import NUMBER_WORDS

# Only whitespace is removed from longer texts. An unclosed `\boxed{` can extend to the end of the completion.
MAX_NORMALIZED = 2_000

# Words to remove unless they touch a letter, digit or underscore. The list is our own; "dollars" is not removed.
_SINGULAR = """
o'clock a c d g h l m o s t th mm cm dm km ft yd mi inch inches foot feet mg gm kg oz ml cl kl lt am pm mph kmph kmh
kph rpm hz kelvin celsius fahrenheit rad square cubic sq rs pence paise usd candy candies man men woman women child
children people time ratio prime east west north south are by
"""
_SINGULAR_AND_PLURAL = """
yard mile meter metre centimeter millimeter kilometer kilometre gram kilogram lb ounce pound ton tonne quintal liter
litre gallon quart pint second minute hour day week month year min watt volt joule newton calorie degree radian unit
acre hectare cent rupee euro percent apple orange banana pear egg cookie cake book page pencil pen ball marble stamp
card ticket coin flower tree bag bottle piece item toy shirt tile stone brick boy girl person worker friend player
passenger monkey dog cat bird cow horse way step number side digit question game goal vote
"""
# Also remove an option letter with a space and one more character: `a x`, `b >`.
_OPTION = r"[abc] ."
_UNITS = re.compile(
    rf"(?<!\w)(?:{_OPTION}|{'|'.join(_SINGULAR.split())}|(?:{'|'.join(_SINGULAR_AND_PLURAL.split())})s?)(?!\w)"
)

_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}

_MATRICES = [
    (re.compile(r"\\begin\{array\}\{[^{}]*\}|\\begin\{bmatrix\}"), r"\\begin{pmatrix}"),
    (re.compile(r"\\end\{(?:array|bmatrix)\}"), r"\\end{pmatrix}"),
]
_BEFORE_UNITS = [
    (re.compile(r"\\[td]frac"), r"\\frac"),
    (re.compile(r"\\([lg])eq|\\(n)eq"), r"\\\1\2e"),
    (re.compile(r"\\(?:left|right)"), ""),
    (re.compile(r"\\([{}])"), r"\1"),
]
_TRAILING_TEXT = re.compile(r"\\text\{.*\}$")
_MATH_MARKS = re.compile(r"\^\{?\\circ\}?|\\?\$|\\[()]")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_NAMED = re.compile(r"[xyz](?:=|\\in(?![a-z])|\\to(?![a-z]))")
_REALS = re.compile(r"\(\s*-\s*\\?inf(?:ty|inity)?\s*,\s*\+?\s*\\?inf(?:ty|inity)?\s*\)")
_AFTER_UNITS = [
    (re.compile(r"\\?%"), ""),
    (re.compile(r"(^|[\s{])\."), r"\g<1>0."),
]
_INFINITY = re.compile(r"(?<!\\)inf(?:inity)?(?!ty)")
_DROPPED = re.compile(r"and|\\mathbf|\\mbox\{[^{}]*\}")
_ZEROS = re.compile(r"(\d)\.0*(?=\D|$)")
_SHORT_ROOT = re.compile(r"\\sqrt(?!\s*[{\[])\s*(\w)")
_SHORT_FRACTION = re.compile(r"\\frac\s*(?:\{([^{}]*)\}|(\w))\s*(?:\{([^{}]*)\}|(\w))")
_SLASH = re.compile(r"(-?\d+)/(-?\d+)")


def normalize(text: str, keep_units: bool = False) -> str:
    r"""Rewrite an answer as the script does."""
    if len(text) > MAX_NORMALIZED:
        return "".join(text.split())  # bypass the cache: thousands of long answers would fill memory
    return _normalize(text, keep_units)


@lru_cache(maxsize=8192)
def _normalize(text: str, keep_units: bool) -> str:
    text = _before_units(text)
    text = _TRAILING_TEXT.sub("", text).strip() or text
    if not keep_units:
        for _ in range(2):
            text = _UNITS.sub("", text) or text
    text = _MATH_MARKS.sub("", text)
    value = number_words(text)
    text = str(value) if value is not None else text
    return _after_units(_TEXT.sub(r"\1", text))


def _before_units(text: str) -> str:
    text = text.strip().replace("\n", "").rstrip(".").replace(r"\!", "")
    for pattern, replacement in _MATRICES + _BEFORE_UNITS:
        text = pattern.sub(replacement, text)
    return text


def _after_units(text: str) -> str:
    text = _NAMED.sub("", text).replace(r"\emptyset", "{}")
    text = _REALS.sub(r"\\mathbb{R}", text)
    for pattern, replacement in _AFTER_UNITS:
        text = pattern.sub(replacement, text)
    text = _DROPPED.sub("", _INFINITY.sub(r"\\infty", text))
    if "i" not in text:
        text = text.replace("j", "i")
    text = _ZEROS.sub(r"\1", text)
    left, equals, right = text.partition("=")
    if equals and "=" not in right and len(left.strip()) <= 2:
        text = right
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    text = _SHORT_FRACTION.sub(_brace_fraction, "".join(text.split()))
    return _SLASH.sub(r"\\frac{\1}{\2}", text) if _SLASH.fullmatch(text) else text


def _brace_fraction(match: re.Match[str]) -> str:
    long_top, short_top, long_bottom, short_bottom = match.groups()
    top = short_top if long_top is None else long_top
    return rf"\frac{{{top}}}{{{short_bottom if long_bottom is None else long_bottom}}}"


def number_words(text: str) -> int | None:
    """Parse a number spelled in words."""
    if text.strip().isdecimal():
        return int(text)
    has_number = False
    total = current = 0
    for word in text.lower().replace("-", " ").split():
        if word in NUMBER_WORDS:
            current += NUMBER_WORDS[word]
        elif word == "hundred":
            current = 100 * (current or 1)
        elif word in _SCALES:
            total, current = total + _SCALES[word] * (current or 1), 0
        else:
            continue
        has_number = True
    return total + current if has_number else None
