"""Grading that begins before anybody waits for it."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from .grader import grade_many

Verdicts = list[bool | None]


class EarlyGrading:
    """
    Verdicts of [`grade_many`] on one batch of completions, worked out in a thread beside what the caller does.

    The thread itself does little: comparisons run in the worker processes.
    """

    def __init__(self) -> None:
        self._running: tuple[tuple, Future[Verdicts]] | None = None

    def start(self, texts: Sequence[str], golds: Sequence[str], prefilled: Sequence[bool]) -> None:
        """Begins; what was started before and not asked for is forgotten."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="trl_ces_early")
        self._running = _question(texts, golds, prefilled), thread.submit(_verdicts, texts, golds, prefilled)
        thread.shutdown(wait=False)

    def verdicts(self, texts: Sequence[str], golds: Sequence[str], prefilled: Sequence[bool]) -> Verdicts:
        """
        Whether each text is its gold, `None` where that cannot be said.

        Those that were started, where the question is the same; else worked out now. Raises what grading raised.
        """
        running, self._running = self._running, None
        if running is not None and running[0] == _question(texts, golds, prefilled):
            return running[1].result()
        return _verdicts(texts, golds, prefilled)


def _question(texts: Sequence[str], golds: Sequence[str], prefilled: Sequence[bool]) -> tuple:
    return os.getpid(), list(texts), list(golds), list(prefilled)  # a forked process has no thread that would answer


def _verdicts(texts: Sequence[str], golds: Sequence[str], prefilled: Sequence[bool]) -> Verdicts:
    grades = grade_many(texts, golds, thinking_prefilled=prefilled, with_qwen=False)
    return [grade.correct for grade in grades]
