"""Problems with exact answers, generated offline by `reasoning-gym` (PyPI, Apache-2.0)."""

import re
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError, nearest
from ...support.imports import install_line
from ...support.prompts import build_prompt

if TYPE_CHECKING:
    from datasets import Dataset

# Problems drawn per problem wanted before a task counts as too small: it may repeat some.
TRIES_FOR_EACH = 20


def make_datasets(
    count: int, held_out: int, seed: int, system_prompt: str | None, **tasks: Any
) -> tuple["Dataset", "Dataset | None"]:
    """A recipe's `dataset_builder`: distinct problems of tasks in equal parts; their settings are its kwargs."""
    train = make_problems(tasks, count, seed, system_prompt)
    if not held_out:
        return train, None
    seen = frozenset(prompt[-1]["content"] for prompt in train["prompt"])
    return train, make_problems(tasks, held_out, seed + 1, system_prompt, without=seen)


def make_problems(
    tasks: dict[str, Any], count: int, seed: int, system_prompt: str | None, without: frozenset[str] = frozenset()
) -> "Dataset":
    """Distinct problems, taken from several tasks in turn."""
    from datasets import Dataset

    if not tasks:
        raise UserError("`dataset_kwargs` is empty: name reasoning-gym's tasks, such as `{products: {}}`.")
    shares = {task: count // len(tasks) + (place < count % len(tasks)) for place, task in enumerate(tasks)}
    made = {task: _distinct(task, tasks[task] or {}, share, seed, without) for task, share in shares.items()}
    records = []
    for turn in range(max(shares.values())):
        for task, problems in made.items():
            if turn < len(problems):
                question, answer = problems[turn]
                records.append({"prompt": build_prompt(question, system_prompt), "solution": answer, "task": task})
    return Dataset.from_list(records)


def _distinct(
    task: str, settings: dict[str, Any], count: int, seed: int, without: frozenset[str]
) -> list[tuple[str, str]]:
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise UserError(f"Its tasks need the package reasoning-gym: {install_line('quickstart')}.") from None
    if task not in DATASETS:
        raise UserError(f"`dataset_kwargs`: reasoning-gym has no task {task!r}.{nearest(task, DATASETS)}")
    tries = TRIES_FOR_EACH * count + 100
    try:
        source = reasoning_gym.create_dataset(task, **{**settings, "size": tries, "seed": seed})
    except (TypeError, ValueError, AssertionError) as error:
        raise UserError(f"`dataset_kwargs`: the settings {settings} do not fit {task}: {error}.") from None
    found: dict[str, str] = {}
    for number in range(tries):
        if len(found) == count:
            break
        problem = source[number]
        if problem["question"] not in without:
            found[problem["question"]] = str(problem["answer"])
    if len(found) < count:
        raise UserError(
            f"`dataset_kwargs`: {task} with {settings} gave {len(found)} distinct problems in {tries} tries, of "
            f"{count} wanted: lower `max_train_samples` or `num_eval_samples`, or widen the task's settings."
        )
    return list(found.items())


def last_number_accuracy_reward(
    completions: list[list[dict[str, str]] | str], solution: list[str], **kwargs: Any
) -> list[float]:
    """Rewards a completion whose last integer is the answer: for models too small to follow an answer format."""
    rewards = []
    for completion, answer in zip(completions, solution, strict=True):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        # A minus after a digit subtracts: the last integer of "7-3" is 3.
        numbers = re.findall(r"(?<![\d)])-?\d+|\d+", text)
        # Python reads no number of over 4,300 digits.
        rewards.append(float(bool(numbers) and len(numbers[-1]) < 100 and int(numbers[-1]) == int(answer)))
    return rewards
