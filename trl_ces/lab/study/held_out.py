"""Measure a model on problems that a recipe holds out; an `evaluation` function for studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from ...support.errors import UserError
from ...train.data import load_datasets
from ...train.recipe import Recipe
from ..inspect.settings import Prompts, Sampling, recipe_to_sample

if TYPE_CHECKING:
    from datasets import Dataset


def evaluate(
    model_dir: str | Path,
    config: str | list[str],
    num_problems: int = 100,
    num_samples: int = 4,
    seed: int = 0,
    max_new_tokens: int | None = None,
    batch_size: int = 32,
    group_by: str | None = None,
    data: str | None = None,
    dtype: str | None = None,
) -> dict[str, dict[str, float]]:
    """Sample completions of held-out problems at the recipe's temperature, and grade them with the recipe's reward.

    `config` defaults to the recipe of the measured run. Training with this recipe never uses the held-out problems. If
    `config` names a different recipe, the runs must use the same data and `dataset_seed` as that recipe. If `data` is
    set to a file or a Hub dataset, its problems are used instead. `group_by` is a column of the data; each value of
    the column becomes a benchmark. `dtype`, such as `bfloat16`, replaces the recipe's dtype.
    """
    from ..inspect.sampling import sample_recipe

    recipe = recipe_to_sample(config, _overrides(dtype), model=str(model_dir), data=data)
    problems, groups = _problems_and_groups(recipe, num_problems, group_by, data)
    columns = {name: list(problems[name]) for name in problems.column_names if name != "prompt"}
    sampling = Sampling.from_recipe(
        recipe, num_samples=num_samples, seed=seed, max_new_tokens=max_new_tokens, batch_size=batch_size
    )
    sample = sample_recipe(recipe, Prompts(list(problems["prompt"]), columns), sampling)
    if sample.correct is None:
        raise UserError(f"`evaluation` cannot grade the completions of the recipe {config}: {sample.reason}")
    limit = sampling.max_new_tokens
    graded = list(zip(sample.completions, sample.correct, strict=True))
    benchmarks = {}
    for group in sorted(set(groups)):
        members = [(completion, correct) for completion, correct in graded if groups[completion.prompt] == group]
        benchmarks[group] = {
            "accuracy": fmean(correct is True for _, correct in members),
            "length_tokens": fmean(len(completion.tokens) for completion, _ in members),
            "area": fmean((correct is True) * (1 - len(completion.tokens) / limit) for completion, correct in members),
            "entropy_bits": fmean(bits for completion, _ in members for bits in completion.entropies),
        }
    return benchmarks


def check_evaluate(
    config: str | list[str],
    num_problems: int = 100,
    group_by: str | None = None,
    data: str | None = None,
    dtype: str | None = None,
    **settings: object,
) -> None:
    """Raise `UserError` for settings that [`evaluate`] rejects; `trl-ces study` calls this before the first run."""
    _problems_and_groups(recipe_to_sample(config, _overrides(dtype), data=data), num_problems, group_by, data)


def _overrides(dtype: str | None) -> dict[str, list[str]]:
    """Return the recipe keys that set `dtype`."""
    return {} if dtype is None else {"dtype": [dtype]}


def _problems_and_groups(
    recipe: Recipe, num_problems: int, group_by: str | None, data: str | None
) -> tuple[Dataset, Sequence[str]]:
    """Return the held-out problems and the benchmark name of each problem."""
    script = recipe.script
    if script.dataset_builder is not None:
        script = replace(script, num_eval_samples=num_problems)
    if data is not None:
        # `trl-ces eval --data` reads the same split.
        script = replace(script, dataset_split="test", max_train_samples=num_problems)
        script = replace(script, num_eval_samples=None, eval_dataset_name=None)
    all_problems, held_out = load_datasets(script)
    problems = held_out if data is None else all_problems
    if problems is None:
        raise UserError(
            f"`evaluation`: the recipe trains on all of {script.dataset_name}: hold out problems with "
            "`num_eval_samples`, or set `data`."
        )
    if len(problems) < num_problems:
        raise UserError(f"`evaluation`: `num_problems` is {num_problems}, but only {len(problems)} problems exist.")
    problems = problems.select(range(num_problems))
    if group_by is None:
        return problems, ["held out"] * len(problems)
    if group_by not in problems.column_names:
        columns = ", ".join(name for name in problems.column_names if name != "prompt")
        raise UserError(f"`evaluation`: `group_by` is {group_by!r}, but the dataset has the columns {columns}.")
    return problems, [str(value) for value in problems[group_by]]
