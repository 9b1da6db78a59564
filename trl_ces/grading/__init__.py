r"""
Is this answer right? [`grade_many`] compares final answers with golds, in bounded time and memory.

How an answer travels, and the file to open for a bug on its way:

1. `grader.py` cuts off the thinking, decides what it can in this process and sends the rest to a worker.
2. `answers.py` extracts the final answer: a box, an explicit statement, a closing expression. `context.py` decides
   whether the text around it lets it stand.
3. `notation.py` tidies it, which means one spelling for all synonyms: `\dfrac12`, `½`. `forms.py` does the same for
   what means the same by convention: the reals, "no solution", bases, words, choices.
4. `equality.py` applies the rules in order: choices, lists, intervals, words. `numbers.py` reads literals, `units.py`
   what stands behind them, `statements.py` what `x = 2` and inequalities say.
5. `symbolic.py` decides the remaining pairs by computer algebra, in a worker: expressions, equations, sets, matrices.

`golds.py` decides whether a gold can be graded against at all. `pool.py` is the trainer's side of the workers,
`worker.py` their process, `verdicts.py` what they answer. `qwen/` is the second verdict, that of the Qwen2.5-Math
evaluation script. docs/evaluation.md states the rules of both.

Only workers load the computer algebra. The other files run on text a policy wrote, inside the trainer: every search is
linear in its length or bounded by `support/limits.py`.
"""

from .grader import Grade, grade, grade_many, usable_golds
from .pool import WorkerPool

__all__ = ["Grade", "WorkerPool", "grade", "grade_many", "usable_golds"]
