"""Grade completions: remove the thinking, extract the answer and compare it with the gold in bounded time."""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..support.comparison import Algebra
from ..support.limits import too_big
from ..support.prompts import after_thinking
from .answers import extract_answer
from .asked import apply_question
from .copies import is_copy
from .equality import count_values, equal
from .forms import same_text
from .golds import usable
from .options import with_letters
from .phrases import without_question_words
from .pool import DEFAULT_LIMIT_S, WorkerPool, shared_pool

logger = logging.getLogger(__name__)

# Texts up to this length are compared in this process if they need no algebra. A worker compares longer texts.
_QUICK_LENGTH = 300
_usable_golds: dict[str | None, bool] = {}
Pair = tuple[str, str, str]  # (rule, gold, answer)
# Maps rules to comparison functions; grader.py adds the rule of the Qwen2.5-Math script.
RULES: dict[str, Callable[[str, str, Algebra], bool]] = {"equal": equal}
# With `first_limit_s`, one slow comparison per 300 answers, but at least 3 per batch, get the full limit.
_ANSWERS_PER_FULL_LIMIT = 300
_FULL_LIMITS = 3
# Maps the digest of a pair to a worker's reply and the largest limit for which the reply is valid. The cache saves
# time and makes the results of comparisons near the limit repeatable.
_cached_replies: dict[bytes, tuple[float, dict]] = {}
_CACHE_SIZE = 50_000


@dataclass(frozen=True)
class Grade:
    """
    Correctness of one completion, and its final answer as written, except that a label such as `Answer2` becomes `B`.

    `correct` is `None` if the gold is unusable, the worker died twice, or the batch has no time left for an answer
    that exceeded `first_limit_s`. `correct_qwen`, the result of the Qwen2.5-Math evaluation script, is for comparison
    with published numbers (docs/evaluation.md); it is `None` only if it was not requested.
    """

    correct: bool | None
    answer: str | None
    correct_qwen: bool | None = None


class _NeedsAlgebra(Exception):
    """Raised for a pair that a worker must compare by algebra."""


def judge(
    completions: Sequence[str],
    golds: Sequence[str],
    *,
    questions: Sequence[str] | None = None,
    thinking_prefilled: bool | Sequence[bool] = False,
    boxes_only: bool = False,
    limit_s: float = DEFAULT_LIMIT_S,
    first_limit_s: float | None = None,
    pool: WorkerPool | None = None,
    second: Callable[[], Sequence[Pair | None]] | None = None,
) -> list[Grade]:
    r"""
    Grade completions against golds.

    `completions` include the thinking; an answer inside unclosed thinking does not count.
    `thinking_prefilled` states, for all completions or for each one, whether the prompt already opened `<think>`.
    `questions` define what counts as the answer (asked.py), and copies of their formulas are rejected (copies.py).
    With `boxes_only`, the answer must be boxed.

    `limit_s` is the CPU time per comparison; an answer that exceeds it is incorrect. For rewards, `first_limit_s`
    bounds the time of a batch: every comparison first gets this much time. Of the comparisons that exceed it, one per
    300 answers, but at least 3, get `limit_s`; they are chosen by their text, not by their position. The remaining
    comparisons stay ungraded. Thus a hostile answer cannot make a correct answer incorrect.

    `second` returns pairs for a second rule, which are compared in the same round; see [`grade_many`](grader.py).

    Raises `ValueError` if the sequences differ in length, `TypeError` if a gold is neither a string nor `None`.
    """
    prefilled = [thinking_prefilled] * len(completions) if isinstance(thinking_prefilled, bool) else thinking_prefilled
    check_lengths(completions, {"golds": golds, "questions": questions, "thinking_prefilled": prefilled})
    are_usable = usable_golds(golds, limit_s=limit_s, pool=pool)
    answers: list[str | None] = []
    row_questions = questions or [""] * len(completions)
    rows = [with_letters(*row) for row in zip(row_questions, completions, [gold or "" for gold in golds], strict=True)]
    for (question, completion, gold), is_prefilled in zip(rows, prefilled, strict=True):
        text = after_thinking(completion, is_prefilled)
        if text is not None:
            text = extract_answer(without_question_words(text, question), count_values(gold), boxes_only, question)
        answers.append(text)
    pairs: list[Pair | None] = [
        ("equal", *apply_question(answer, gold, question))
        if gold_is_usable and answer is not None and not is_copy(answer, gold, question)
        else None
        for (question, _, gold), answer, gold_is_usable in zip(rows, answers, are_usable, strict=True)
    ]
    script_pairs = [None] * len(completions) if second is None else second()
    results = _compare([pair for pair in (*pairs, *script_pairs) if pair], limit_s, pool, first_limit_s)
    return [
        Grade(
            correct=(pair is not None and results[pair]) if gold_is_usable else None,
            answer=answer,
            correct_qwen=None if second is None else script is not None and bool(results[script]),
        )
        for pair, answer, gold_is_usable, script in zip(pairs, answers, are_usable, script_pairs, strict=True)
    ]


def check_lengths(answers: Sequence[str], columns: Mapping[str, Sequence[Any] | None]) -> None:
    """Raise `ValueError` for a column that does not have one entry per answer."""
    for name, values in columns.items():
        if values is not None and len(values) != len(answers):
            raise ValueError(f"{name} has {len(values)} entries for {len(answers)} answers: pass one per answer.")


def usable_golds(
    golds: Sequence[str | None], *, limit_s: float = DEFAULT_LIMIT_S, pool: WorkerPool | None = None
) -> list[bool]:
    """
    Return for each gold whether answers can be graded against it. The process caches the results.

    A gold is unusable if it is missing, empty, malformed or too long, or if the algebra cannot parse it within
    `limit_s`. Raises `TypeError` for a gold that is neither a string nor `None`.
    """
    for index, gold in enumerate(golds):
        if gold is not None and not isinstance(gold, str):
            raise TypeError(f"gold {index} is {gold!r}, of type {type(gold).__name__}: pass a string.")
    pending: list[str] = []
    for gold in dict.fromkeys(gold for gold in golds if gold is not None and gold not in _usable_golds):
        try:
            _usable_golds[gold] = usable(gold, _algebra_in_worker)
        except _NeedsAlgebra:
            pending.append(gold)
    if pending:
        replies = (pool or shared_pool()).map([{"op": "usable", "gold": gold} for gold in pending], limit_s)
        for gold, reply in zip(pending, replies, strict=True):
            if reply["status"] == "died":  # the machine may be at fault: do not cache, so that the next call retries
                logger.warning("A grading worker died twice on the gold %.200r. %s", gold, reply.get("error", ""))
            else:
                _usable_golds[gold] = reply["status"] == "ok" and reply["verdict"]
    return [_usable_golds.get(gold, False) for gold in golds]


def _compare(
    pairs: list[Pair], limit_s: float, pool: WorkerPool | None, first_limit_s: float | None = None
) -> dict[Pair, bool | None]:
    results: dict[Pair, bool | None] = {}
    pending: list[Pair] = []
    for pair in dict.fromkeys(pairs):
        try:
            results[pair] = _compare_quickly(pair)
        except _NeedsAlgebra:
            pending.append(pair)
    replies = _replies(pending, limit_s if first_limit_s is None else first_limit_s, pool)
    results |= {pair: _correctness(pair, reply) for pair, reply in replies.items()}
    if first_limit_s is not None:
        slow_pairs = sorted((pair for pair, reply in replies.items() if reply["status"] == "timeout"), key=_digest)
        retried = slow_pairs[: max(_FULL_LIMITS, len(pairs) // _ANSWERS_PER_FULL_LIMIT)]
        results |= {pair: _correctness(pair, reply) for pair, reply in _replies(retried, limit_s, pool).items()}
        if ungraded := slow_pairs[len(retried) :]:
            results |= dict.fromkeys(ungraded)
            logger.warning(
                f"{len(slow_pairs)} comparisons exceeded {first_limit_s:g} s of CPU time. {len(retried)} of them were "
                f"repeated with {limit_s:g} s; the rest stay ungraded, for example the answer {ungraded[0][2]!r:.200}."
            )
    return results


def _replies(pairs: list[Pair], limit_s: float, pool: WorkerPool | None) -> dict[Pair, dict]:
    """Return cached replies, and request the missing replies from workers."""
    cache_hits = {pair: _cached_replies[digest] for pair in pairs if (digest := _digest(pair)) in _cached_replies}
    replies = {pair: reply for pair, (valid_s, reply) in cache_hits.items() if valid_s >= limit_s}
    missing = [pair for pair in pairs if pair not in replies]
    if missing:
        messages = [{"op": op, "gold": gold, "answer": answer} for op, gold, answer in missing]
        replies |= zip(missing, (pool or shared_pool()).map(messages, limit_s), strict=True)
    if len(_cached_replies) > _CACHE_SIZE:
        _cached_replies.clear()  # ordered eviction would need a lock
    valid = {"timeout": limit_s, "ok": math.inf}
    for pair in missing:
        if (status := replies[pair]["status"]) in valid:
            _cached_replies[_digest(pair)] = valid[status], replies[pair]
    return replies


def _digest(pair: Pair) -> bytes:
    return hashlib.blake2b(json.dumps(pair).encode(), digest_size=16).digest()


def _compare_quickly(pair: Pair) -> bool:
    rule, gold, answer = pair
    if too_big(gold) or too_big(answer):
        return same_text(gold, answer)
    if len(gold) > _QUICK_LENGTH or len(answer) > _QUICK_LENGTH:
        raise _NeedsAlgebra
    return RULES[rule](gold, answer, _algebra_in_worker)


def _algebra_in_worker(*texts: str) -> bool:
    raise _NeedsAlgebra


def _correctness(pair: Pair, reply: dict) -> bool | None:
    if reply["status"] == "died":
        _, gold, answer = pair
        warning = (
            f"A grading worker died twice on the answer {answer!r:.200} (gold {gold!r:.200}), which stays ungraded."
        )
        logger.warning("%s %s", warning, reply.get("error", ""))
        return None
    if reply["status"] == "error" and reply["error"].startswith("ImportError"):
        raise RuntimeError(
            f"`correct_qwen` does not work with the installed sympy ({reply['error']}): install the version in "
            "constraints.txt, or pass `with_qwen=False`."
        )
    return reply["status"] == "ok" and reply["verdict"]
