r"""
Split units off numbers and compare units. A word counts as a unit only if it is a known unit or occurs in the
question: other words after a number may change its value.

| gold | equal | different |
|---|---|---|
| `5\text{ cm}^2` | `5 \text{ square centimeters}`, `5` | `5\text{ cm}^3` |
| `5` | `5\text{ cm}`, `5\text{ apples}` | `5\text{ k}`, `5\text{ halved}`, `5\text{ at most}` |
"""

import re
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from .notation import tidy, unwrap
from .numbers import number

_TEXT = r"\\(?:text|mathrm|mbox|textrm|textbf|operatorname)"
_PREFIXES = {"k": "kilo", "c": "centi", "m": "milli", "d": "deci", "M": "mega", "G": "giga", "μ": "micro", "n": "nano"}
_POWERS_OF_TEN = dict(zip(["", *_PREFIXES], (0, 3, -2, -3, -1, 6, 9, -6, -9), strict=True))
# Nouns in benchmark answers. If the question is given, its nouns are also accepted.
_COUNTED = (
    "apple orange banana egg cookie cake pie pizza slice candy marble ball coin card book page pen pencil ticket "
    "stamp toy flower tree bird dog cat fish student teacher boy girl worker player team family families house room "
    "chair table seat car bus truck bike box bag bottle can cup glass plate piece item part point step way solution "
    "number digit integer word letter question problem game lap beat lifetime kid friend guest member visitor "
    "passenger shirt hat shoe sticker block brick tile jar value term root element"
)
_METRIC = {
    "m": "meter metre", "g": "gram gramme", "L": "liter litre l", "s": "second sec", "W": "watt", "J": "joule",
    "N": "newton", "V": "volt", "A": "ampere amp", "Hz": "hertz", "Pa": "pascal", "eV": "electronvolt", "mol": "mole",
    "Ω": "ohm",
}  # fmt: skip
# The first word of each entry names the unit; the other words are spellings of the unit.
_OTHERS = """
    in inch inche|ft foot feet|yd yard|mi mile|h hr hour 小时|min minute 分钟|day 天|week wk|month|year yr 年
    t ton tonne 吨|cm 厘米|m 米|km 千米 公里|mm 毫米|dm 分米|kg 千克 公斤|g 克|L 升|mL 毫升|s 秒
    μm micron|lb pound|oz ounce|gal gallon|qt quart|pt pint|rad radian|deg degree 度|C celsius|F fahrenheit|T|mph|kph
    dollar USD|cent|euro EUR|GBP|percent|erg|Å angstrom|pc parsec|arcsec arcsecond|cal calorie|mass|K kelvin|C 摄氏度
    元 yuan RMB|角|分
    人 个人 名|个|只|本|页|棵|块|张|件|辆|次|种|组|支|台|条|岁|unit|people person|child children|man men|woman women
"""


def _spellings() -> dict[str, str]:
    known = {noun: noun for noun in _COUNTED.split()}
    for symbol, names in _METRIC.items():
        for short, long in {"": "", **_PREFIXES}.items():
            known |= {short + symbol: short + symbol} | {long + name: short + symbol for name in names.split()}
    known |= {short + "l": short + "L" for short in _PREFIXES}
    for line in re.split(r"[|\n]", _OTHERS):
        known |= {spelling: line.split()[0] for spelling in line.split()}
    return known


_KNOWN = _spellings()
# Units of measurement. Converting between them changes the number.
MEASURES = frozenset(_KNOWN.values()) - {*f"{_COUNTED} unit person child man woman percent mass".split()}
# Maps a unit to the base unit of its quantity and to its size in base units.
_SIZES: dict[str, tuple[str, Fraction]] = {}
_CONVERSIONS = """m in 0.0254 ft 0.3048 yd 0.9144 mi 1609.344|g t 1e6 lb 453.59237 oz 28.349523125|W|J|N|V|A|
    Hz|Pa|s min 60 h 3600 day 86400 wk 604800|L gal 3.785411784 qt 0.946352946 pt 0.473176473|dollar cent 0.01|
    元 角 0.1 分 0.01"""
for _line in _CONVERSIONS.split("|"):
    _first, *_rest = _line.split()
    _SIZES |= {prefix + _first: (_first, Fraction(10) ** power) for prefix, power in _POWERS_OF_TEN.items()}
    _SIZES |= {name: (_first, Fraction(size)) for name, size in zip(_rest[::2], _rest[1::2], strict=True)}
KINDS = [*map(frozenset, ({"C", "F"}, {"deg", "rad"}, {"dollar", "cent", "euro", "GBP", "元", "角", "分"}))]
KINDS += [
    frozenset(name for name, (first, _) in _SIZES.items() if first == base) for base in ("m", "g", "L", "s", "J", "Pa")
]
CHINESE = sorted((word for word in _KNOWN if not word.isascii() and word not in {"μ", "Ω"}), key=len, reverse=True)


@lru_cache(maxsize=256)
def measures_in(question: str) -> frozenset[str]:
    """Return the measures in a question: whole words, symbols after numbers or in `\\text{}`, and currency signs."""
    symbols = re.findall(rf"(?:\d[\s~\\,]*|°|{_TEXT}\s*\{{[^{{}}A-Za-zμ]*)([A-Za-zμ]+)", question)
    words = [word for word in re.findall("[A-Za-z]{3,}", question) if word not in {"second", "minute", "foot", "min"}]
    names = {name for word in [*symbols, *words] if (name := _name(word))}
    rest = re.sub(r"(?<=[\d每/])时(?![，,])", "小时", question)
    for word in CHINESE:
        if word in rest:
            names.add(_KNOWN[word])
            rest = rest.replace(word, " ")
    if question.count("$") % 2 or re.search(r"\\\$|\$\d*\.\d\d(?!\d)|\$\.?\d[\d,.]*\s+[a-z]{2}", question):
        names.add("dollar")
    if "mph" in names:
        names |= {"mi", "h"}
    return frozenset(names) & MEASURES


_POWER = r"(?:\s*\^\s*\{?\s*-?\d\s*\}?)?"
# `\text{ cm}^2`, `\mathrm{m} / \mathrm{s}`, `\Omega` after a value
_IN_TEXT = re.compile(
    rf"^(.*?[^\s=+*/^,(\[{{<>-])\s*((?:(?:{_TEXT}\s*\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}|\\Omega(?![A-Za-z])|μ){_POWER}(?:[\s/]|\\cdot)*)+)$",
    re.DOTALL,
)
_QUOTIENT = re.compile(r"\\frac\s*\{{\s*({0})\s*\}}\s*\{{\s*({0})\s*\}}".format(rf"{_TEXT}\s*\{{[^{{}}]*\}}{_POWER}"))
_GLUED = re.compile(r"^(.*\})\s*((?:[cmkd]m|kg)(?:\^\{?\d\}?)?)$")
_LITERAL = r"[-+]?[\d.,/ ]*\d|[-+]?\d*\s*\\frac\s*(?:\{[^{}]*\}\s*\{[^{}]*\}|\d\d)"
_ALL_IN_TEXT = re.compile(rf"^{_TEXT}\s*\{{\s*([-+]?[\d.,/]*\d[^{{}}]*)\}}$")


def split_unit(text: str, nouns: frozenset[str] = frozenset()) -> tuple[str, str]:
    """Split a tidied text into its value and trailing unit (`""` if there is none). `nouns` also count as units."""
    if whole := _ALL_IN_TEXT.match(text):
        text = whole.group(1).strip()
    in_text = _IN_TEXT.match(_QUOTIENT.sub(r"\1/\2", re.sub(r"\\mu(?![A-Za-z])", "μ", text))) or _GLUED.match(text)
    if in_text:
        unit = " ".join(unwrap(in_text.group(2).replace(r"\cdot", " ")).split())
        if parse_unit(unit, nouns) is not None:
            return in_text.group(1).strip(), unit
    plain = re.match(rf"^({_LITERAL})(\s*[A-Za-zΩμÅ一-鿿][A-Za-zΩμÅ一-鿿./\s-]*{_POWER})$", text)
    # A single letter is a variable (3t, 7 m) unless it is in \text{} or \mathrm{}.
    if plain and number(plain.group(1)) is not None and not re.fullmatch(r"\s*[A-Za-z]", plain.group(2)):
        unit = plain.group(2).strip()
        if parse_unit(unit, nouns) is not None:
            return plain.group(1).strip(), unit
    return text, ""


_TOKEN = re.compile(r"[A-Za-zΩμÅ.]+|平方|立方|每|(?:(?!每)[一-鿿])+|\^\s*\{?\s*-?\d|/")
_SCALES = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, "平方": 2, "立方": 3}
_POWERS = {"squared": 2, "cubed": 3}
_JOINERS = {"of", "a", "an", "the", "each", "every", "total", "altogether", "left", "them", "old", "solar", "in"}
_JOINERS.add("metric")


@lru_cache(maxsize=4096)
def parse_unit(unit: str, nouns: frozenset[str] = frozenset()) -> dict[str, int] | None:
    """Return the power of each unit; `None` if a word is not a unit."""
    for short, long in (r"\Omega", "Ω"), (r"\mu", "μ"), ("mph", "mi/h"), ("kph", "km/h"), ("/时", "/小时"):
        unit = unit.replace(short, long)
    powers: dict[str, int] = {}
    if re.sub(r"[\s.·}]", "", _TOKEN.sub("", unit)):
        return None
    tokens, sign, scale, last_unit = _TOKEN.findall(unit.rstrip(".")), 1, 1, ""
    for position, word in enumerate(tokens):
        token = word.lower().rstrip(".")
        if token in {"/", "per", "每"}:
            sign = -1
        elif token in _SCALES:
            scale = _SCALES[token]
        elif last_unit and (token in _POWERS or token.startswith("^")):
            powers[last_unit] = sign * (_POWERS.get(token) or int(token.lstrip("^{ ")))
        elif word in _JOINERS and (token != "in" or re.match("[A-Za-z]", "".join(tokens[position + 1 :]))):
            continue
        elif name := _name(word) or next(iter(stems(token) & nouns), None):
            last_unit = name
            powers[last_unit] = powers.get(last_unit, 0) + sign * scale
            scale = 1
        else:
            return None
    if len(powers) > 1:
        powers.pop("deg", None)  # degrees Celsius
    # "in total" and "each" mean that there is no unit; "per" and "square" alone are not units.
    return powers if powers or (tokens and sign == scale == 1) else None


def _name(word: str) -> str | None:
    """Return the unit of a spelling. Symbols are case-sensitive: mW is not MW, and M is not a meter."""
    forms = [word, word.removesuffix("s"), word.removesuffix("es")] if len(word) > 2 else [word]
    for form in forms:
        if name := _KNOWN.get(form) or (_KNOWN.get(form.lower()) if len(form) > 2 else None):
            return name
    return None


_COMPOUND = re.compile(r"(?:\d+(?:\.\d+)?\s*[A-Za-z一-鿿]+[\s,]*){2,4}")  # 2 hours 30 minutes


def quantity(text: str) -> tuple[str, dict[str, int], Fraction] | None:
    r"""Return the value of `75\text{ cm}` or `2\text{ hours }30\text{ minutes}` in base units, the powers of the base
    units and the size of the unit; `None` for a text without a unit of measurement."""
    bare = unwrap(tidy(text))
    if _COMPOUND.fullmatch(bare):
        bare = re.sub("(?<=时)(.*)分$", r"\1分钟", re.sub("(?<!小)时", "小时", bare))
        pieces = re.findall(r"([\d.]+)\s*([A-Za-z一-鿿]+)", bare)
        parts = [part for amount, unit in pieces if (part := quantity(rf"{amount}\text{{ {unit}}}"))]
        if len(parts) < len(pieces) or any(a[1] != b[1] or a[2] <= b[2] for a, b in pairwise(parts)):
            return None
        return str(sum(Fraction(part[0]) for part in parts)), parts[0][1], Fraction(0)
    value, unit_text = split_unit(tidy(text))
    unit = parse_unit(unit_text or implied_unit(text))
    if not unit or not unit.keys() <= MEASURES:
        return None
    size, kinds = Fraction(1), dict[str, int]()
    for name, power in unit.items():
        first, scale = _SIZES.get(name, (name, Fraction(1)))
        first, degree = ("m", 3) if first == "L" else (first, 1)  # a liter is a cubic decimeter
        size *= (scale / 1000 if degree == 3 else scale) ** power
        kinds[first] = kinds.get(first, 0) + degree * power
    amount = number(value)
    return rf"{size} \cdot ({value})" if amount is None else str(amount * size), kinds, size


def unit_fits(unit: str, gold: str) -> bool:
    """Whether an answer's unit is compatible with the gold's."""
    given, expected = parse_unit(unit), parse_unit(gold)
    if not given or not expected or given == expected:
        return True
    return {"deg": 1} in (given, expected) and any(one in ({"C": 1}, {"F": 1}) for one in (given, expected))


_SIGNS = {
    "dollars": re.compile(r"\\\$|\\textdollar|^\s*\$[\d.,]+\s*$|USD"),
    "euros": re.compile("€|EUR"),
    "GBP": re.compile("£|GBP"),
    "yuan": re.compile("[¥￥]"),
    "cents": re.compile("¢"),
    "degrees": re.compile(r"\\circ|\\degree|°"),
    "percent": re.compile("%"),
}


def implied_unit(text: str) -> str:
    r"""Return the unit of the sign that `tidy` removes from `\$9`, `60^\circ` or `20\%`; else `""`."""
    return next((unit for unit, sign in _SIGNS.items() if sign.search(text)), "")


@lru_cache(maxsize=256)
def stems(text: str) -> frozenset[str]:
    """Return a text's words without plural endings."""
    return frozenset(re.sub("(?<=..)(?:es|s|e)$", "", word) for word in re.findall("[a-z]+", text.lower()))


# Words that, after a number, change its value or express doubt.
_NOT_NOUNS = stems(
    "at most least than less fewer under above below about around almost nearly or and not no wrong false incorrect "
    "is by if for where minus plus times over half third quarter pair dozen double triple square percent "
    "base mod hundred thousand million billion trillion zero one two three four five six seven eight nine ten pi e i "
    "x y z n k m b"
)


def nouns(question: str) -> frozenset[str]:
    """Return the words of a question that may state what a number counts."""
    return stems(question) - _NOT_NOUNS
