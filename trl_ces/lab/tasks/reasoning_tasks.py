"""Generate problems with exact solutions offline, using `reasoning-gym` (PyPI, Apache-2.0)."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError, nearest
from ...support.imports import install_line
from ...support.prompts import build_prompt

if TYPE_CHECKING:
    from datasets import Dataset


def make_datasets(
    count: int, held_out: int, seed: int, system_prompt: str | None, **tasks: Any
) -> tuple[Dataset, Dataset | None]:
    """Generate distinct problems, split evenly over `tasks` (name -> settings); a `dataset_builder` for recipes."""
    train = _make_problems(tasks, count, seed, system_prompt)
    if not held_out:
        return train, None
    train_questions = frozenset(prompt[-1]["content"] for prompt in train["prompt"])
    return train, _make_problems(tasks, held_out, seed + 1, system_prompt, train_questions)


def _make_problems(
    tasks: dict[str, Any], count: int, seed: int, system_prompt: str | None, excluded: frozenset[str] = frozenset()
) -> Dataset:
    """Generate distinct problems, alternating between the tasks."""
    from datasets import Dataset

    if not tasks:
        raise UserError("`dataset_kwargs` is empty: name reasoning-gym tasks, such as `{products: {}}`.")
    problems_by_task = []
    for index, (task, settings) in enumerate(tasks.items()):
        task_count = count // len(tasks) + (index < count % len(tasks))
        problems = _distinct_problems(task, settings or {}, task_count, seed, excluded)
        problems_by_task.append(
            [
                {"prompt": build_prompt(question, system_prompt), "solution": solution, "task": task}
                for question, solution in problems.items()
            ]
        )
    return Dataset.from_list([row for turn in zip_longest(*problems_by_task) for row in turn if row])


def _distinct_problems(
    task: str, settings: dict[str, Any], count: int, seed: int, excluded: frozenset[str]
) -> dict[str, str]:
    """Generate `count` distinct problems of one task, as a mapping from question to solution."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise UserError(f"The tasks need the `reasoning-gym` package: {install_line('quickstart')}.") from None
    if task not in DATASETS:
        raise UserError(f"`dataset_kwargs`: reasoning-gym has no task {task!r}.{nearest(task, DATASETS)}")
    draws = 20 * count + 100  # more than `count`, because a task may repeat problems
    source = reasoning_gym.create_dataset(task, **{**settings, "size": draws, "seed": seed})
    distinct: dict[str, str] = {}
    for number in range(draws):
        if len(distinct) == count:
            return distinct
        problem = source[number]
        if problem["question"] not in excluded:
            distinct[problem["question"]] = str(problem["answer"])
    raise UserError(
        f"`dataset_kwargs`: {task} with {settings} has {len(distinct)} distinct problems instead of {count}: lower "
        "`max_train_samples` or `num_eval_samples`, or widen the task's settings."
    )


def last_number_accuracy_reward(
    completions: list[list[dict[str, str]] | str], solution: list[str], **kwargs: Any
) -> list[float]:
    """Return 1.0 if the last integer is correct, else 0.0; for models that cannot follow an answer format."""
    rewards = []
    for completion, reference in zip(completions, solution, strict=True):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        # A minus sign after a digit is a subtraction: the last integer of "7-3" is 3.
        numbers = re.findall(r"(?<![\d)])-?\d+|\d+", text)
        # `int` raises an error for more than 4,300 digits.
        rewards.append(float(bool(numbers) and len(numbers[-1]) < 100 and int(numbers[-1]) == int(reference)))
    return rewards
