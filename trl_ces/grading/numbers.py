r"""
Parse number literals exactly, as fractions instead of floats.

| gold | equal | different |
|---|---|---|
| `1234.5` | `1,234.50`, `1.2345 \times 10^3` | `12345`, `1,234,5` |
| `\frac{5}{4}` | `1\frac14`, `1.25`, `five fourths` | `1.2` |
| `\frac{1}{3}` | `0.333333`, `0.\overline{3}` | `0.33` |
"""

import re
from fractions import Fraction

from ..support.comparison import NUMBER_WORDS
from .notation import unwrap

_MULTIPLIERS = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_MULTIPLIERS |= {"百": 100, "千": 10**3, "万": 10**4, "亿": 10**8}

MAX_DIGITS = 400
_DECIMAL = r"(?:\d+(?:\.\d*)?|\.\d+)"
_EXPONENT = r"\s*(?:\{\s*([-+]?\d+)\s*\}|([-+]?\d+))"
_SCIENTIFIC = re.compile(rf"({_DECIMAL})\s*(?:[eE]|(?:\\times|\\cdot|\*|x)\s*(?:10|\{{10\}})\s*\^){_EXPONENT}")
_POWER_OF_TEN = re.compile(r"(1)0\s*\^\s*(?:\{\s*([-+]?\d+)\s*\}|(\d))")
_SLASH = re.compile(rf"(?:(\d+)\s+(?=\d+/\d+$))?({_DECIMAL})\s*(?:/|in|out of)\s*({_DECIMAL})")
_PART = rf"\s*(?:\{{\s*([-+]?{_DECIMAL})\s*\}}|(\d))"
_FRACTION = re.compile(rf"(?:(\d+)\s*(?!.*[-+.]))?\\frac{_PART}{_PART}")
_REPEATING = re.compile(
    r"(\d*)\.(\d*)(?:\\(?:overline|bar)\s*\{(\d+)\}|\((\d+)\)|\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?)"
    r"(?:\\[cl]?dots|\.\.\.)?"
)
# 0.333\ldots: a repeated digit must occur at least three times, a longer repeated block twice
_CONTINUED = re.compile(r"(\d*)\.(\d*?)(?:(\d+?)\3{2,}|(\d{2,}?)\4)\s*\\[cl]?dots")
_WITH_MULTIPLIER = re.compile(rf"([\d.,]*\d|[A-Za-z]+)\s*({'|'.join(_MULTIPLIERS)})", re.IGNORECASE)


def number(text: str) -> Fraction | None:
    r"""Parse a number literal."""
    text = unwrap(text).strip()
    if len(text) > MAX_DIGITS:
        return None
    if match := re.fullmatch(r"([^()]+?)\s+\(([^()]+)\)", text):  # 7 (seven)
        value = number(match[1])
        return value if value == number(match[2]) else None
    if match := re.fullmatch(r"([-+]\s*|negative |minus )([^-+\s].*)", text, re.IGNORECASE):
        value = number(match[2])
        return value if value is None or match[1][0] == "+" else -value
    if re.fullmatch(r"\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+)(?:\.\d+)?", text):
        text = re.sub("[, ]", "", text)
    if re.fullmatch(_DECIMAL, text):
        return Fraction(text)
    if match := _REPEATING.fullmatch(text) or _CONTINUED.fullmatch(text):
        whole, places, *periods = (digits or "" for digits in match.groups())
        period = "".join(periods)  # 0.1\overline{6}, 0.1(6), 0.1\dot{6} and 0.\dot{1}4285\dot{7}
        rest = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(places))
        return Fraction(int((whole + places) or "0"), 10 ** len(places)) + rest
    if match := _FRACTION.fullmatch(text) or _SLASH.fullmatch(text):
        *mixed, top, bottom = (Fraction(part) for part in match.groups() if part)
        return sum(mixed, top / bottom) if bottom else None
    if match := _SCIENTIFIC.fullmatch(text) or _POWER_OF_TEN.fullmatch(text):
        exponent = int(match[2] or match[3])
        return Fraction(match[1]) * Fraction(10) ** exponent if abs(exponent) <= MAX_DIGITS else None
    if match := _WITH_MULTIPLIER.fullmatch(text):
        value = number(match[1])
        return None if value is None else value * _MULTIPLIERS[match[2].lower()]
    return _parse_words(text.lower())


_DENOMINATORS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8, "tenth": 10}


def _parse_words(text: str) -> Fraction | None:
    """Parse `twenty-five`, `one half` and `three quarters`."""
    first, _, second = text.replace("-", " ").partition(" ")
    count, part = NUMBER_WORDS.get(first), _DENOMINATORS.get(second) or _DENOMINATORS.get(second.removesuffix("s"))
    if count is None or not second:
        return Fraction(100) if text == "hundred" else None if count is None else Fraction(count)
    ones = NUMBER_WORDS.get(second, 0)
    return Fraction(count, part) if part else Fraction(count + ones) if count >= 20 and 0 < ones < 10 else None


def decimal_places(text: str) -> int | None:
    """Return the number of decimal places of a decimal with at least six significant digits; else `None`."""
    text = unwrap(text).replace(",", "").strip().lstrip("+-")
    if not re.fullmatch(_DECIMAL, text) or "." not in text:
        return None
    return len(text.split(".")[1]) if len(text.replace(".", "").lstrip("0")) >= 6 else None
