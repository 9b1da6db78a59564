"""Is this answer right? Graded in worker processes that bound time and memory. Public names only."""

from .grader import Grade, grade, grade_many, is_usable_gold, usable_golds
from .pool import WorkerPool

__all__ = ["Grade", "WorkerPool", "grade", "grade_many", "is_usable_gold", "usable_golds"]
