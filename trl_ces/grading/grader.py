"""Grade completions mathematically and, on request, like the Qwen2.5-Math evaluation script."""

from collections.abc import Sequence
from typing import Any

from .judge import RULES, Grade, Pair, check_lengths, judge
from .qwen.equality import equal_as_script, parser_problem
from .qwen.extract import predict, prepare_gold

RULES["equal_as_script"] = equal_as_script


def grade(
    answer: str, gold: str, question: str | None = None, *, benchmark: str | None = None, **settings: Any
) -> Grade:
    """Grade one completion, with the arguments of [`grade_many`], which is faster for several completions."""
    benchmarks = None if benchmark is None else [benchmark]
    questions = None if question is None else [question]
    return grade_many([answer], [gold], questions, benchmarks=benchmarks, **settings)[0]


def grade_many(
    answers: Sequence[str],
    golds: Sequence[str],
    questions: Sequence[str] | None = None,
    *,
    benchmarks: Sequence[str] | None = None,
    with_qwen: bool = False,
    **settings: Any,
) -> list[Grade]:
    r"""
    Grade completions against their reference answers, in worker processes with limits on time and memory.

    Loads neither torch nor TRL. The first answer that needs computer algebra starts a worker.

    Args:
        answers (`Sequence[str]`):
            Completions, including the thinking.
        golds (`Sequence[str]`):
            Reference answers, in LaTeX or plain text, one per completion.
        questions (`Sequence[str]`, *optional*):
            Questions, one per completion. They determine the expected units, base, order and options, and a formula
            copied from the question is not accepted.
        benchmarks (`Sequence[str]`, *optional*):
            Benchmark names, one per completion, which select the rules of `correct_qwen`. Requires `with_qwen`.
        with_qwen (`bool`, *optional*, defaults to `False`):
            Whether to compute `correct_qwen`, the result of the Qwen2.5-Math evaluation script. Doubles the cost.
        **settings:
            Keyword arguments of [`judge`](judge.py): `limit_s` (CPU seconds per comparison, 3 by default),
            `first_limit_s` (bounds the time of a batch), `thinking_prefilled`, `boxes_only` and `pool`.

    Returns:
        `list[Grade]`: `correct` is `None` if the reference answer cannot be parsed or the comparison did not finish.

    Raises:
        `ValueError`: The sequences differ in length, or `benchmarks` is given without `with_qwen`.
        `TypeError`: A reference answer is neither a string nor `None`.
        `RuntimeError`: `with_qwen` is set, and sympy's LaTeX parser cannot run with the installed antlr and sympy.

    Example:
        ```python
        >>> [grade.correct for grade in grade_many([r"\boxed{\frac{1}{2}}", "The answer is 0.3."], ["1/2", "1/3"])]
        [True, False]
        ```
    """
    if benchmarks is not None and not with_qwen:
        raise ValueError("`benchmarks` only affects `correct_qwen`: set `with_qwen=True`, or leave `benchmarks` out.")
    if with_qwen and (problem := parser_problem()):
        raise RuntimeError(problem)
    check_lengths(answers, {"golds": golds, "benchmarks": benchmarks})
    names = [None] * len(answers) if benchmarks is None else benchmarks

    def script_pairs() -> list[Pair | None]:
        return [_script_pair(*row) for row in zip(answers, golds, names, strict=True)]

    return judge(answers, golds, questions=questions, second=script_pairs if with_qwen else None, **settings)


def _script_pair(completion: str, gold: str, benchmark: str | None) -> Pair | None:
    prepared = prepare_gold(gold, benchmark)
    prediction = predict(completion, prepared, benchmark)
    return None if prediction is None else ("equal_as_script", prepared, prediction)
