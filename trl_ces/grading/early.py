"""Starts grading before anyone waits for the verdicts."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from .grader import grade_many

Verdicts = list[bool | None]


class EarlyGrading:
    """
    Grades one batch in a background thread. The thread does little itself: comparisons run in the worker processes.

    `texts`, `golds` and `prefilled` are the first arguments and `thinking_prefilled` of [`grade_many`].
    """

    def __init__(self) -> None:
        self._running: tuple[tuple, Future[Verdicts]] | None = None

    def start(self, texts: Sequence[str], golds: Sequence[str], prefilled: Sequence[bool]) -> None:
        """Starts grading a batch. Drops an earlier batch whose verdicts were never asked for."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="trl_ces_early")
        self._running = _question(texts, golds, prefilled), thread.submit(_verdicts, texts, golds, prefilled)
        thread.shutdown(wait=False)

    def verdicts(self, texts: Sequence[str], golds: Sequence[str], prefilled: Sequence[bool]) -> Verdicts:
        """
        Whether each text answers its gold; `None` if it cannot be graded.

        Waits for the batch that was started if it is the same one, else grades now. Raises what grading raised.
        """
        running, self._running = self._running, None
        if running is not None and running[0] == _question(texts, golds, prefilled):
            return running[1].result()
        return _verdicts(texts, golds, prefilled)


def _question(texts: Sequence[str], golds: Sequence[str], prefilled: Sequence[bool]) -> tuple:
    return os.getpid(), list(texts), list(golds), list(prefilled)  # a forked process does not have the thread


def _verdicts(texts: Sequence[str], golds: Sequence[str], prefilled: Sequence[bool]) -> Verdicts:
    grades = grade_many(texts, golds, thinking_prefilled=prefilled, with_qwen=False)
    return [grade.correct for grade in grades]
