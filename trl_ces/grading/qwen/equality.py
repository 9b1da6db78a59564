"""Compare answers like the Qwen2.5-Math evaluation script."""

import math
import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import TypeVar

from ...support.comparison import Algebra
from ...support.limits import MAX_ITEMS, too_big

RELATIVE_TOLERANCE = 1e-4

_T = TypeVar("_T")

_LETTER = re.compile(r"\b[A-E]\b")
_NUMBER = re.compile(r"([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(\\?%)?")
_LISTED = re.compile(r"[(\[].+[)\]]", re.DOTALL)
_MATRIX = re.compile(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", re.DOTALL)
_WITHOUT_BRACKETS = str.maketrans("", "", "(){}")


@cache
def parser_problem() -> str | None:
    """Return why sympy's LaTeX parser cannot run and how to fix it; `None` if it can run."""
    installed = version("antlr4-python3-runtime")
    if (4, 11) <= tuple(int(part) for part in installed.split(".")[:2]) < (5,):
        return None
    return (
        f"`correct_qwen` needs antlr4-python3-runtime 4.11 to 4.13, not {installed}: run `pip install "
        "antlr4-python3-runtime==4.13.2`, or pass `with_qwen=False`."
    )


def equal_as_script(gold: str, answer: str | None, algebra: Algebra) -> bool:
    """Whether the script would accept a prepared answer."""
    if answer is None:
        return False
    if gold.strip().casefold() == answer.strip().casefold():
        return True
    if too_big(gold) or too_big(answer):
        return False
    if _LETTER.findall(answer.upper())[-1:] == [gold]:
        return True
    expected, given = _number(gold), _number(answer)
    if expected is not None and given is not None:
        return any(numbers_close(value, given) for value in (expected, expected / 100, expected * 100))
    if not answer.strip():
        return False
    if gold.translate(_WITHOUT_BRACKETS).casefold() == answer.translate(_WITHOUT_BRACKETS).casefold():
        return True
    return _equal_by_structure(gold, answer, algebra)


def numbers_close(expected: float, given: float) -> bool:
    """Whether two numbers agree within a relative tolerance of 1e-4."""
    return math.isclose(expected, given, rel_tol=RELATIVE_TOLERANCE)


def _number(text: str) -> float | None:
    match = _NUMBER.fullmatch(text.replace(",", "").strip())
    if match is None:
        return None
    value = float(match[1])
    return value / 100 if match[2] else value


def _equal_by_structure(gold: str, answer: str, algebra: Algebra) -> bool:
    listed = _LISTED.fullmatch(gold) and _LISTED.fullmatch(answer)
    if listed and _all_equal(gold[1:-1].split(","), answer[1:-1].split(","), algebra):
        return True
    gold_matrix, answer_matrix = _MATRIX.fullmatch(gold), _MATRIX.fullmatch(answer)
    if gold_matrix and answer_matrix:
        gold_rows, answer_rows = _rows(gold_matrix[1]), _rows(answer_matrix[1])
        if _pairwise(gold_rows, answer_rows, lambda one, other: _all_equal(one, other, algebra)):
            return True
    gold_sides, answer_sides = gold.split("="), answer.split("=")
    if len(gold_sides) == len(answer_sides) == 2:
        one, other = (f"{left.strip()} - ({right.strip()})" for left, right in (gold_sides, answer_sides))
        return algebra(one, other) or algebra(f"-({one})", other)
    if len(answer_sides) == 2 and len(answer_sides[0].strip()) <= 2 and len(gold_sides) == 1:
        return equal_as_script(gold, answer_sides[1], algebra)
    if len(gold_sides) == 2 and len(gold_sides[0].strip()) <= 2 and len(answer_sides) == 1:
        return equal_as_script(gold_sides[1], answer, algebra)
    return algebra(gold, answer)


def _rows(content: str) -> list[list[str]]:
    return [row.split("&") for row in content.split(r"\\") if row.strip()]


def _all_equal(golds: list[str], answers: list[str], algebra: Algebra) -> bool:
    return len(golds) <= MAX_ITEMS and _pairwise(
        golds, answers, lambda gold, answer: equal_as_script(gold, answer, algebra)
    )


def _pairwise(golds: list[_T], answers: list[_T], same: Callable[[_T, _T], bool]) -> bool:
    return len(golds) == len(answers) and all(map(same, golds, answers))
