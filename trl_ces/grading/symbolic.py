"""Equality by computer algebra. The only importer of math_verify; runs in the grading workers, under their limits."""

import re
from functools import lru_cache
from typing import Any

from antlr4 import ParserRuleContext
from latex2sympy2_extended import NormalizationConfig, normalize_latex
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from latex2sympy2_extended.logic import And
from math_verify import verify
from sympy import (
    Basic,
    Derivative,
    Expr,
    Float,
    I,
    Integer,
    MatrixBase,
    N,
    Rational,
    S,
    Symbol,
    nan,
    oo,
    simplify,
    zoo,
)
from sympy.core.relational import Eq, GreaterThan, LessThan, Ne, Relational, StrictGreaterThan, StrictLessThan

from .braces import with_braces
from .notation import unwrap
from .numbers import decimal_places, number

# math-verify's own parser and clean-up, with two of its defaults off: it lowercases symbols, so that a/A would be 1,
# and it drops trailing letters as units, so that 3t would be 3.
_NORMALIZATION = NormalizationConfig(malformed_operators=True, boxed="none")
# The parser leaves i a symbol. It is the imaginary unit wherever it is no index.
_INDEX_I = re.compile(r"\\(?:sum|prod)|_\s*(?:i|\{[^{}]*i)")
_REWRITES = [
    (re.compile(r"\\log\s*_\s*(\d+)\s+(?=\d)"), r"\\log_{\1}"),
    # Functions and numbers as programs write them, which the parser would take for products of letters.
    (re.compile(r"(?<![\\A-Za-z])(?:np|math)\.log\s*(?=\()"), r"\\ln"),
    (re.compile(r"(?<![\\A-Za-z])(?:np|math)\.(?=[a-z])"), ""),
    (re.compile(r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)"), r"\\sqrt{\1}"),
    (re.compile(r"(?<![\\A-Za-z])(arcsin|arccos|arctan|sin|cos|tan|ln|log|exp)(?![A-Za-z])"), r"\\\1"),
    (re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])"), r"\\pi "),
    # A factor before brackets, which the parser would take for a function.
    (re.compile(r"(\\pi|(?<![A-Za-z\\_])[ei])\s*(?=\()"), r"\1\\cdot "),
    (re.compile(r"\\lg(?![A-Za-z])"), r"\\log_{10}"),
    (re.compile(r"\\log\s*_\s*(?:e|\{\s*e\s*\})"), r"\\ln "),
    (re.compile(r"(?<![\\A-Za-z])E(?=_)"), r"\\Xi"),  # an energy or a field: the parser has an E of its own
    (re.compile(r"(?<=\d),(?=\d{3}(?!\d))"), ""),  # lists have been split before
    (re.compile(r"_\s*\{?\s*\\odot\s*\}?"), "_{o}"),  # solar masses and luminosities
    (re.compile(r"(\d)[eE]([-+]?\d+)"), r"\1\\times 10^{\2}"),
]
# The parser drops primes: y' would be y.
_PRIMES = re.compile(r"(?:(?<=[A-Za-z})])|(?<=_\d))['′’]+")
_BASE = re.compile(r"[0-9A-F]*\d[0-9A-F]*\s*_\s*\{?\s*(\d+)\s*\}?")
# Two numbers with a blank between them. The parser adds or multiplies them, which nobody means: 3 4 is not 7.
_TWO_NUMBERS = re.compile(r"(?<![_^\d.])\d+\.?\d*\s+\.?\d")
# A transpose is dropped, too.
_TRANSPOSED = re.compile(r"(?<!pmatrix\})\^\s*(?:T|\{\s*T\s*\}|\\top(?![A-Za-z])|\{\s*\\top\s*\})")
_MIXED_NUMBER = re.compile(r"\d+\\frac\{\d+\}\{\d+\}")


class _Parser(_Latex2Sympy):
    """Multiplies what stands side by side, but for a mixed number. Its parent adds numbers: 2(3) would be 5."""

    def __init__(self) -> None:
        super().__init__(is_real=True, config=ConversionConfig(lowercase_symbols=False))
        self._converted: dict[ParserRuleContext, Any] = {}

    def convert_postfix(self, postfix: ParserRuleContext) -> Any:
        if postfix not in self._converted:  # asked for twice below, which each nested bracket would double
            self._converted[postfix] = super().convert_postfix(postfix)
        return self._converted[postfix]

    def convert_postfix_list(self, arr: list[ParserRuleContext], i: int = 0) -> Any:
        is_last = i + 1 == len(arr)
        if is_last or _MIXED_NUMBER.fullmatch(arr[i].getText() + arr[i + 1].getText()):
            return super().convert_postfix_list(arr, i)
        left = self.convert_postfix(arr[i])
        if not isinstance(left, Integer):
            return super().convert_postfix_list(arr, i)
        right = self.convert_postfix_list(arr, i + 1)
        return self.mat_mul_flat(left, right) if isinstance(right, MatrixBase) else self.mul_flat(left, right)


def _is_rate(expr: Basic) -> bool:
    """Whether it is dy/dx, which the algebra takes for 0: y is no function of x to it."""
    return isinstance(expr, Derivative) and expr.expr.is_Symbol


@lru_cache(maxsize=4096)
def expression(text: str) -> Basic | MatrixBase | None:
    """Parses a tidy LaTeX text. None where the parser finds no meaning in it."""
    text = unwrap(text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _TRANSPOSED.sub("^{T_{0}}", with_braces(text))
    text = _PRIMES.sub(lambda primes: "^{" + r"\prime" * len(primes.group()) + "}", text)
    if _TWO_NUMBERS.search(text) and "prime" not in text:  # 63 45' are minutes of arc
        return None
    try:
        parsed = _Parser().parse(normalize_latex(text, _NORMALIZATION))
        parsed = parsed.replace(_is_rate, lambda rate: Symbol(f"d{rate.expr}/d{rate.variables}", real=True))
        if _INDEX_I.search(text) or isinstance(parsed, And):  # a chain would lose the order of its links
            return parsed
        units = {symbol: I for symbol in parsed.free_symbols if str(symbol) == "i"}
        if isinstance(parsed, Relational):  # real x = 3+4i is False to sympy, as any other false equation
            return parsed.func(parsed.lhs.xreplace(units), parsed.rhs.xreplace(units), evaluate=False)
        return parsed.xreplace(units)
    except MemoryError:  # not what the text says, but what this worker had left: nobody is to remember it
        raise
    except Exception:  # the parser has no error type of its own: on what it cannot read it raises any built-in one
        return None


def same(gold: str, answer: str) -> bool:
    """Whether two tidy texts are equal as expressions, equations, inequalities, sets or matrices."""
    left, right = expression(gold), expression(answer)
    if left is None or right is None or _bases_differ(gold, answer):
        return False
    if S.EmptySet in (left, right):
        return left == right
    golds, answers = _relations(left), _relations(right)
    if golds and answers:
        return len(golds) == len(answers) and all(any(_same_relation(g, a) for a in answers) for g in golds)
    if isinstance(left, Eq) or isinstance(right, Eq):
        return False
    if _rounds_to(gold, right) or _rounds_to(answer, left):
        return True
    if _clearly_different(left, right):
        return False
    if isinstance(left, Expr) and isinstance(right, Expr) and (left.is_Symbol or right.is_Symbol):
        return simplify(_exact(left - right)) == 0  # math-verify would compare the letters
    return verify(_exact(left), _exact(right), allow_set_relation_comp=True, timeout_seconds=None)


def _bases_differ(one: str, other: str) -> bool:
    """Whether both are written in a base, 1011_2 and 1011_3, and not in the same one. The parser drops bases."""
    bases = {match.group(1) for text in (one, other) if (match := _BASE.fullmatch(text))}
    return len(bases) > 1


def _exact(expr: Basic | MatrixBase) -> Basic | MatrixBase:
    # math-verify rounds floats to six decimals, which makes every 1e-10 equal to every other.
    return expr.xreplace({value: Rational(str(value)) for value in expr.atoms(Float)})


_NO_NUMBERS = (oo, -oo, zoo, nan)


def _clearly_different(one: Basic | MatrixBase, other: Basic | MatrixBase) -> bool:
    """Two constants that differ in their first nine digits need no simplification: most wrong answers are such."""
    if not all(isinstance(expr, Expr) and expr.is_number for expr in (one, other)):
        return False
    if N(one).has(*_NO_NUMBERS) != N(other).has(*_NO_NUMBERS):
        return True  # sympy's simplification of infinities draws random numbers, and has found 42 among them
    difference, size = abs(N(one - other)), abs(N(one))
    # What is 0 comes out as some 1e-120.
    return bool(difference.is_Float and size.is_Float and difference > size * Float("1e-9") + Float("1e-100"))


def _rounds_to(literal: str, expr: Basic | MatrixBase) -> bool:
    """1.414214 for the square root of 2: a decimal with six significant digits, all of them right."""
    places, value = decimal_places(literal), number(literal)
    if places is None or value is None or not isinstance(expr, Expr) or not expr.is_number:
        return False
    difference = N(expr - Rational(value.numerator, value.denominator))
    return bool(difference.is_real) and bool(abs(difference) * 10**places <= Rational(1, 2))


def _relations(expr: Basic | MatrixBase) -> list[Relational]:
    """The links of a chain such as a < b <= c, one for a single relation, none for anything else."""
    links = expr.args if isinstance(expr, And) else (expr,)
    relations = [link for link in links if isinstance(link, Relational)]
    return relations if len(relations) == len(links) else []


_FLIPPED = {
    Eq: Eq, Ne: Ne, LessThan: GreaterThan, GreaterThan: LessThan, StrictLessThan: StrictGreaterThan,
    StrictGreaterThan: StrictLessThan,
}  # fmt: skip


def _same_relation(gold: Relational, answer: Relational) -> bool:
    """a = b and c = d are the same relation where a - b is a constant times c - d; an inequality minds its sign."""
    difference, other = _exact(gold.lhs - gold.rhs), _exact(answer.lhs - answer.rhs)
    if simplify(difference - other) == 0:
        return type(gold) is type(answer)
    ratio = simplify(difference / other)
    if not ratio.is_number or ratio.is_zero or not ratio.is_finite:
        return False
    if isinstance(gold, (Eq, Ne)):
        return type(gold) is type(answer)
    if not ratio.is_real:
        return False
    return type(answer) is (type(gold) if ratio.is_positive else _FLIPPED.get(type(gold)))
