r"""
Is this answer right? [`grade_many`] compares final answers with golds, in bounded time and memory.

How an answer travels, and the file to open for a bug on its way:

1. `judge.py` cuts off the thinking, decides what it can in this process and sends the rest to a worker (`pool.py`,
   `worker.py`).
2. `answers.py` extracts the final answer; `context.py` decides whether the text around it lets it stand, `copies.py`
   whether it only repeats the question; `asked.py`, `options.py`, `phrases.py` and `order.py` decide what the question
   lets it mean.
3. `notation.py` has one spelling for all synonyms, `forms.py` one form for what means the same by convention.
4. `equality.py` applies the rules in order, with `numbers.py`, `units.py` and `statements.py`. What is left is decided
   by computer algebra (`symbolic.py`), in a worker.

`golds.py` decides whether a gold can be graded against; `qwen/` computes `correct_qwen`, which `grader.py` adds and no
training loads. docs/grading.md states the rules of `correct`, docs/evaluation.md those of `correct_qwen`. Only
workers load the algebra. The other files run on text a policy wrote, inside the trainer: every search is linear in its
length or bounded by `support/limits.py`.
"""

from typing import Any

__all__ = ["Grade", "WorkerPool", "grade", "grade_many", "usable_golds"]
_HOME = {"Grade": "judge", "WorkerPool": "pool", "grade": "grader", "grade_many": "grader", "usable_golds": "judge"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
