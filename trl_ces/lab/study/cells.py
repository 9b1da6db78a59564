"""Parse a study's YAML file into cells; each cell is one run with its recipe."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ...support.errors import UserError, kind, nearest
from ...support.hub import expand_home
from ...support.yaml import read_yaml, reject_secrets
from ...train.recipe import RECIPE, Recipe, compose, make_recipe

KEYS = {
    "output_dir": str,
    "seeds": list,
    "methods": dict,
    "baseline": str,
    "overrides": dict,
    "variants": dict,
    "untrained": str,
    "evaluation": dict,
    "accelerate_config": str,
    "num_processes": int,
    "keep_checkpoints": bool,
}
OPTIONS = ("evaluation", "accelerate_config", "num_processes", "keep_checkpoints")
# Recipe fields that the study sets for each run.
SET_BY_STUDY = ("output_dir", "run_name", "seed", "resume_from_checkpoint")
# Recipe fields that determine the untrained model.
MODEL_FIELDS = ("model_name_or_path", "model_revision", "model_builder", "model_builder_kwargs")


@dataclass(frozen=True)
class Cell:
    """One run of a study, in its own folder."""

    variant: str  # "" if the study has no variants
    method: str
    seed: int
    folder: Path
    recipe: dict[str, Any]  # the content of recipe.yaml
    has_training: bool = True  # `False`: only measure the untrained model
    source: str = "the study"  # path of the study file, for error messages

    @property
    def name(self) -> str:
        return ", ".join(part for part in (self.variant, self.method, f"seed {self.seed}") if part)

    @property
    def recipe_file(self) -> Path:
        return self.folder / RECIPE

    @cached_property
    def checked_recipe(self) -> Recipe:
        """The recipe with checked keys and types; raises `UserError` if a key or type is invalid."""
        return make_recipe(self.recipe, self.source)


@dataclass(frozen=True)
class Study:
    """A checked study; docs/study.md describes its keys. `cells` is in the order of the rows in the result tables."""

    output_dir: Path
    baseline: str
    cells: list[Cell]
    evaluation: dict[str, Any] | None = None
    accelerate_config: str | None = None
    num_processes: int | None = None
    keep_checkpoints: bool = False


def load_study(path: Path, output_dir: Path | None = None) -> Study:
    """Read a study and its recipes; `output_dir` overrides the study's `output_dir`."""
    content = read_yaml(path)
    reject_secrets(content, str(path))
    try:
        _check_keys(content)
        content.setdefault("baseline", next(iter(content["methods"]), ""))
        _check_values(content)
        folder = output_dir or Path(expand_home(content["output_dir"]))
        cells = _make_cells(content, path, folder)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    options = {name: content[name] for name in OPTIONS if name in content}
    return Study(folder, content["baseline"], cells, **options)


def _make_cells(content: dict[str, Any], path: Path, folder: Path) -> list[Cell]:
    """Build the cells of a checked study, ordered by variant, method and seed."""
    methods, baseline, untrained = content["methods"], content["baseline"], content.get("untrained")
    cached_compose = cache(compose)
    recipes = {method: cached_compose(tuple(_config_names(fields))) for method, fields in methods.items()}
    if untrained:
        methods = {untrained: methods[baseline]} | methods
        recipes[untrained] = recipes[baseline]
    title = path.resolve().parent.name if path.name == "study.yaml" else path.stem  # experiments/NAME/study.yaml
    cells: list[Cell] = []
    for variant, variant_fields in (content.get("variants") or {"": {}}).items():
        measured_models: list[list[Any]] = []
        for method, settings in methods.items():
            method_fields = {name: value for name, value in settings.items() if name != "config"}
            fields = content.get("overrides", {}) | variant_fields | method_fields
            for seed in content["seeds"]:
                run_folder = folder.joinpath(*([slug(variant)] if variant else []), slug(method), f"seed-{seed}")
                recipe = recipes[method] | _fill(fields, variant, seed)
                if method == untrained:
                    if (model := [recipe.get(name) for name in MODEL_FIELDS]) in measured_models:
                        continue  # a model that all seeds share is measured once
                    measured_models.append(model)
                recipe |= {"output_dir": str(run_folder), "run_name": f"{title}-{'-'.join(run_folder.parts[-2:])}"}
                recipe["seed"] = seed
                cells.append(Cell(variant, method, seed, run_folder, recipe, method != untrained, str(path)))
    return cells


def slug(name: str) -> str:
    """Convert a name to a folder name: `"w/o Dynamic b"` -> `"w_o_dynamic_b"`."""
    return re.sub(r"[^\w.]+", "_", name.lower()).strip("._")


def _config_names(fields: dict[str, Any]) -> list[Any]:
    config = fields.get("config")
    return config if isinstance(config, list) else [config]


def _check_keys(content: dict[str, Any]) -> None:
    """Reject unknown keys, missing keys and values of the wrong type."""
    for name, value in content.items():
        if name not in KEYS:
            hint = nearest(str(name), KEYS) or f" Keys: {', '.join(KEYS)}."
            raise UserError(f"`{name}` is not a key of a study.{hint}")
        if type(value) is not KEYS[name]:
            raise UserError(f"`{name}`: expected type {KEYS[name].__name__}, got {kind(value)} {value!r:.80}.")
    for name in ("output_dir", "seeds", "methods"):
        if content.get(name, "") == "":
            raise UserError(f"`{name}` is missing.")


def _check_values(content: dict[str, Any]) -> None:
    """Reject invalid values, names that would share a folder, and fields that the study itself sets."""
    seeds, methods, untrained = content["seeds"], content["methods"], content.get("untrained")
    evaluation, baseline = content.get("evaluation"), content["baseline"]
    if not all(type(seed) is int and seed >= 0 for seed in seeds) or not 0 < len(seeds) == len(set(seeds)):
        raise UserError(f"`seeds` is {seeds!r}: expected distinct whole numbers, such as [0, 1, 2].")
    if baseline not in methods:
        raise UserError(f"`baseline` {baseline!r} is not one of the `methods`: {', '.join(methods)}.")
    if untrained and not evaluation:
        raise UserError("`untrained` needs `evaluation`: set `evaluation`, or remove `untrained`.")
    if evaluation is not None and not isinstance(evaluation.get("function"), str):
        raise UserError("`evaluation` needs `function`, the dotted path of a function that measures a model.")
    groups = {"overrides": content.get("overrides", {})}
    for key, entries in (("methods", methods), ("variants", content.get("variants", {}))):
        slugs = {slug(untrained): untrained} if untrained and key == "methods" else {}
        for name, fields in entries.items():
            if not isinstance(name, str) or not isinstance(fields, dict):
                raise UserError(f"`{key}`: expected a name and a mapping of fields, got {name!r} and {fields!r}.")
            if not slug(name):
                raise UserError(f"`{key}`: {name!r} cannot be converted to a folder name: use letters or digits.")
            if other := slugs.get(slug(name)):
                raise UserError(f"`{key}`: {other!r} and {name!r} would share a folder: rename one of them.")
            slugs[slug(name)] = name
            groups[f"{key}.{name}"] = fields
    for group, fields in groups.items():
        if conflicts := [name for name in SET_BY_STUDY if name in fields]:
            raise UserError(f"`{group}` sets `{conflicts[0]}`, which the study sets for each run: remove this field.")
    for method, fields in methods.items():
        if not all(isinstance(name, str) for name in _config_names(fields)):
            raise UserError(f"the method {method!r} needs `config`: a recipe, or a list of a recipe and its overlays.")


def _fill(value: Any, variant: str, seed: int) -> Any:
    """Replace `{seed}` and `{variant}` in all strings of `value`; the string `"{seed}"` becomes a number."""
    if isinstance(value, dict):
        return {name: _fill(entry, variant, seed) for name, entry in value.items()}
    if isinstance(value, list):
        return [_fill(entry, variant, seed) for entry in value]
    if value == "{seed}":
        return seed
    if not isinstance(value, str):
        return value
    if unknown := set(re.findall(r"\{(\w+)\}", value)) - {"seed", "variant"}:
        raise UserError(f"{value!r} contains the unknown placeholder {{{min(unknown)}}}: use {{seed}} or {{variant}}.")
    return value.replace("{seed}", str(seed)).replace("{variant}", slug(variant))
