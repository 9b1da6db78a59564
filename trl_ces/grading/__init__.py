r"""
Grade final answers against reference answers ("golds") in bounded time and memory: see [`grade_many`].

The steps of grading and the modules that implement them:

1. `judge.py` removes the thinking, decides simple cases in this process and sends the others to a worker (`pool.py`,
   `worker.py`).
2. `answers.py` extracts the final answer. `context.py` checks whether the surrounding text retracts it, `copies.py`
   whether it only repeats the question. `asked.py`, `options.py`, `phrases.py` and `order.py` interpret it with the
   help of the question.
3. `notation.py` rewrites synonyms to one notation, and `forms.py` rewrites conventions to one form.
4. `equality.py` applies the rules in order, with `numbers.py`, `units.py` and `statements.py`. A worker decides the
   remaining cases by computer algebra (`symbolic.py`).

`golds.py` checks whether a gold can be graded against. `qwen/` computes `correct_qwen`, which `grader.py` adds and
training does not load. docs/grading.md describes the rules of `correct`, docs/evaluation.md those of `correct_qwen`.
Only workers load the algebra. All other modules process model output inside the trainer: every search is linear in the
text's length or bounded by `support/limits.py`.
"""

from typing import Any

__all__ = ["Grade", "WorkerPool", "grade", "grade_many", "usable_golds"]
_MODULES = {"Grade": "judge", "WorkerPool": "pool", "grade": "grader", "grade_many": "grader", "usable_golds": "judge"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
