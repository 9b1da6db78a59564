r"""
Compare by computer algebra. Only workers import this module, because it imports math_verify.

| gold | equal | different |
|---|---|---|
| `2\sqrt{2}` | `\sqrt{8}`, `2^{3/2}` | `\sqrt{6}` |
| `y = 2x + 1` | `2x - y + 1 = 0` | `y = 2x - 1` |
| `k\pi, k \in \mathbb{Z}` | `n\pi, n \in \mathbb{Z}` | `2k\pi, k \in \mathbb{Z}` |
"""

import re
from functools import lru_cache
from typing import Any, TypeAlias

import sympy
from antlr4 import ParserRuleContext
from latex2sympy2_extended import NormalizationConfig, normalize_latex
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from latex2sympy2_extended.logic import And
from math_verify import verify

from .forms import congruence
from .notation import split_top, unwrap
from .numbers import decimal_places, number

Parsed: TypeAlias = sympy.Basic | sympy.MatrixBase
_PRECISION, _NEGLIGIBLE = 40, sympy.Float("1e-25")
_UNSAMPLED = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Derivative, sympy.Limit, sympy.MatrixExpr, sympy.Subs)
_UNDEFINED = (sympy.zoo, sympy.nan)
_NOT_NUMBERS = (sympy.oo, -sympy.oo, *_UNDEFINED)


class _Parser(_Latex2Sympy):
    """Parser that multiplies adjacent factors except in mixed numbers. The parent class reads 2(3) as 5."""

    def __init__(self) -> None:
        super().__init__(is_real=True, config=ConversionConfig(lowercase_symbols=False))
        self._converted: dict[ParserRuleContext, Any] = {}

    def convert_postfix(self, postfix: ParserRuleContext) -> Any:
        if postfix not in self._converted:  # called twice per factor; without a cache, this takes exponential time
            self._converted[postfix] = super().convert_postfix(postfix)
        return self._converted[postfix]

    def convert_postfix_list(self, arr: list[ParserRuleContext], i: int = 0) -> Any:
        is_last = i + 1 == len(arr)
        if is_last or re.fullmatch(r"\d+\\frac\{\d+\}\{\d+\}", arr[i].getText() + arr[i + 1].getText()):
            return super().convert_postfix_list(arr, i)
        left = self.convert_postfix(arr[i])
        if not isinstance(left, sympy.Integer):
            return super().convert_postfix_list(arr, i)
        right = self.convert_postfix_list(arr, i + 1)
        return self.mat_mul_flat(left, right) if isinstance(right, sympy.MatrixBase) else self.mul_flat(left, right)


def _is_rate(expr: sympy.Basic) -> bool:
    """Whether `expr` is dy/dx, which sympy evaluates to 0 because y is not a function of x."""
    return isinstance(expr, sympy.Derivative) and expr.expr.is_Symbol


def _named_rate(rate: sympy.Basic) -> sympy.Symbol:
    r"""Return a symbol for the rate; for dv/dt, this is the parser's symbol for `\dot{v}`."""
    name = str(rate.expr) if len(str(rate.expr)) == 1 else rf"\{rate.expr}"
    name = name if str(rate.variables[0]) == "t" else f"{name}/{rate.variables[0]}"
    return sympy.Symbol(f"dot{{{name}}}", real=True)


# math-verify's normalization without two of its defaults: lowercasing symbols (a/A would be 1) and removing trailing
# letters as units (3t would be 3).
_NORMALIZATION = NormalizationConfig(malformed_operators=True, boxed="none")
# The parser reads i as a symbol, but i is the imaginary unit unless it is an index.
_INDEX_I = re.compile(r"\\(?:sum|prod)|_\s*(?:i|\{[^{}]*i)")
_ARGUMENT = r"\s*(?:\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}|(\d|[A-Za-z]|\\(?!frac|sqrt|left)[A-Za-z]+))"
_FUNCTION = "(?:arc)?(?:sin|cos|tan)h?|csc|cot|sec|ln|log|exp"
_DIGITS = r"(?:\{\s*(\d+)\s*\}|(\d+))"
_OPERAND = r"\s*(\((?:[^()]|\([^()]*\))*\)|\\frac\{[^{}]*\}\{[^{}]*\}|\{[^{}]*\}|\d*\s*(?:\\[a-z]+|[a-z])|\d+)"
_REWRITES: list[tuple[re.Pattern[str], Any]] = [  # pattern, replacement
    # Arguments without braces: \sqrt10, \sqrt[3]2, \frac\pi2, \frac{a}b, x^-1, 2^\frac12.
    (re.compile(r"\\sqrt(?![A-Za-z])(\[[^\[\]]*\])?\s*(\d+(?:\.\d+)?|[A-Za-z]|\\pi(?![A-Za-z]))"), r"\\sqrt\1{\2}"),
    (re.compile(rf"\\(frac|binom)(?![A-Za-z]){_ARGUMENT}{_ARGUMENT}"), r"\\\1{\2\3}{\4\5}"),
    (re.compile(r"\\(dot|ddot)\s*(\\[a-z]+|(?<=\s)[A-Za-z])"), r"\\\1{\2}"),
    (re.compile(r"\^\s*(?:([-+])\s*(\d+|[A-Za-z])|([-+]?)\s*(\\frac\{[^{}]*\}\{[^{}]*\}))"), r"^{\1\2\3\4}"),
    (re.compile(rf"(?<![A-Za-z\\}}])([ACP])\s*\^\s*{_DIGITS}\s*_\s*{_DIGITS}"), r"\1_{\4\5}^{\2\3}"),  # C^2_5
    (re.compile(rf"(?<![A-Za-z\\}}])C\s*_\s*{_DIGITS}\s*\^\s*{_DIGITS}"), r"\\binom{\1\2}{\3\4}"),
    (re.compile(rf"(?<![A-Za-z\\}}])[AP]\s*_\s*{_DIGITS}\s*\^\s*{_DIGITS}"), r"\\frac{\1\2!}{(\1\2-\3\4)!}"),
    # In a fraction, the parser reads the argument of \log_{2}32 as 3.
    (re.compile(r"\\log\s*_\s*(?:\{\s*(\w+)\s*\}\s*|(\d+)\s+|(\w))(\d+(?:\.\d+)?)(?![\d.])"), r"\\log_{\1\2\3}{\4}"),
    (re.compile(r"_\s*\{\s*([a-z])\s*\\geq\s*(\d)\s*\}"), r"_{\1=\2}^{\\infty}"),
    # Functions and constants in code notation, which the parser would read as products of letters.
    (re.compile(r"(?<![\\A-Za-z])(?:np|math)\.log\s*(?=\()"), r"\\ln"),
    (re.compile(r"(?<![\\A-Za-z])(?:np|math)\.(?=[a-z])"), ""),
    (re.compile(r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)"), r"\\sqrt{\1}"),
    (
        re.compile(
            r"(?<![\\A-Za-z])((?:sin|cos|tan)h?|arc(?:sin|cos|tan|sec|csc|cot)h?|csc|cot|ln|log|exp)(?![A-Za-z])"
        ),
        r"\\\1",
    ),
    (re.compile(r"(?<![\\A-Za-z])sec(?=\s*(?:\(|\\|[a-z](?![a-z])))"), r"\\sec"),  # not in 5 sec
    (re.compile(rf"\\?(?<![A-Za-z])cis(?![A-Za-z]){_OPERAND}"), r"e^{i\1}"),
    (re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])"), r"\\pi "),
    # \gamma is a letter, but the parser reads it as the gamma function.
    (re.compile(r"\\gamma(?![A-Za-z])"), r"\\varpi "),
    # \ln|x| / 2 is not \ln(|x|/2), and \cos^5 t (1 - t) is not \cos^5(t (1 - t)).
    (re.compile(rf"\\({_FUNCTION})\s*\|([^|]+)\|(?!\s*\^)"), r"\\\1(|\2|)"),
    (
        re.compile(
            rf"\\({_FUNCTION})\s*(\^\s*\{{?\d\}}?)?\s*([A-Za-z]|\\theta)\s*\((?=[^()]*(?<![A-Za-z])\3(?![A-Za-z]))"
        ),
        r"\\\1\2(\3)\\cdot (",
    ),
    # A factor before brackets, which the parser would read as a function.
    (re.compile(r"(\\pi|(?<![A-Za-z\\_])[ei])\s*(?=\()"), r"\1\\cdot "),
    (re.compile(r"\\lg(?![A-Za-z])"), r"\\log_{10}"),
    (re.compile(r"\\log\s*_\s*(?:e|\{\s*e\s*\})"), r"\\ln "),
    (re.compile(r"(?<![\\A-Za-z])E(?=_)"), r"\\Xi"),  # an energy or field; E has a different meaning in the parser
    (re.compile(r"(?<![\\A-Za-z])e(?=_)"), r"\\xi "),  # a unit vector
    (re.compile(r"(?<=\d),(?=\d{3}(?!\d))"), ""),  # lists are already split
    (re.compile(r"_\s*(?:\{\s*\\odot\s*\}|\\odot(?![A-Za-z]))"), "_{o}"),  # solar masses and luminosities
    (re.compile(r"(\d)[eE]([-+]?\d+)"), r"\1\\times 10^{\2}"),
    # The parser drops transposes and primes: y' would be y.
    (re.compile(r"(?<!pmatrix\})\^\s*(?:T|\{\s*T\s*\}|\\top(?![A-Za-z])|\{\s*\\top\s*\})"), "^{T_{0}}"),
    (re.compile(r"(?<=[A-Za-z\d})])['′’]+"), lambda primes: "^{" + r"\prime" * len(primes.group()) + "}"),
]
# The parser adds or multiplies adjacent numbers, but 3 4 is neither 7 nor 12.
_TWO_NUMBERS = re.compile(r"(?<![_^\d.])\d+\.?\d*\s+\.?\d")


@lru_cache(maxsize=4096)
def expression(text: str) -> Parsed | None:
    """Parse a tidied LaTeX text; return `None` if this fails."""
    text = unwrap(text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    if _TWO_NUMBERS.search(text) and "prime" not in text:  # 63 45' has minutes of arc
        return None
    try:
        parsed = _Parser().parse(normalize_latex(text, _NORMALIZATION))
        parsed = parsed.replace(_is_rate, _named_rate)
        if _INDEX_I.search(text) or isinstance(parsed, And):  # xreplace would reorder the links of a chain
            return parsed
        units = {symbol: sympy.I for symbol in parsed.free_symbols if str(symbol) == "i"}
        if isinstance(parsed, sympy.Rel):  # sympy evaluates x = 3+4i to False for a real x
            return parsed.func(parsed.lhs.xreplace(units), parsed.rhs.xreplace(units), evaluate=False)
        return parsed.xreplace(units)
    except MemoryError:  # depends on this worker's free memory, not on the text: do not cache it
        raise
    except Exception:  # the parser can raise any built-in exception
        return None


_COMPARED = (sympy.Expr, sympy.MatrixBase, sympy.Rel, And, sympy.Set)


def same(gold: str, answer: str) -> bool:
    """Whether two tidied texts are equal as expressions, equations, inequalities, sets or matrices."""
    if r"\begin{cases}" in gold + answer:
        return _same_by_cases(gold, answer)
    if r"\in\mathbb{Z}: " in gold:
        return _same_family(_family(gold), _family(answer))
    left, right = expression(gold), expression(answer)
    if not (isinstance(left, _COMPARED) and isinstance(right, _COMPARED)):
        return False  # a text cannot be parsed, or gives no value: x = x is parsed as True
    if left.has(*_UNDEFINED) or right.has(*_UNDEFINED):
        return False  # 1/0 is not 2/0
    if sympy.S.EmptySet in (left, right):
        return left == right
    if (gold_terms := _terms(left)) and (answer_terms := _terms(right)):
        return all(_equals(one, other) for one, other in zip(gold_terms, answer_terms, strict=True))
    golds, answers = _relations(left), _relations(right)
    if golds and answers:
        return len(golds) == len(answers) and all(any(_same_relation(g, a) for a in answers) for g in golds)
    if isinstance(left, sympy.Eq) or isinstance(right, sympy.Eq):
        return False
    if _differ_by_a_constant(left, right) or _rounds_to(gold, right) or _rounds_to(answer, left):
        return True
    if _clearly_different(left, right):
        return False
    if (agreement := _agree(_rationalize(left), _rationalize(right))) is not None:
        return agreement
    if isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr) and (left.is_Symbol or right.is_Symbol):
        return sympy.simplify(_rationalize(left - right)) == 0  # math-verify would compare the names
    return verify(_rationalize(left), _rationalize(right), allow_set_relation_comp=True, timeout_seconds=None)


_COMPARED_TERMS = 8


def _terms(expr: Parsed) -> list[sympy.Expr]:
    """Return the first nonzero terms of a series; else an empty list."""
    if not isinstance(expr, sympy.Expr):
        return []
    factor, series = expr.as_independent(sympy.Sum, as_Add=False)
    if not isinstance(series, sympy.Sum) or len(series.limits) > 1 or series.limits[0][2] != sympy.oo:
        return []
    (index, first, _), *_ = series.limits
    terms = (factor * series.function.subs(index, first + count) for count in range(3 * _COMPARED_TERMS))
    return [term for term in terms if term != 0][:_COMPARED_TERMS]


def _family(text: str) -> list[list[float]]:
    r"""Return the values of each item of `k\in\mathbb{Z}: 2k\pi; \pi+2k\pi` for integers around zero."""
    letter, _, items = text.partition(r"\in\mathbb{Z}: ")
    name, exprs = sympy.Symbol(letter, real=True), [expression(item) for item in split_top(items, ";")]
    valid_exprs = [expr for expr in exprs if isinstance(expr, sympy.Expr) and expr.free_symbols == {name}]
    if len(valid_exprs) < len(exprs):
        return []
    return [[float(sympy.N(expr.subs(name, count))) for count in range(-24, 25)] for expr in valid_exprs]


def _same_family(one: list[list[float]], other: list[list[float]]) -> bool:
    """Whether both families have the same values in the range that all items cover."""
    limit = 0.8123 * min((min(abs(item[0]), abs(item[-1])) for item in one + other), default=0)
    sets = [{round(value * 1e6) for item in items for value in item if abs(value) < limit} for items in (one, other)]
    return sets[0] == sets[1] != set()


def _parse_cases(text: str) -> Parsed | None:
    """Parse a piecewise function or another expression; `None` if this fails."""
    body = re.fullmatch(r"\\begin\{cases\}(.*)\\end\{cases\}", text, re.DOTALL)
    if not body:
        return expression(text)
    rows = [row.partition("&")[::2] for row in body[1].split(r"\\") if row.strip()]
    cases = [(expression(value.strip(" ,;")), _condition(condition)) for value, condition in rows]
    is_valid = all(isinstance(value, sympy.Expr) and condition is not None for value, condition in cases)
    return sympy.Piecewise(*cases, (sympy.nan, True)) if is_valid else None


_IF = re.compile(
    r"^\s*,?\s*(?:if|for|when|where|若|当)\b|(?<=\w)(?:时| is\b)|^\s*(?:若|当)|,?\s*[a-z]\s*\\in\s*\\mathbb\{\w\}\S*"
)


def _condition(text: str) -> Any:
    """Convert a condition to sympy; relations in a list are alternatives. `None` if this fails."""
    text = _IF.sub("", unwrap(text)).strip(" ,;.")
    if re.fullmatch("else|otherwise|其他|其它|否则", text):
        return sympy.true
    parity = re.search("(odd|奇)|even|偶", text)
    residue_class = re.fullmatch(r"[a-z]\s*=\s*(\d+)\s*[a-z]\s*([-+]\s*\d+)?", text)
    residue = congruence(text)
    if parity:
        residue = (1 if parity[1] else 0, 2)
    elif residue_class:
        residue = (int((residue_class[2] or "0").replace(" ", "")), int(residue_class[1]))
    if residue:
        name = re.search("(?<![A-Za-z])[a-z](?![A-Za-z])", text)
        return sympy.Eq(
            sympy.Mod(sympy.Symbol(name[0] if name else "n", real=True), residue[1]), residue[0] % residue[1]
        )
    parsed = [_relations(relation) for part in split_top(text, ",") if (relation := expression(part)) is not None]
    return sympy.Or(*(sympy.And(*links) for links in parsed)) if parsed and all(parsed) else None


def _same_by_cases(gold: str, answer: str) -> bool:
    """Whether two piecewise functions are equal near the ends of their cases, or at the first positive integers."""
    pair = [_parse_cases(gold), _parse_cases(answer)]
    relations = [relation for one in pair if isinstance(one, sympy.Expr) for relation in one.atoms(sympy.Rel)]
    letters = {letter for relation in relations for letter in relation.free_symbols}
    if not letters or not all(isinstance(one, sympy.Expr) for one in pair):
        return False
    name = max(letters, key=lambda letter: (sum(letter in one.free_symbols for one in relations), str(letter)))
    others = sorted({letter for one in pair for letter in one.free_symbols} - {name}, key=str)  # type: ignore[union-attr]
    point = {letter: sympy.Rational(3 + count, 7) for count, letter in enumerate(others)}
    ends = {end.subs(point) for one in relations for end in (*one.args, sympy.S.Zero) if name not in end.free_symbols}
    places = [end + sympy.Rational(step, 7) for end in ends for step in (*range(-25, 26, 5), -1, 1)]
    if any(relation.has(sympy.Mod) for relation in relations):
        places = [sympy.Integer(count) for count in range(1, 25)]
    values = [[one.subs(point).subs(name, place) for one in pair] for place in places]  # type: ignore[union-attr]
    known = [[not value.has(*_NOT_NUMBERS) for value in both] for both in values]
    return any(map(all, known)) and all(
        comparable == [False, False] or (all(comparable) and abs(sympy.N(one - other)) < 1e-12)
        for comparable, (one, other) in zip(known, values, strict=True)
    )


_C = sympy.Symbol("C", real=True)


def _differ_by_a_constant(one: Parsed, other: Parsed) -> bool:
    """Whether both expressions are antiderivatives f + C of one function; `\\ln x` and `\\ln |x|` count as equal."""
    if not all(isinstance(expr, sympy.Expr) and expr.diff(_C) == 1 for expr in (one, other)):
        return False
    one, other = (
        expr.replace(sympy.log, lambda x, *base: sympy.log(x.replace(sympy.Abs, lambda y: y), *base))
        for expr in (one, other)
    )
    letters = one.free_symbols | other.free_symbols
    return all(_equals(one.diff(letter), other.diff(letter)) for letter in letters)


def _equals(one: sympy.Expr, other: sympy.Expr) -> bool:
    agreement = _agree(one, other)
    return bool(sympy.simplify(one - other) == 0) if agreement is None else agreement


_TEST_POINTS = [sympy.Rational(*place) for place in ((13, 37), (71, 59), (-31, 43), (229, 83), (-163, 97))]
_ZERO = sympy.Float("1e-90")  # zero is computed as about 1e-120
_NOT_SMOOTH = (sympy.Abs, sympy.floor, sympy.ceiling, sympy.Mod, sympy.Piecewise, sympy.sign, sympy.Max, sympy.Min)


def _agree(one: Parsed, other: Parsed) -> bool | None:
    """Whether two expressions agree at all test points (`True`) or at none (`False`); `None` if undecided."""
    if not all(isinstance(expr, sympy.Expr) and not expr.has(*_UNSAMPLED) for expr in (one, other)):
        return None
    if one == other:
        return True
    letters = sorted(one.free_symbols | other.free_symbols, key=str)
    if not letters:
        return None
    # Ignore a difference if neither value is real: \ln(1/x) is -\ln x for positive x. With a root of odd degree,
    # ignore it unless both are real: for negative x, sympy uses different branches of x^{2/3} and \sqrt[3]{x^2}.
    exponents = [power.exp for expr in (one, other) for power in expr.atoms(sympy.Pow) if power.exp.is_Rational]
    real = all if any(exponent.q % 2 and exponent.q > 1 for exponent in exponents) else any
    hits = misses = 0
    for place in _TEST_POINTS:
        at = {letter: place * (1 + sympy.Rational(index, 7)) for index, letter in enumerate(letters)}
        values = [expr.evalf(_PRECISION, subs=at) for expr in (one, other)]
        if not all(value.is_number and value.is_finite for value in values):
            continue
        if abs((values[0] - values[1]).evalf()) <= abs(values[0]) * _NEGLIGIBLE + _ZERO:
            hits += 1
        elif real(value.is_real for value in values) or one.has(sympy.I) or other.has(sympy.I):
            misses += 1
    if misses > 1 and not hits:
        return False
    return True if hits >= 3 and not misses and not any(expr.has(*_NOT_SMOOTH) for expr in (one, other)) else None


def _rationalize(expr: Parsed) -> Parsed:
    # math-verify rounds floats to six decimals: 1e-10 would equal 2e-10.
    return expr.xreplace({value: sympy.Rational(str(value)) for value in expr.atoms(sympy.Float)})


def _clearly_different(one: Parsed, other: Parsed) -> bool:
    """Whether two constants differ in their first nine digits, so that they need not be simplified."""
    if not all(isinstance(expr, sympy.Expr) and expr.is_number for expr in (one, other)):
        return False
    if sympy.N(one).has(*_NOT_NUMBERS) != sympy.N(other).has(*_NOT_NUMBERS):
        return True  # sympy simplifies infinities with random numbers and may accept 42 for infinity
    difference, size = abs(sympy.N(one - other)), abs(sympy.N(one))
    if not (difference.is_Float and size.is_Float):
        return False
    least = sympy.Float("0" if 0 < size < 1e-200 else "1e-100")  # zero is computed as about 1e-120
    return bool(difference > size * sympy.Float("1e-9") + least)


def _rounds_to(literal: str, expr: Parsed) -> bool:
    """Whether a decimal has at least six significant digits, all correct: 1.414214 for the square root of 2."""
    places, value = decimal_places(literal), number(literal)
    if places is None or value is None or not isinstance(expr, sympy.Expr) or not expr.is_number:
        return False
    difference = sympy.N(expr - sympy.Rational(value.numerator, value.denominator))
    return bool(difference.is_real) and bool(abs(difference) * 10**places <= sympy.Rational(1, 2))


def _relations(expr: Parsed) -> list[sympy.Rel]:
    """Return the relations in a chain such as a < b <= c, or a single relation; else an empty list."""
    links = expr.args if isinstance(expr, And) else (expr,)
    relations = [link for link in links if isinstance(link, sympy.Rel)]
    return relations if len(relations) == len(links) else []


def _same_relation(gold: sympy.Rel, answer: sympy.Rel) -> bool:
    """Whether the differences of the sides are proportional; inequalities also require a matching sign."""
    difference, other = _rationalize(gold.lhs - gold.rhs), _rationalize(answer.lhs - answer.rhs)
    if _equals(difference, other):
        return type(gold) is type(answer)
    letters = sorted(difference.free_symbols | other.free_symbols, key=str)
    at = {letter: sympy.Rational(41 + index, 29) for index, letter in enumerate(letters)}
    if not (difference.has(*_UNSAMPLED) or other.has(*_UNSAMPLED)):
        sampled_ratio = (difference / other).evalf(_PRECISION, subs=at)
        if sampled_ratio.is_number and sampled_ratio.is_finite and _agree(difference, sampled_ratio * other) is False:
            return False  # simplification would take seconds
    ratio = sympy.simplify(difference / other)
    if not ratio.is_number or ratio.is_zero or not ratio.is_finite:
        return False
    if not (ratio.is_real or isinstance(gold, (sympy.Eq, sympy.Ne))):
        return False
    return type(answer) is type(gold if ratio.is_positive else gold.reversedsign)
