"""Grades whole responses with both verdicts: the mathematics, and the Qwen2.5-Math evaluation script."""

from collections.abc import Sequence
from typing import Any

from .judge import RULES, Grade, Pair, check_lengths, judge
from .qwen.equality import equal_as_script, parser_problem
from .qwen.extract import predict, prepare_gold

RULES["equal_as_script"] = equal_as_script


def grade(
    response: str, gold: str, benchmark: str | None = None, *, question: str | None = None, **settings: Any
) -> Grade:
    """Grades one response, with the settings of [`grade_many`], which is faster for several."""
    benchmarks = None if benchmark is None else [benchmark]
    questions = None if question is None else [question]
    return grade_many([response], [gold], benchmarks, questions=questions, **settings)[0]


def grade_many(
    responses: Sequence[str],
    golds: Sequence[str],
    benchmarks: Sequence[str] | None = None,
    *,
    with_qwen: bool = True,
    **settings: Any,
) -> list[Grade]:
    """
    Grades responses against their golds, with the settings of [`judge`](judge.py).

    `benchmarks` name the rules of `correct_qwen`, which `with_qwen` asks for; it doubles the cost.

    Raises as `judge`, and `RuntimeError` where `with_qwen` is set and sympy's LaTeX parser cannot run with the
    installed antlr and sympy.
    """
    if with_qwen and (problem := parser_problem()):
        raise RuntimeError(problem)
    check_lengths(responses, {"golds": golds, "benchmarks": benchmarks})
    names = [None] * len(responses) if benchmarks is None else benchmarks

    def scripts() -> list[Pair | None]:
        return [_script_pair(*row) for row in zip(responses, golds, names, strict=True)]

    return judge(responses, golds, second=scripts if with_qwen else None, **settings)


def _script_pair(response: str, gold: str, benchmark: str | None) -> Pair | None:
    prepared = prepare_gold(gold, benchmark)
    prediction = predict(response, prepared, benchmark)
    return None if prediction is None else ("equal_as_script", prepared, prediction)
