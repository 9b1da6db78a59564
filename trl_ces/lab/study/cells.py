"""A study's YAML as cells: one training run each, with its recipe."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ...support.errors import UserError, kind, nearest
from ...support.yaml import read_yaml
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
# Fields that a cell gets from its place in the study.
PLACED = ("output_dir", "run_name", "seed", "resume_from_checkpoint")
# Keys of a method that are no fields of its recipe: the recipe, and the line in which it is drawn.
OF_METHOD = ("config", "line")
# Fields that decide which model a run starts from.
MODEL_FIELDS = ("model_name_or_path", "model_revision", "model_builder", "model_builder_kwargs")


@dataclass(frozen=True)
class Cell:
    """One run of a study, in a folder of its own."""

    variant: str  # "" if the study has none
    method: str
    seed: int
    folder: Path
    recipe: dict[str, Any]  # the content of recipe.yaml
    trained: bool = True  # False: the model before training, which is only measured
    source: str = "the study"  # its file, for messages
    line: str = ""  # the method of which this is one strength, if the study says

    @property
    def name(self) -> str:
        """What the terminal calls the run."""
        return ", ".join(part for part in (self.variant, self.method, f"seed {self.seed}") if part)

    @property
    def recipe_file(self) -> Path:
        return self.folder / RECIPE

    @cached_property
    def checked_recipe(self) -> Recipe:
        """The recipe with keys and types checked; a `UserError` if one is refused."""
        return make_recipe(self.recipe, self.source)


@dataclass(frozen=True)
class Study:
    """A checked study; docs/study.md has its keys. `cells` are in the order of the tables."""

    source: str
    output_dir: Path
    baseline: str
    cells: list[Cell]
    evaluation: dict[str, Any] | None = None
    accelerate_config: str | None = None
    num_processes: int | None = None
    keep_checkpoints: bool = False
    variants: list[str] = field(default_factory=lambda: [""])


def load_study(path: Path, output_dir: Path | None = None) -> Study:
    """Reads a study and the recipes that it names; `output_dir` overrides its own."""
    given, source = read_yaml(path), str(path)
    _check_keys(given, source)
    methods, variants = given["methods"], given.get("variants") or {"": {}}
    baseline, untrained = given.get("baseline", next(iter(methods), "")), given.get("untrained")
    _check_values(given, baseline, source)
    recipes = _read_recipes(methods, source)
    named = ({untrained: methods[baseline]} if untrained else {}) | methods
    folder = output_dir or Path(given["output_dir"]).expanduser()
    title = path.resolve().parent.name if path.name == "study.yaml" else path.stem  # experiments/NAME/study.yaml
    cells: list[Cell] = []
    for variant, changes in variants.items():
        for method, settings in named.items():
            own = {name: value for name, value in settings.items() if name not in OF_METHOD}
            line = "" if method == untrained else settings.get("line", "")
            content = recipes[baseline if method == untrained else method]
            for seed in given["seeds"]:
                place = folder.joinpath(*([slug(variant)] if variant else []), slug(method), f"seed-{seed}")
                recipe = content | _fill(given.get("overrides", {}) | changes | own, variant, seed, source)
                if method == untrained and cells and _same_model(cells[-1], variant, method, recipe):
                    continue  # a model shared by all seeds is measured once
                recipe |= {"output_dir": str(place), "run_name": f"{title}-{'-'.join(place.parts[-2:])}"}
                recipe["seed"] = seed
                cells.append(Cell(variant, method, seed, place, recipe, method != untrained, source, line))
    options = {name: given[name] for name in OPTIONS if name in given}
    return Study(source, folder, baseline, cells, variants=[*variants], **options)


def slug(name: str) -> str:
    """`"w/o Dynamic b"` -> `"w_o_dynamic_b"`: a folder's name."""
    return re.sub(r"[^\w.]+", "_", name.lower()).strip("._")


def _check_keys(given: dict[str, Any], source: str) -> None:
    """Refuses unknown and missing keys, other types, and fields that each run gets from the study."""
    for name, value in given.items():
        if name not in KEYS:
            hint = nearest(name, KEYS) or f" Keys: {', '.join(KEYS)}."
            raise UserError(f"{source}: the key `{name}` is not known in a study.{hint}")
        if type(value) is not KEYS[name]:
            raise UserError(f"{source}: `{name}`: expected a {KEYS[name].__name__}, got {kind(value)} {value!r}.")
    missing = [name for name in ("output_dir", "seeds", "methods") if name not in given or given[name] == ""]
    if missing:
        raise UserError(f"{source}: `{missing[0]}` is missing.")
    groups = {"overrides": given.get("overrides", {})}
    for key in ("methods", "variants"):
        for name, settings in given.get(key, {}).items():
            if not isinstance(name, str) or not isinstance(settings, dict):
                raise UserError(
                    f"{source}: `{key}`: {name!r} is {settings!r}: expected a name and a mapping of fields."
                )
            groups[f"{key}.{name}"] = settings
    for where, settings in groups.items():
        for name in PLACED:
            if name in settings:
                raise UserError(f"{source}: `{where}` sets `{name}`, which each run gets from the study: remove it.")


def _check_values(given: dict[str, Any], baseline: str, source: str) -> None:
    seeds, methods, untrained = given["seeds"], given["methods"], given.get("untrained")
    evaluation = given.get("evaluation")
    distinct = all(type(seed) is int and seed >= 0 for seed in seeds) and 0 < len(seeds) == len(set(seeds))
    named = evaluation is None or isinstance(evaluation.get("function"), str)
    for fits, what in (
        (distinct, f"`seeds` is {seeds!r}: expected distinct whole numbers, such as [0, 1, 2]."),
        (methods, "`methods` is empty: name at least one, `DAPO: {config: [arithmetic, dapo]}`."),
        (baseline in methods, f"`baseline` {baseline!r} is none of the methods: {', '.join(methods)}."),
        (untrained not in methods, f"`untrained` {untrained!r} is also a method's name: choose another."),
        (evaluation or not untrained, "`untrained` needs `evaluation`: without it there is nothing to measure with."),
        (named, "`evaluation` needs `function`, the dotted path of a function that measures."),
    ):
        if not fits:
            raise UserError(f"{source}: {what}")
    for key, names in (("methods", [*methods, untrained]), ("variants", given.get("variants", {}))):
        slugs: dict[str, str] = {}
        for name in filter(None, names):
            other = slugs.setdefault(slug(name), name)
            if not slug(name):
                raise UserError(f"{source}: `{key}`: {name!r} gives no folder name: use letters or digits.")
            if other != name:
                raise UserError(f"{source}: `{key}`: {other!r} and {name!r} would share a folder: rename one.")


def _read_recipes(methods: dict[str, dict[str, Any]], source: str) -> dict[str, dict[str, Any]]:
    """Method -> the content of its recipe; a recipe that several methods name is read once."""
    configs = {}
    for method, settings in methods.items():
        names = settings.get("config")
        names = [names] if isinstance(names, str) else names
        if not names or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(
                f"{source}: the method {method!r} needs `config`, the recipe that it starts from, or a list of a "
                "recipe and overlays."
            )
        configs[method] = tuple(names)
        if not isinstance(settings.get("line", ""), str):
            raise UserError(f"{source}: `methods.{method}`: `line` is {settings['line']!r}: expected a name.")
    read = cache(compose)
    return {method: read(names) for method, names in configs.items()}


def _same_model(previous: Cell, variant: str, method: str, recipe: dict[str, Any]) -> bool:
    if (previous.variant, previous.method) != (variant, method):
        return False
    return all(previous.recipe.get(name) == recipe.get(name) for name in MODEL_FIELDS)


def _fill(value: Any, variant: str, seed: int, source: str) -> Any:
    """`value` with `{seed}` and `{variant}` in its texts replaced; a text that is only `{seed}` becomes a number."""
    if isinstance(value, dict):
        return {name: _fill(entry, variant, seed, source) for name, entry in value.items()}
    if isinstance(value, list):
        return [_fill(entry, variant, seed, source) for entry in value]
    if value == "{seed}":
        return seed
    if not isinstance(value, str):
        return value
    unknown = set(re.findall(r"\{(\w+)\}", value)) - {"seed", "variant"}
    if unknown:
        raise UserError(f"{source}: {value!r}: {{{min(unknown)}}} is unknown; known are {{seed}} and {{variant}}.")
    return value.replace("{seed}", str(seed)).replace("{variant}", slug(variant))
