r"""
Compare by computer algebra like the Qwen2.5-Math evaluation script: parse with sympy, or else with latex2sympy; then
compare expressions by equality or within a numeric tolerance, equations up to sign, and matrices after rounding. Runs
only in worker processes, under their time and memory limits.

sympy's `parse_expr` is not used, because it evaluates model output as Python. Sets and intervals are not parsed,
because the script's older latex2sympy cannot parse them.
"""

import cmath
from collections.abc import Callable
from functools import lru_cache
from itertools import cycle, product
from typing import TypeAlias

from antlr4 import CommonTokenStream, InputStream
from antlr4.error.ErrorListener import ErrorListener
from latex2sympy2_extended import latex2sympy
from sympy import Basic, Derivative, Expr, Float, Integral, Limit, MatrixBase, N, Product, Sum
from sympy.core.relational import Eq
from sympy.parsing.latex._antlr.latexlexer import LaTeXLexer
from sympy.parsing.latex._antlr.latexparser import LaTeXParser
from sympy.parsing.latex._parse_latex_antlr import convert_relation

from .equality import numbers_close

Parsed: TypeAlias = Basic | MatrixBase | None

# Arbitrary values for the symbols of an expression.
_POINT = tuple(map(Float, ["0.43", "0.62", "0.78", "0.91", "1.09", "1.17", "1.31", "1.46"]))


class _Lexer(LaTeXLexer):
    def checkVersion(self, toolVersion):
        """Skip the check, because antlr 4.11 wrote the tables in the same format that 4.13 reads."""


class _Parser(LaTeXParser):
    def checkVersion(self, toolVersion):
        """See [`_Lexer`]; sympy's own `parse_latex` rejects every runtime other than 4.11."""


class _Strict(ErrorListener):
    def syntaxError(self, recognizer, offendingSymbol, line, column, msg, e):
        raise ValueError(f"column {column}: {msg}")


def _parse_with_sympy(text: str) -> Parsed:
    """Parse the longest prefix that the grammar accepts: `2a+b,3` is read as `2a+b`, a known error of the script."""
    lexer = _Lexer(InputStream(text.strip()))
    parser = _Parser(CommonTokenStream(lexer))
    for recognizer in (lexer, parser):
        recognizer.removeErrorListeners()
        recognizer.addErrorListener(_Strict())
    return convert_relation(parser.math().relation())


def _parse_with_latex2sympy(text: str) -> Parsed:
    if "," in text and "pmatrix" not in text:  # a tuple, interval or set: slow to parse, and rejected below
        return None
    parsed = latex2sympy(text)
    return parsed if isinstance(parsed, (Expr, MatrixBase, Eq)) else None


@lru_cache(maxsize=4096)
def parse(text: str) -> Parsed:
    """Parse a text as the script does; `None` if neither parser accepts the text."""
    variants = dict.fromkeys([text.replace("\\\\", "\\"), text])
    parsers: tuple[Callable[[str], Parsed], ...] = (_parse_with_sympy, _parse_with_latex2sympy)
    for parser, variant in product(parsers, variants):
        try:
            parsed = parser(variant)
        except Exception:  # the parsers can raise any built-in exception on input they cannot read
            continue
        if parsed is not None:
            return parsed
    return None


def same_as_script(gold: str, answer: str) -> bool:
    """Whether the script would find two prepared texts algebraically equal."""
    left, right = parse(gold), parse(answer)
    if left is None or right is None:
        return False
    try:
        return str(left) == str(right) or _same_value(left, right)
    except Exception:  # sympy can raise any built-in exception on operands it cannot compare
        return False


def _same_value(left: Basic | MatrixBase, right: Basic | MatrixBase) -> bool:
    match left, right:
        case Expr(), Expr():
            return _same_expression(left, right)
        case Eq(), Eq():
            return bool(abs(left.lhs - left.rhs).equals(abs(right.lhs - right.rhs)))
        case MatrixBase(), MatrixBase():
            return bool(_rounded(left).equals(_rounded(right)))
    return False


def _same_expression(left: Expr, right: Expr) -> bool:
    names = sorted(left.free_symbols | right.free_symbols, key=str)
    values = _values(left, right, dict(zip(names, cycle(_POINT))))
    if values is None:
        return bool(left.equals(right))
    one, other = values
    if names:  # if the values clearly differ, skip the slow simplification
        return cmath.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6) and bool(left.equals(right))
    # Two constants: the tolerance of 1e-4 is looser than any exact comparison, so the tolerance alone decides.
    if one.imag or other.imag:
        return cmath.isclose(one, other, rel_tol=1e-12)
    return numbers_close(one.real, other.real)


def _values(left: Expr, right: Expr, point: dict[Basic, Float]) -> tuple[complex, complex] | None:
    """Evaluate two expressions at a point; `None` if a value is not a number or may take long to compute."""
    if point and any(side.has(Sum, Product, Integral, Limit, Derivative) for side in (left, right)):
        return None
    try:
        return complex(N(left.xreplace(point))), complex(N(right.xreplace(point)))
    except (TypeError, ValueError, ArithmeticError, AttributeError):  # an unevaluated limit, or an undefined function
        return None


def _rounded(matrix: MatrixBase) -> MatrixBase:
    return matrix.applyfunc(lambda entry: round(entry, 3) if entry.is_number else entry)
