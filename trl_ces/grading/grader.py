"""Grades whole responses with both verdicts: the mathematics, and the Qwen2.5-Math evaluation script."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .judge import Grade, Pair, compare, judge
from .pool import DEFAULT_LIMIT_S, WorkerPool
from .qwen.equality import equal_as_script, parser_problem
from .qwen.extract import predict, prepare_gold


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
    limit_s: float = DEFAULT_LIMIT_S,
    first_limit_s: float | None = None,
    pool: WorkerPool | None = None,
    **settings: Any,
) -> list[Grade]:
    """
    Grades responses against their golds, as [`judge`](judge.py), whose `settings` it takes.

    `benchmarks` name the rules of `correct_qwen`, which `with_qwen` asks for; it doubles the cost.

    Raises as `judge`, and `RuntimeError` where `with_qwen` is set and sympy's LaTeX parser cannot run with the
    installed antlr and sympy.
    """
    if with_qwen and (problem := parser_problem()):
        raise RuntimeError(problem)
    if benchmarks is not None and len(benchmarks) != len(responses):
        raise ValueError(
            f"benchmarks has {len(benchmarks)} entries for {len(responses)} responses: pass one for each."
        )
    limits = {"limit_s": limit_s, "first_limit_s": first_limit_s, "pool": pool}
    grades = judge(responses, golds, **limits, **settings)  # type: ignore[arg-type]
    if not with_qwen:
        return grades
    names = [None] * len(responses) if benchmarks is None else benchmarks
    scripts = [_script_pair(*row) for row in zip(responses, golds, names, strict=True)]
    verdicts = compare([pair for pair in scripts if pair], equal_as_script, **limits)  # type: ignore[arg-type]
    found = [script is not None and bool(verdicts[script]) for script in scripts]
    return [replace(grade, correct_qwen=verdict) for grade, verdict in zip(grades, found, strict=True)]


def _script_pair(response: str, gold: str, benchmark: str | None) -> Pair | None:
    prepared = prepare_gold(gold, benchmark)
    prediction = predict(response, prepared, benchmark)
    return None if prediction is None else ("equal_as_script", prepared, prediction)
