"""Judges whole responses: cuts off the thinking, extracts the answer, compares it with the gold in bounded time."""

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
from .asked import as_asked
from .copies import is_copy
from .equality import count_values, equal
from .forms import same_text
from .golds import usable
from .options import with_letters
from .phrases import without_asked_words
from .pool import DEFAULT_LIMIT_S, WorkerPool, shared_pool

logger = logging.getLogger(__name__)

# Pairs up to this length are compared in this process if they need no algebra; longer ones always in a worker.
_QUICK_LENGTH = 300
_usable_golds: dict[str | None, bool] = {}
# (the rule, gold, answer)
Pair = tuple[str, str, str]
# What decides pairs that need no algebra, by rule; grader.py adds the script's.
RULES: dict[str, Callable[[str, str, Algebra], bool]] = {"equal": equal}
# With `first_limit_s`, one comparison for so many answers gets the full limit, too, and at least _FULL_LIMITS.
_ANSWERS_PER_FULL_LIMIT = 300
_FULL_LIMITS = 3
# By a pair's digest: a worker's reply, and up to which limit it holds. Nothing is computed twice, and a comparison
# near the limit does not fall on either side of it in turn.
_known: dict[bytes, tuple[float, dict]] = {}
_REMEMBERED = 50_000


@dataclass(frozen=True)
class Grade:
    """
    The verdict on one response, and its final answer as written.

    `correct` is `None` if the gold is unusable, the worker died twice, or the batch has no time left for an answer
    that exceeded `first_limit_s`. `correct_qwen`, the verdict of the Qwen2.5-Math evaluation script, is for comparison
    with published numbers (docs/evaluation.md); it is `None` only if it was not requested.
    """

    correct: bool | None
    answer: str | None
    correct_qwen: bool | None = None


class _NeedsAlgebra(Exception):
    """The pair needs computer algebra: a worker must compare it."""


def judge(
    responses: Sequence[str],
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
    Whether responses are correct.

    `responses` are completions, thinking included; an answer inside unclosed thinking does not count.
    `thinking_prefilled` says whether the prompt already opened `<think>`, for all or for each. `questions` say what
    counts as the answer (asked.py), and a copy of their formulas is none (copies.py). With `boxes_only` an answer
    needs a box.

    `limit_s` is the processor time of one comparison; an answer that exceeds it is wrong. `first_limit_s` bounds the
    batch, for rewards: every comparison first gets this much, and of those that exceed it, one for every 300 answers,
    at least 3, gets `limit_s`, chosen by their texts, not by their places. The others have no verdict. So a
    hostile neighbour cannot make a right answer wrong.

    `second` makes the pairs of another verdict, which are compared in the same round; see [`grade_many`](grader.py).

    Raises `ValueError` where the sequences differ in length, `TypeError` for a gold that is not a string.
    """
    prefilled = [thinking_prefilled] * len(responses) if isinstance(thinking_prefilled, bool) else thinking_prefilled
    check_lengths(responses, {"golds": golds, "questions": questions, "thinking_prefilled": prefilled})
    are_usable = usable_golds(golds, limit_s=limit_s, pool=pool)
    answers: list[str | None] = []
    asked = questions or [""] * len(responses)
    lettered = [with_letters(*row) for row in zip(asked, responses, [gold or "" for gold in golds], strict=True)]
    for (question, response, gold), is_prefilled in zip(lettered, prefilled, strict=True):
        text = after_thinking(response, is_prefilled)
        if text is not None:
            text = extract_answer(without_asked_words(text, question), count_values(gold), boxes_only, question)
        answers.append(text)
    judged: list[Pair | None] = [
        ("equal", *as_asked(answer, gold, question))
        if gold_is_usable and answer is not None and not is_copy(answer, gold, question)
        else None
        for (question, _, gold), answer, gold_is_usable in zip(lettered, answers, are_usable, strict=True)
    ]
    scripts = [None] * len(responses) if second is None else second()
    verdicts = _compare([pair for pair in (*judged, *scripts) if pair], limit_s, pool, first_limit_s)
    return [
        Grade(
            correct=(pair is not None and verdicts[pair]) if gold_is_usable else None,
            answer=answer,
            correct_qwen=None if second is None else script is not None and bool(verdicts[script]),
        )
        for pair, answer, gold_is_usable, script in zip(judged, answers, are_usable, scripts, strict=True)
    ]


def check_lengths(responses: Sequence[str], columns: Mapping[str, Sequence[Any] | None]) -> None:
    """Raises `ValueError` for a column that has not one entry for each response."""
    for name, values in columns.items():
        if values is not None and len(values) != len(responses):
            raise ValueError(f"{name} has {len(values)} entries for {len(responses)} answers: pass one for each.")


def usable_golds(
    golds: Sequence[str | None], *, limit_s: float = DEFAULT_LIMIT_S, pool: WorkerPool | None = None
) -> list[bool]:
    """
    Decides for each gold whether answers can be graded against it, and remembers it for the life of the process.

    `False` for a gold that is missing, empty, malformed, too long, or that the algebra cannot parse within `limit_s`.
    `TypeError` for one that is neither a string nor `None`.
    """
    for index, gold in enumerate(golds):
        if gold is not None and not isinstance(gold, str):
            raise TypeError(f"gold {index} is {gold!r}, of type {type(gold).__name__}: pass a string.")
    asked: list[str] = []
    for gold in dict.fromkeys(gold for gold in golds if gold is not None and gold not in _usable_golds):
        try:
            _usable_golds[gold] = usable(gold, _algebra_in_worker)
        except _NeedsAlgebra:
            asked.append(gold)
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
                f"{len(slow)} comparisons exceeded {first_limit_s:g} s of processor time. {len(admitted)} of them got "
                f"{limit_s:g} s, the others stay ungraded, for example that of the answer {left[0][2]!r:.200}."
            )
    return verdicts


def _replies(pairs: list[Pair], limit_s: float, pool: WorkerPool | None) -> dict[Pair, dict]:
    """Replies of the workers to what is not known yet."""
    known = {pair: _known[digest] for pair in pairs if (digest := _digest(pair)) in _known}
    replies = {pair: reply for pair, (holds_s, reply) in known.items() if holds_s >= limit_s}
    sent = [pair for pair in pairs if pair not in replies]
    if sent:
        messages = [{"op": op, "gold": gold, "answer": answer} for op, gold, answer in sent]
        replies |= zip(sent, (pool or shared_pool()).map(messages, limit_s), strict=True)
    if len(_known) > _REMEMBERED:
        _known.clear()  # an order of eviction would need a lock
    holds = {"timeout": limit_s, "ok": math.inf}
    for pair in sent:
        if (status := replies[pair]["status"]) in holds:
            _known[_digest(pair)] = holds[status], replies[pair]
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


def _verdict(pair: Pair, reply: dict) -> bool | None:
    if reply["status"] == "died":
        _, gold, answer = pair
        said = f"A grading worker died twice on the answer {answer!r:.200} to {gold!r:.200}, which stays ungraded."
        logger.warning("%s %s", said, reply.get("error", ""))
        return None
    if reply["status"] == "error" and reply["error"].startswith("ImportError"):
        raise RuntimeError(
            f"`correct_qwen` does not work with the installed sympy ({reply['error']}): install the version in "
            "constraints.txt, or pass `with_qwen=False`."
        )
    return reply["status"] == "ok" and reply["verdict"]
