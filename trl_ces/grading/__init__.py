r"""
Grade final answers against reference answers ("golds") in bounded time and memory: see [`grade_many`].

The steps of grading and the modules that implement them:

1. `judge.py` removes the thinking, decides simple cases in this process and sends the remaining cases to a worker
   (`pool.py`, `worker.py`).
2. `answers.py` extracts the final answer. `context.py` checks whether the surrounding text retracts it. `copies.py`
   checks whether it only repeats the question. `asked.py`, `options.py`, `phrases.py` and `order.py` interpret it with
   the help of the question.
3. `notation.py` rewrites LaTeX synonyms to one notation, and `forms.py` rewrites equivalent answers to one form.
4. `equality.py` applies the rules in order, with `numbers.py`, `units.py` and `statements.py`. A worker decides the
   remaining cases by computer algebra (`symbolic.py`).

`golds.py` checks whether a gold is usable. `qwen/` computes `correct_qwen` for `grader.py`; training does not load it.
docs/grading.md describes the rules of `correct`, and docs/evaluation.md describes those of `correct_qwen`.
Only workers load the algebra. The other modules process model output inside the trainer, so each of their searches is
linear in the text's length or bounded by `support/limits.py`.
"""

from typing import Any

__all__ = ["Grade", "WorkerPool", "grade", "grade_many", "usable_golds"]
_MODULES = {"Grade": "judge", "WorkerPool": "pool", "grade": "grader", "grade_many": "grader", "usable_golds": "judge"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
