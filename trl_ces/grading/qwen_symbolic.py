r"""
The computer algebra of the Qwen2.5-Math evaluation script's verdict: sympy's LaTeX parser, else latex2sympy; then
equality, a numeric tolerance, equations up to sign, rounded matrices. Runs in the grading workers, under their limits.

Not taken over: sympy's `parse_expr`, which evaluates what a model wrote as Python; on the judged answers no verdict
needs it. Sets and intervals, which the script's older latex2sympy cannot read, count as unreadable here too.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from typing import TypeAlias

from antlr4 import CommonTokenStream, InputStream
from antlr4.error.ErrorListener import ErrorListener
from latex2sympy2_extended import latex2sympy
from sympy import Basic, Derivative, Expr, Float, Integral, Limit, MatrixBase, N, Product, Sum, simplify
from sympy.core.relational import Eq
from sympy.parsing.latex._antlr.latexlexer import LaTeXLexer
from sympy.parsing.latex._antlr.latexparser import LaTeXParser
from sympy.parsing.latex._parse_latex_antlr import convert_relation

from .qwen_equality import numbers_close

Parsed: TypeAlias = Basic | MatrixBase | None


class _Lexer(LaTeXLexer):
    def checkVersion(self, toolVersion):
        """Says nothing: antlr 4.11, which wrote the tables, and 4.13, which reads them, have one format."""


class _Parser(LaTeXParser):
    def checkVersion(self, toolVersion):
        """See [`_Lexer`]; sympy's own `parse_latex` refuses every other runtime than 4.11."""


class _Strict(ErrorListener):
    def syntaxError(self, recognizer, offendingSymbol, line, column, msg, e):
        raise ValueError(f"column {column}: {msg}")


def _parse_by_sympy(text: str) -> Parsed:
    """Reads as far as the grammar goes: `2a+b,3` is `2a+b`, which is one of the script's known errors."""
    lexer = _Lexer(InputStream(text.strip()))
    parser = _Parser(CommonTokenStream(lexer))
    for reader in (lexer, parser):
        reader.removeErrorListeners()
        reader.addErrorListener(_Strict())
    return convert_relation(parser.math().relation())


def _parse_by_latex2sympy(text: str) -> Parsed:
    if "," in text and "pmatrix" not in text:  # a tuple, an interval, a set: slow to read, and refused below
        return None
    parsed = latex2sympy(text)
    return parsed if isinstance(parsed, (Expr, MatrixBase, Eq)) else None


@lru_cache(maxsize=4096)
def parse(text: str) -> Parsed:
    """Parses a text as the script does; `None` where neither parser reads it."""
    readings = dict.fromkeys([text.replace("\\\\", "\\"), text])
    parsers: tuple[Callable[[str], Parsed], ...] = (_parse_by_sympy, _parse_by_latex2sympy)
    for parser, reading in product(parsers, readings):
        try:
            parsed = parser(reading)
        except Exception:  # neither parser has one error type: on what they cannot read they raise any built-in one
            continue
        if parsed is not None:
            return parsed
    return None


def same_as_script(gold: str, answer: str) -> bool:
    """
    Decides as the script whether two prepared texts are equal as algebra.

    Args:
        gold (`str`):
            The prepared gold or a part of it.
        answer (`str`):
            The prepared answer or a part of it.

    Returns:
        `bool`: Whether one of the script's comparisons succeeds. A comparison that fails with an error is skipped.
    """
    left, right = parse(gold), parse(answer)
    if left is None or right is None:
        return False
    for comparison in _comparisons(left, right):
        try:
            if comparison():
                return True
        except Exception:  # sympy raises any built-in error on operands that a comparison is not made for
            continue
    return False


def _comparisons(left: Basic | MatrixBase, right: Basic | MatrixBase) -> Iterator[Callable[[], bool]]:
    yield lambda: bool(left == right) or str(left) == str(right)
    if isinstance(left, Expr) and isinstance(right, Expr):
        if not left.free_symbols and not right.free_symbols:
            yield lambda: _numerically_equal(left, right)
            return
        if not _differ_somewhere(left, right):
            yield lambda: bool(left.equals(right)) or simplify(left - right) == 0
    elif isinstance(left, Eq) and isinstance(right, Eq):
        yield lambda: bool(abs(left.lhs - left.rhs).equals(abs(right.lhs - right.rhs)))
    elif isinstance(left, MatrixBase) and isinstance(right, MatrixBase):
        yield lambda: left.shape == right.shape and _rounded(left).equals(_rounded(right))


def _numerically_equal(left: Expr, right: Expr) -> bool:
    # Two constants: the tolerance of 1e-4 is looser than every exact comparison, so it alone decides.
    one, other = complex(N(left)), complex(N(right))
    if one.imag or other.imag:
        return abs(one - other) <= 1e-12 * abs(one)
    return numbers_close(one.real, other.real)


def _differ_somewhere(left: Expr, right: Expr) -> bool:
    """Whether two expressions have clearly different values at one point, so that no simplification can join them."""
    if any(side.has(Sum, Product, Integral, Limit, Derivative) for side in (left, right)):
        return False  # a value of these can take longer than the comparison
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    point = {symbol: Float((3 + 2 * index) / (7 + index)) for index, symbol in enumerate(symbols)}
    try:
        one, other = (complex(N(side.xreplace(point))) for side in (left, right))
    except (TypeError, ValueError, ArithmeticError, AttributeError):  # no number there: a function without a body
        return False
    return abs(one - other) > 1e-6 * max(abs(one), abs(other))


def _rounded(matrix: MatrixBase) -> MatrixBase:
    return matrix.applyfunc(lambda entry: round(entry, 3) if entry.is_number else entry)
