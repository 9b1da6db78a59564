"""Grades whole responses: cuts off the thinking, extracts the answer, compares it with the gold in bounded time."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ..support.limits import too_big
from ..support.prompts import after_thinking
from .answers import extract_answer
from .asked import as_asked
from .copies import is_copy
from .equality import count_values, equal
from .forms import same_text
from .golds import usable_without_algebra
from .pool import DEFAULT_LIMIT_S, WorkerPool, shared_pool
from .qwen.equality import equal_as_script, parser_problem
from .qwen.extract import predict, prepare_gold

logger = logging.getLogger(__name__)

# Pairs up to this length are compared in this process if they need no algebra; longer ones always in a worker.
_QUICK_LENGTH = 300
_usable_golds: dict[str | None, bool] = {}
# ("equal" or "equal_as_script", gold, answer)
Pair = tuple[str, str, str]
# With `first_limit_s`, one comparison for so many answers gets the full limit, too, and at least _FULL_LIMITS.
_ANSWERS_PER_FULL_LIMIT = 300
_FULL_LIMITS = 3
# By a pair's digest: the seconds of processor time that it exceeded, and its verdict. Nothing is computed twice, and a
# comparison near the limit does not fall on either side of it in turn.
_exceeded: dict[bytes, float] = {}
_decided: dict[bytes, dict] = {}
_REMEMBERED = 50_000


@dataclass(frozen=True)
class Grade:
    """
    The verdict on one response.

    Attributes:
        correct (`bool` or `None`):
            Whether the final answer is mathematically equal to the gold. `None` if the gold is unusable, the worker
            died twice, or the batch has no time left for an answer that exceeded `first_limit_s`.
        answer (`str` or `None`):
            The final answer as written; `None` if there is none.
        correct_qwen (`bool` or `None`):
            Verdict of the Qwen2.5-Math evaluation script, for comparison with published numbers (docs/evaluation.md).
            `None` only if it was not requested.
    """

    correct: bool | None
    answer: str | None
    correct_qwen: bool | None = None


class _NeedsAlgebra(Exception):
    """The pair needs computer algebra: a worker must compare it."""


def grade(
    response: str,
    gold: str,
    benchmark: str | None = None,
    *,
    question: str | None = None,
    thinking_prefilled: bool = False,
    with_qwen: bool = True,
    boxes_only: bool = False,
    limit_s: float = DEFAULT_LIMIT_S,
    pool: WorkerPool | None = None,
) -> Grade:
    """Grades one response. See [`grade_many`], which is faster for several."""
    benchmarks = None if benchmark is None else [benchmark]
    [graded] = grade_many(
        [response],
        [gold],
        benchmarks,
        questions=None if question is None else [question],
        thinking_prefilled=thinking_prefilled,
        with_qwen=with_qwen,
        boxes_only=boxes_only,
        limit_s=limit_s,
        pool=pool,
    )
    return graded


def grade_many(
    responses: Sequence[str],
    golds: Sequence[str],
    benchmarks: Sequence[str] | None = None,
    *,
    questions: Sequence[str] | None = None,
    thinking_prefilled: bool | Sequence[bool] = False,
    with_qwen: bool = True,
    boxes_only: bool = False,
    limit_s: float = DEFAULT_LIMIT_S,
    first_limit_s: float | None = None,
    pool: WorkerPool | None = None,
) -> list[Grade]:
    r"""
    Grades responses against their golds.

    Args:
        responses (`Sequence[str]`):
            Completions, thinking included.
        golds (`Sequence[str]`):
            Reference answers, LaTeX or plain text, one per response.
        benchmarks (`Sequence[str]`, *optional*):
            Benchmark names, one per response, for the rules of `correct_qwen` that depend on the benchmark. Unknown
            names get the default rules. `correct` does not depend on them.
        questions (`Sequence[str]`, *optional*):
            The questions, one per response. They say what `correct` takes for the answer (asked.py), and a copy of
            their formulas is none (copies.py).
        thinking_prefilled (`bool` or `Sequence[bool]`, *optional*, defaults to `False`):
            Whether the prompt already opened `<think>`, for all responses or one value per response.
        with_qwen (`bool`, *optional*, defaults to `True`):
            Whether to compute `correct_qwen`. Rewards need only `correct`, at half the cost.
        boxes_only (`bool`, *optional*, defaults to `False`):
            Whether an answer without a box is none.
        limit_s (`float`, *optional*, defaults to 3 seconds):
            Processor time of one comparison. An answer that exceeds it is wrong.
        first_limit_s (`float`, *optional*):
            Bounds the batch, for rewards: every comparison first gets this much processor time, and of those that
            exceed it, one for every 300 answers, at least 3, gets `limit_s`. Which ones depends on their texts,
            not on their places. The others have no verdict. So a hostile neighbour cannot make a right answer wrong.
        pool ([`WorkerPool`], *optional*):
            Workers to use. Defaults to the shared pool of this process.

    Returns:
        `list[Grade]`: In the order of the responses. An answer inside unclosed thinking does not count, and one that
        the algebra cannot parse is wrong.

    Raises:
        `ValueError`: The sequences differ in length.
        `TypeError`: A gold is not a string.
        `RuntimeError`: `with_qwen` is set and sympy's LaTeX parser cannot run with the installed antlr and sympy.
    """
    if with_qwen and (problem := parser_problem()):
        raise RuntimeError(problem)
    prefilled = [thinking_prefilled] * len(responses) if isinstance(thinking_prefilled, bool) else thinking_prefilled
    columns = {"golds": golds, "benchmarks": benchmarks, "questions": questions, "thinking_prefilled": prefilled}
    for name, values in columns.items():
        if values is not None and len(values) != len(responses):
            raise ValueError(f"{name} has {len(values)} entries for {len(responses)} responses: pass one for each.")
    usable = usable_golds(golds, limit_s=limit_s, pool=pool)
    answers: list[str | None] = []
    for response, gold, is_prefilled in zip(responses, golds, prefilled, strict=True):
        text = after_thinking(response, is_prefilled)
        answers.append(None if text is None else extract_answer(text, count_values(gold or ""), boxes_only))
    asked = questions or [""] * len(responses)
    judged: list[Pair | None] = [
        ("equal", *as_asked(answer, gold, question))
        if gold_is_usable and answer is not None and not is_copy(answer, gold, question)
        else None
        for gold, answer, gold_is_usable, question in zip(golds, answers, usable, asked, strict=True)
    ]
    scripts: list[Pair | None] = [None] * len(responses)
    if with_qwen:
        names = [None] * len(responses) if benchmarks is None else benchmarks
        scripts = [_script_pair(*row) for row in zip(responses, golds, names, strict=True)]
    verdicts = _compare([pair for pair in judged + scripts if pair], limit_s, pool, first_limit_s)
    return [
        Grade(
            correct=(pair is not None and verdicts[pair]) if gold_is_usable else None,
            answer=answer,
            correct_qwen=(script is not None and bool(verdicts[script])) if with_qwen else None,
        )
        for pair, answer, gold_is_usable, script in zip(judged, answers, usable, scripts, strict=True)
    ]


def _script_pair(response: str, gold: str, benchmark: str | None) -> Pair | None:
    prepared = prepare_gold(gold, benchmark)
    prediction = predict(response, prepared, benchmark)
    return None if prediction is None else ("equal_as_script", prepared, prediction)


def is_usable_gold(gold: str | None, *, limit_s: float = DEFAULT_LIMIT_S, pool: WorkerPool | None = None) -> bool:
    """Whether answers can be graded against one gold. See [`usable_golds`]."""
    [usable] = usable_golds([gold], limit_s=limit_s, pool=pool)
    return usable


def usable_golds(
    golds: Sequence[str | None], *, limit_s: float = DEFAULT_LIMIT_S, pool: WorkerPool | None = None
) -> list[bool]:
    """
    Decides for each gold whether answers can be graded against it. Results are cached for the life of the process.

    Args:
        golds (`Sequence[str | None]`):
            Reference answers, LaTeX or plain text.
        limit_s (`float`, *optional*, defaults to 3 seconds):
            Time limit for parsing one gold. A gold that takes longer is unusable.
        pool ([`WorkerPool`], *optional*):
            Workers to use. Defaults to the shared pool of this process.

    Returns:
        `list[bool]`: `False` for a gold that is missing, empty, malformed, too long, or that the algebra cannot parse.

    Raises:
        `TypeError`: A gold is neither a string nor `None`.
    """
    for index, gold in enumerate(golds):
        if gold is not None and not isinstance(gold, str):
            raise TypeError(f"gold {index} is {gold!r}, of type {type(gold).__name__}: pass a string.")
    asked: list[str] = []
    for gold in dict.fromkeys(gold for gold in golds if gold is not None and gold not in _usable_golds):
        verdict = usable_without_algebra(gold)
        if verdict is None:
            asked.append(gold)
        else:
            _usable_golds[gold] = verdict
    if asked:
        replies = (pool or shared_pool()).map([{"op": "usable", "gold": gold} for gold in asked], limit_s)
        for gold, reply in zip(asked, replies, strict=True):
            if reply["status"] == "died":  # perhaps the machine's fault: not cached, asked again next time
                logger.warning("A grading worker died twice on the gold %.200r. %s", gold, reply.get("error", ""))
            else:
                _usable_golds[gold] = reply["status"] == "ok" and reply["verdict"]
    return [_usable_golds.get(gold, False) for gold in golds]


def _compare(
    pairs: list[Pair], limit_s: float, pool: WorkerPool | None, first_limit_s: float | None = None
) -> dict[Pair, bool | None]:
    verdicts: dict[Pair, bool | None] = {}
    asked: list[Pair] = []
    for pair in dict.fromkeys(pairs):
        try:
            verdicts[pair] = _compare_quickly(pair)
        except _NeedsAlgebra:
            asked.append(pair)
    replies = _replies(asked, limit_s if first_limit_s is None else first_limit_s, pool)
    verdicts |= {pair: _verdict(pair, reply) for pair, reply in replies.items()}
    if first_limit_s is not None:
        slow = sorted((pair for pair, reply in replies.items() if reply["status"] == "timeout"), key=_digest)
        admitted = slow[: max(_FULL_LIMITS, len(pairs) // _ANSWERS_PER_FULL_LIMIT)]
        verdicts |= {pair: _verdict(pair, reply) for pair, reply in _replies(admitted, limit_s, pool).items()}
        if left := slow[len(admitted) :]:
            verdicts |= dict.fromkeys(left)
            logger.warning(
                "%d comparisons exceeded %g s of processor time. %d of them got %g s, the others stay ungraded, for "
                "example that of the answer %.200r.",
                len(slow),
                first_limit_s,
                len(admitted),
                limit_s,
                left[0][2],
            )
    return verdicts


def _replies(pairs: list[Pair], limit_s: float, pool: WorkerPool | None) -> dict[Pair, dict]:
    """Replies of the workers to what is not known yet."""
    replies: dict[Pair, dict] = {}
    for pair in pairs:
        if _exceeded.get(digest := _digest(pair), 0.0) >= limit_s:
            replies[pair] = {"status": "timeout"}
        elif digest in _decided:
            replies[pair] = _decided[digest]
    sent = [pair for pair in pairs if pair not in replies]
    messages = [{"op": op, "gold": gold, "answer": answer} for op, gold, answer in sent]
    if messages:
        replies |= zip(sent, (pool or shared_pool()).map(messages, limit_s), strict=True)
    for known in (_exceeded, _decided):
        if len(known) > _REMEMBERED:
            known.clear()  # an order of eviction would need a lock
    for pair in sent:
        if replies[pair]["status"] == "timeout":
            _exceeded[_digest(pair)] = limit_s
        elif replies[pair]["status"] == "ok":
            _decided[_digest(pair)] = replies[pair]
    return replies


def _digest(pair: Pair) -> bytes:
    return hashlib.blake2b(json.dumps(pair).encode(), digest_size=16).digest()


def _compare_quickly(pair: Pair) -> bool:
    op, gold, answer = pair
    if too_big(gold) or too_big(answer):
        return same_text(gold, answer)
    if len(gold) > _QUICK_LENGTH or len(answer) > _QUICK_LENGTH:
        raise _NeedsAlgebra
    return (equal if op == "equal" else equal_as_script)(gold, answer, _algebra_in_worker)


def _algebra_in_worker(gold: str, answer: str) -> bool:
    raise _NeedsAlgebra


def _verdict(pair: Pair, reply: dict) -> bool | None:
    if reply["status"] == "died":
        _, gold, answer = pair
        logger.warning(
            "A grading worker died twice on the answer %.200r to %.200r, which stays ungraded. %s",
            answer,
            gold,
            reply.get("error", ""),
        )
        return None
    if reply["status"] == "error" and reply["error"].startswith("ImportError"):
        raise RuntimeError(
            f"`correct_qwen` does not work with the installed sympy ({reply['error']}): install the version in "
            "constraints.txt, or pass `with_qwen=False`."
        )
    return reply["status"] == "ok" and reply["verdict"]
