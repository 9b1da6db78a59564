"""Prompts and sampling settings of `trl-ces inspect`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError
from ...support.hub import is_local
from ...support.settings import is_number
from ..evaluation.models import check_model

if TYPE_CHECKING:
    from ...train.recipe import Recipe

NUM_PROMPTS = 16  # default number of prompts
AUTO = "auto"  # value of tau, see `automatic_tau` in methods/ces.py


@dataclass(frozen=True)
class Sampling:
    """Sampling settings, and the share of tokens that count as high-entropy tokens."""

    num_samples: int = 8  # completions per prompt
    temperature: float = 1.0  # temperature for sampling, entropies and probabilities
    max_new_tokens: int = 512
    tau: float | str = 0.01  # share of each completion's tokens (at least one token), or "auto"
    seed: int = 0
    batch_size: int = 32  # completions per batch; a different batch size changes the completions

    def __post_init__(self):
        if not 0 < self.temperature < math.inf:
            raise UserError(
                f"`--temperature` is {self.temperature}: it must be above 0; 1.0 uses the unscaled distribution."
            )
        if self.tau != AUTO and not (is_number(self.tau) and 0 <= float(self.tau) <= 1):
            raise UserError(f"`--tau` is {self.tau!r:.80}: it must be a number in [0, 1] or `{AUTO}`.")

    @classmethod
    def from_recipe(cls, recipe: Recipe, **given: Any) -> Sampling:
        """Take each value from `given` if it is not `None`, else from the recipe, else from the defaults."""
        training = recipe.training
        recipe_values = {
            "num_samples": max(cls.num_samples, training.get("num_generations") or 0),  # at least one group
            "temperature": training.get("temperature"),
            "max_new_tokens": training.get("max_completion_length"),
            "tau": training.get("ces_tau"),
        }
        values = recipe_values | {name: value for name, value in given.items() if value is not None}
        return cls(**{name: value for name, value in values.items() if value is not None})

    def numeric_tau(self, lengths: Sequence[int]) -> float:
        """Return tau as a number; compute `auto` from the completions' lengths in tokens."""
        from ...methods.ces import automatic_tau

        return automatic_tau(mean(lengths)) if isinstance(self.tau, str) else self.tau


def recipe_to_sample(
    names: str | Sequence[str],
    overrides: dict[str, list[str]],
    *,
    model: str | None = None,
    data: str | None = None,
    prompts: Sequence[str] | None = None,
) -> Recipe:
    """Load the recipe to sample from. If `names` is empty, `model` and either `data` or `prompts` are required."""
    from ...train.recipe import compose, load_recipe

    overrides, names = dict(overrides), [names] if isinstance(names, str) else names
    if model is not None:
        overrides["model_name_or_path"] = [model]
    if data is not None:
        overrides |= {"dataset_name": [data], "dataset_builder": ["null"], "dataset_kwargs": ["null"]}
        if not names or compose(names).get("dataset_name") != data:
            overrides.setdefault("dataset_config", ["null"])  # the recipe's value applies only to its own data
    if prompts and not all(text.strip() for text in prompts):
        raise UserError("`--prompt` is empty: pass the text that the model should complete.")
    if prompts and "dataset_name" in overrides:
        raise UserError("`--prompt` and data are both given: remove one of them.")
    if not names:
        if "model_name_or_path" not in overrides:
            raise UserError(
                "No model is specified: set `--model` to a directory or a Hub id, or `--config` to a recipe."
            )
        if not prompts and "dataset_name" not in overrides:
            raise UserError("There are no prompts: pass `--prompt TEXT`, `--data FILE` or `--config RECIPE`.")
        # The default dtype, float32, is meant for training. For sampling, keep the dtype of the saved model.
        overrides.setdefault("dtype", ["auto"])
        overrides.setdefault("dataset_name", ["unused"])  # required in a recipe; not read if prompts are given
    overrides.setdefault("output_dir", ["unused"])  # also required in a recipe

    recipe = load_recipe(names, overrides)
    if model is not None or recipe.script.model_builder is None:
        check_model(str(recipe.model.model_name_or_path))
    if not names and "reward_funcs" not in overrides:
        # Do not grade the completions with the default rewards, which the user did not choose.
        recipe = replace(recipe, script=replace(recipe.script, reward_funcs=[]))
    return recipe


@dataclass(frozen=True)
class Prompts:
    """Prompts (texts or chat messages), and the data columns that reward functions read."""

    prompts: list[Any]
    columns: dict[str, list[Any]] = field(default_factory=dict)  # if empty, completions cannot be graded
    typed: bool = False  # whether the prompts come from `--prompt`; the chat template is then applied to them


def read_prompts(recipe: Recipe, num_prompts: int | None = None) -> Prompts:
    """Read prompts from the recipe's data; if the recipe has a reward, also return the other columns."""
    from ...train.data import load_datasets, read_rows

    script = recipe.script
    name = str(script.dataset_builder or script.dataset_name)
    count = num_prompts or min(NUM_PROMPTS, script.max_train_samples or NUM_PROMPTS)
    try:
        may_be_small = script.dataset_builder is None and is_local(name) and num_prompts is None
        take_all = may_be_small and len(read_rows(script, name, script.dataset_split).golds) <= count
        limit = None if take_all else count
        subset = replace(script, max_train_samples=limit, num_eval_samples=None, eval_dataset_name=None)
        data, _ = load_datasets(subset)
    except UserError as error:
        raise UserError(str(error).replace("`max_train_samples` or `num_eval_samples`", "`--num_prompts`")) from None
    has_reward = script.reward_funcs or script.reward_model_name_or_path
    columns = {column: list(data[column]) for column in data.column_names if column != "prompt"}
    return Prompts(list(data["prompt"]), columns if has_reward else {})
