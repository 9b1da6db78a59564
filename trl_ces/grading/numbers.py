"""Reads number literals exactly, as fractions and never as floats."""

import re
from fractions import Fraction

from .notation import unwrap
from .qwen.normalise import NUMBER_WORDS

_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8, "tenth": 10}

MAX_DIGITS = 400
_DECIMAL = r"(?:\d+(?:\.\d*)?|\.\d+)"
_PLAIN = re.compile(rf"[-+]?{_DECIMAL}")
_GROUPED = re.compile(r"([-+]?)(\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+)(\.\d+)?")
_SCIENTIFIC = re.compile(
    rf"([-+]?)({_DECIMAL})\s*(?:[eE]|(?:\\times|\\cdot|\*|x)\s*10\s*\^)\s*(?:\{{\s*([-+]?\d+)\s*\}}|([-+]?\d+))"
)
_POWER_OF_TEN = re.compile(r"([-+]?)()10\s*\^\s*(?:\{\s*([-+]?\d+)\s*\}|(\d))")
_SLASH = re.compile(rf"([-+]?)({_DECIMAL})\s*/\s*({_DECIMAL})")
_FRACTION = re.compile(
    rf"([-+]?)\s*\\frac\s*(?:\{{\s*([-+]?{_DECIMAL})\s*\}}|(\d))\s*(?:\{{\s*([-+]?{_DECIMAL})\s*\}}|(\d))"
)
_REPEATING = re.compile(
    r"([-+]?)(\d*)\.(\d*)(?:\\(?:overline|bar)\s*\{(\d+)\}|\((\d+)\)|\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?)"
    r"(?:\\[cl]?dots|\.\.\.)?"
)
# 0.333\ldots: three times the same digits, at least; of two digits or more, twice
_CONTINUED = re.compile(r"([-+]?)(\d*)\.(\d*?)(\d+?)\4{2,}\s*\\[cl]?dots")
_TWICE = re.compile(r"([-+]?)(\d*)\.(\d*?)(\d{2,}?)\4\s*\\[cl]?dots")
_MULTIPLES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_MULTIPLES |= {"百": 100, "千": 10**3, "万": 10**4, "亿": 10**8}
_RESTATED = re.compile(r"([^()]+?)\s+\(([^()]+)\)")
_MULTIPLE = re.compile(rf"([-+]?[\d.,]*\d|[A-Za-z]+)\s*({'|'.join(_MULTIPLES)})", re.IGNORECASE)
_MIXED = re.compile(r"([-+]?)(\d+)\s*(?:\\frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))|\s(\d+)/(\d+))")


def number(text: str) -> Fraction | None:
    r"""Reads a number literal."""
    text = unwrap(text).strip()
    if len(text) > MAX_DIGITS:
        return None
    text = re.sub(r"^([-+])\s+", r"\1", text)
    if match := _GROUPED.fullmatch(text):
        text = match.group(1) + re.sub("[, ]", "", match.group(2)) + (match.group(3) or "")
    if _PLAIN.fullmatch(text):
        return Fraction(text)
    if match := _REPEATING.fullmatch(text) or _CONTINUED.fullmatch(text) or _TWICE.fullmatch(text):
        return _repeating(*match.groups())
    if match := _FRACTION.fullmatch(text) or _SLASH.fullmatch(text):
        top, bottom = (Fraction(part) for part in match.groups()[1:] if part)
        return _signed(match.group(1), top / bottom) if bottom else None
    if match := _MIXED.fullmatch(text):
        whole, top, bottom = (Fraction(part) for part in match.groups()[1:] if part)
        return _signed(match.group(1), whole + top / bottom) if bottom else None
    if match := _SCIENTIFIC.fullmatch(text) or _POWER_OF_TEN.fullmatch(text):
        exponent = int(match.group(3) or match.group(4))
        value = Fraction(match.group(2) or 1) * Fraction(10) ** exponent if abs(exponent) <= MAX_DIGITS else None
        return value if value is None else _signed(match.group(1), value)
    if match := _RESTATED.fullmatch(text):  # 7 (seven)
        value = number(match.group(1))
        return value if value == number(match.group(2)) else None
    if match := _MULTIPLE.fullmatch(text):
        value = number(match.group(1))
        return None if value is None else value * _MULTIPLES[match.group(2).lower()]
    return _in_words(text.lower())


def _in_words(text: str) -> Fraction | None:
    """The value of `twenty-five`, `negative three`, `one half` and `three quarters`."""
    if text.startswith(("negative ", "minus ")):
        value = _in_words(text.partition(" ")[2])
        return None if value is None else -value
    first, _, second = text.replace("-", " ").partition(" ")
    count, part = NUMBER_WORDS.get(first), _PARTS.get(second) or _PARTS.get(second.removesuffix("s"))
    if count is None or not second:
        return Fraction(100) if text == "hundred" else None if count is None else Fraction(count)
    if part:
        return Fraction(count, part)
    ones = NUMBER_WORDS.get(second, 0)
    return Fraction(count + ones) if count >= 20 and 0 < ones < 10 else None


def _repeating(sign: str, whole: str, places: str, *periods: str | None) -> Fraction | None:
    r"""The value of `0.1\overline{6}`, `0.1(6)`, `0.1\dot{6}` and `0.\dot{1}4285\dot{7}`."""
    period = "".join(digits or "" for digits in periods)
    rest = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(places))
    return _signed(sign, Fraction(int((whole + places) or "0"), 10 ** len(places)) + rest)


def _signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign == "-" else value


def decimal_places(text: str) -> int | None:
    """Decimal places of a decimal with at least six significant digits; else `None`."""
    text = unwrap(text).replace(",", "").strip()
    if not _PLAIN.fullmatch(text) or "." not in text:
        return None
    digits = text.lstrip("+-").replace(".", "").lstrip("0")
    return len(text.split(".")[1]) if len(digits) >= 6 else None
