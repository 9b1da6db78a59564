"""Reads number literals exactly, as fractions and never as floats, and splits off their units."""

import re
from fractions import Fraction

from .notation import unwrap

_UNIT_COMMAND = re.compile(
    r"^(.*[^\s=+*/^,(\[{<>-])\s*\\(?:text|mathrm|mbox|textrm|textbf|operatorname)\s*\{([^{}]*)\}"
    r"\s*(?:\^\s*\{?\s*-?\d\s*\}?)?$",
    re.DOTALL,
)
_UNIT_WORD = re.compile(
    r"^([-+]?[\d.,/ ]*\d|[-+]?\d*\s*\\frac\s*(?:\{[^{}]*\}\s*\{[^{}]*\}|\d\d))"
    r"(\s*[A-Za-z一-鿿][A-Za-z一-鿿./\s-]*)(?:\^\{?\d\}?)?$"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHORT_UNITS = _words(
    "mm cm dm km m in ft yd mi mg g kg t lb oz ml L l s h hr min sec ms J kJ N W kW V A Hz K C F Pa mph m/s km/h cm/s "
    "ft/s eV mol rad"
)
_LETTERS = frozenset(unit for unit in _SHORT_UNITS if len(unit) == 1)
# Never in a unit: words that scale the number or belong to the mathematics.
_NOT_UNITS = _words(
    "dozen hundred thousand million billion trillion pi sqrt sin cos tan log ln exp mod choose i e d am pm a.m p.m "
    "a.m. p.m. 万 亿 百 千 half halve third fourth fifth sixth seventh eighth ninth tenth hundredth thousandth "
    "or not base"
)
# Never first in a unit: 5 squared is 25, 5 meters squared is an area.
_NOT_FIRST = _words("squared cubed factorial over plus minus times negative is")
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety hundred"
_INTEGER_WORDS = {word: value for value, word in enumerate(_ONES.split())}
_INTEGER_WORDS |= {word: 10 * value for value, word in enumerate(_TENS.split(), start=2)}

MAX_DIGITS = 400
_DECIMAL = r"(?:\d+(?:\.\d*)?|\.\d+)"
_PLAIN = re.compile(rf"[-+]?{_DECIMAL}")
_GROUPED = re.compile(r"([-+]?)(\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+)(\.\d+)?")
_SCIENTIFIC = re.compile(
    rf"([-+]?{_DECIMAL})\s*(?:[eE]|(?:\\times|\\cdot|\*|x)\s*10\s*\^)\s*(?:\{{\s*([-+]?\d+)\s*\}}|([-+]?\d+))"
)
_POWER_OF_TEN = re.compile(r"([-+]?)10\s*\^\s*(?:\{\s*([-+]?\d+)\s*\}|(\d))")
_SLASH = re.compile(rf"([-+]?{_DECIMAL})\s*/\s*({_DECIMAL})")
_FRACTION = re.compile(
    rf"([-+]?)\s*\\frac\s*(?:\{{\s*([-+]?{_DECIMAL})\s*\}}|(\d))\s*(?:\{{\s*([-+]?{_DECIMAL})\s*\}}|(\d))"
)
_MIXED = re.compile(r"([-+]?)(\d+)\s*(?:\\frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))|\s(\d+)/(\d+))")


def number(text: str) -> Fraction | None:
    r"""
    Reads a number literal.

    Args:
        text (`str`):
            A tidied text: integer, decimal, with thousands separators, `a/b`, `\frac{a}{b}`, mixed number, power of
            ten, `2.5e3`, `2.5\times 10^{3}`, or a number word up to a hundred.

    Returns:
        `Fraction` or `None`: The exact value; `None` for anything else, a division by zero, and more than `MAX_DIGITS`
        characters or powers of ten.
    """
    text = unwrap(text).strip()
    if len(text) > MAX_DIGITS:
        return None
    text = re.sub(r"^([-+])\s+", r"\1", text)
    if match := _GROUPED.fullmatch(text):
        text = match.group(1) + re.sub("[, ]", "", match.group(2)) + (match.group(3) or "")
    if _PLAIN.fullmatch(text):
        return Fraction(text)
    if match := _FRACTION.fullmatch(text):
        sign, top, short_top, bottom, short_bottom = match.groups()
        return _quotient(_signed(sign, Fraction(top or short_top)), Fraction(bottom or short_bottom))
    if match := _SLASH.fullmatch(text):
        return _quotient(Fraction(match.group(1)), Fraction(match.group(2)))
    if match := _MIXED.fullmatch(text):
        sign, whole, *parts = match.groups()
        top, bottom = (Fraction(part) for part in parts if part)
        rest = _quotient(top, bottom)
        return None if rest is None else _signed(sign, Fraction(whole) + rest)
    if match := _SCIENTIFIC.fullmatch(text):
        exponent = int(match.group(2) or match.group(3))
        return Fraction(match.group(1)) * Fraction(10) ** exponent if abs(exponent) <= MAX_DIGITS else None
    if match := _POWER_OF_TEN.fullmatch(text):
        exponent = int(match.group(2) or match.group(3))
        return _signed(match.group(1), Fraction(10) ** exponent) if abs(exponent) <= MAX_DIGITS else None
    tens, _, ones = text.lower().partition("-")
    if ones:  # twenty-five
        known = tens in _INTEGER_WORDS and ones in _INTEGER_WORDS
        known = known and 20 <= _INTEGER_WORDS[tens] < 100 and 1 <= _INTEGER_WORDS[ones] < 10
        return Fraction(_INTEGER_WORDS[tens] + _INTEGER_WORDS[ones]) if known else None
    return Fraction(_INTEGER_WORDS[tens]) if tens in _INTEGER_WORDS else None


def _signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign == "-" else value


def _quotient(top: Fraction, bottom: Fraction) -> Fraction | None:
    return None if bottom == 0 else top / bottom


def decimal_places(text: str) -> int | None:
    """Decimal places of a decimal with at least six significant digits; else `None`."""
    text = unwrap(text).replace(",", "").strip()
    if not _PLAIN.fullmatch(text) or "." not in text:
        return None
    digits = text.lstrip("+-").replace(".", "").lstrip("0")
    return len(text.split(".")[1]) if len(digits) >= 6 else None


def split_unit(text: str) -> tuple[str, str]:
    """Splits a tidied text into its value and trailing unit (`""` if there is none)."""
    command = _UNIT_COMMAND.match(text)
    if command and _may_be_unit(command.group(2).strip()):
        return command.group(1).strip(), command.group(2).strip()
    word = _UNIT_WORD.match(text)
    if word and number(word.group(1)) is not None:
        unit = word.group(2).strip()
        first = re.split(r"[\s/-]", unit)[0]
        # A lone letter is a variable (3t, 7 m) and 3abc a product; as units they are in \text{} or \mathrm{}.
        known = len(first) >= (3 if word.group(2)[0] == " " else 4) or unit in _SHORT_UNITS - _LETTERS
        if (known or "一" <= unit[0] <= "鿿") and _may_be_unit(unit):
            return word.group(1).strip(), unit
    return text, ""


def _may_be_unit(unit: str) -> bool:
    words = re.split(r"[\s/-]+", unit.lower())
    if words[0] in _NOT_FIRST or words[0] in {"if", "for", "where"} or re.search(r"[+,()=]", unit):
        return False
    return bool(re.search("[A-Za-z一-鿿]", unit)) and not any(
        {word, word.removesuffix("s")} & _NOT_UNITS for word in words
    )


def units_differ(one: str, other: str) -> bool:
    """Whether two units are known abbreviations and not the same one."""
    return one in _SHORT_UNITS and other in _SHORT_UNITS and one != other
