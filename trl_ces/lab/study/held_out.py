"""A study's `evaluation` by a recipe: its held-out problems, its prompts and its accuracy reward."""

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
) -> dict[str, dict[str, float]]:
    """Samples completions for problems that the recipe holds out, at its temperature, and grades them.

    Without `config` in the study it is each run's own recipe. No training of a recipe sees its held-out problems; with
    `config`, runs must keep that recipe's data and `dataset_seed`. `data` names other problems: a file or a Hub id.
    """
    from ..inspect.sampling import sample_recipe

    recipe = recipe_to_sample(config, {}, model=str(model_dir), data=data)
    problems, kinds = _problems_and_kinds(recipe, num_problems, group_by, data)
    columns = {name: list(problems[name]) for name in problems.column_names if name != "prompt"}
    asked = Prompts(list(problems["prompt"]), columns)
    sampling = Sampling.of_recipe(
        recipe, num_samples=num_samples, seed=seed, max_new_tokens=max_new_tokens, batch_size=batch_size
    )
    sample = sample_recipe(recipe, asked, sampling)
    if sample.correct is None:
        raise UserError(f"`evaluation`: the recipe {config} gives no verdicts: {sample.reason}")
    longest = sampling.max_new_tokens
    answers = list(zip(sample.completions, sample.correct, strict=True))
    found = {}
    for kind in sorted(set(kinds)):
        own = [(answer, verdict) for answer, verdict in answers if kinds[answer.prompt] == kind]
        found[kind] = {
            "accuracy": fmean(verdict is True for _, verdict in own),
            "length_tokens": fmean(len(answer.tokens) for answer, _ in own),
            "area": fmean((verdict is True) * (1 - len(answer.tokens) / longest) for answer, verdict in own),
            "entropy_bits": fmean(bits for answer, _ in own for bits in answer.entropies),
        }
    return found


def check_evaluate(
    config: str | list[str],
    num_problems: int = 100,
    group_by: str | None = None,
    data: str | None = None,
    **settings: object,
) -> None:
    """Refuses what [`evaluate`] would refuse for any model: `trl-ces study` calls it before its first run."""
    _problems_and_kinds(recipe_to_sample(config, {}, data=data), num_problems, group_by, data)


def _problems_and_kinds(
    recipe: Recipe, num_problems: int, group_by: str | None, data: str | None
) -> tuple[Dataset, Sequence[str]]:
    """Held-out problems, and the benchmark that each belongs to."""
    script = recipe.script
    if script.dataset_builder is not None:
        script = replace(script, num_eval_samples=num_problems)
    if data is not None:
        script = replace(script, max_train_samples=num_problems, num_eval_samples=None, eval_dataset_name=None)
    whole, held_out = load_datasets(script, say=lambda text: None)
    problems = held_out if data is None else whole
    if problems is None:
        raise UserError(
            f"`evaluation`: the recipe trains on all of {script.dataset_name}: hold problems out with "
            "`num_eval_samples`, or name others as `data`."
        )
    if len(problems) < num_problems:
        raise UserError(
            f"`evaluation`: the recipe holds {len(problems)} problems out, and {num_problems} are asked for."
        )
    problems = problems.select(range(num_problems))
    if group_by is None:
        return problems, ["held out"] * len(problems)
    if group_by not in problems.column_names:
        columns = ", ".join(name for name in problems.column_names if name != "prompt")
        raise UserError(f"`evaluation`: the data have no column {group_by!r} to group by; they have {columns}.")
    return problems, [str(value) for value in problems[group_by]]
