"""A study's YAML as cells: one training run each, with the recipe it is trained by."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..support.errors import UserError, kind, nearest
from ..support.yaml import read_yaml
from ..train.checkpoints import newest_checkpoint
from ..train.recipe import RECIPE

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
REQUIRED = ("output_dir", "seeds", "methods")
# Fields that a cell gets from its place in the study.
PLACED = ("output_dir", "run_name", "seed", "resume_from_checkpoint")

# What decides which model a run starts from.
MODEL_FIELDS = ("model_name_or_path", "model_revision", "model_builder", "model_builder_kwargs")


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Args:
        variant (`str`):
            Name of the variant, `""` where the study has none.
        method (`str`):
            Name of the method.
        seed (`int`):
            Seed of the run.
        folder (`Path`):
            Where recipe, log, model and results go.
        recipe (`dict`):
            The recipe's content, as it will stand in `recipe.yaml`.
        trained (`bool`):
            `False`: the model before training, only evaluated.
    """

    variant: str
    method: str
    seed: int
    folder: Path
    recipe: dict[str, Any]
    trained: bool = True

    @property
    def name(self) -> str:
        """What the terminal calls the cell."""
        return ", ".join(part for part in (self.variant, self.method, f"seed {self.seed}") if part)

    @property
    def recipe_file(self) -> Path:
        return self.folder / RECIPE

    @property
    def log(self) -> Path:
        return self.folder / "train.log"

    def checkpoint(self) -> Path | None:
        """The newest whole checkpoint with steps left, to go on from."""
        return newest_checkpoint(self.folder)


@dataclass(frozen=True)
class Study:
    """A checked study; see docs/study.md for its keys. `cells` are in the order in which they run."""

    source: str
    output_dir: Path
    methods: list[str]
    baseline: str
    cells: list[Cell]
    untrained: str | None = None
    evaluation: dict[str, Any] | None = None
    accelerate_config: str | None = None
    num_processes: int | None = None
    keep_checkpoints: bool = False
    variants: list[str] = field(default_factory=lambda: [""])


def load_study(path: Path, find_recipe: Any, output_dir: Path | None = None) -> Study:
    """Reads and checks a study. The recipes' values are checked by whoever starts the cells.

    Args:
        path (`Path`):
            The YAML file.
        find_recipe (`Callable`):
            From the name of a recipe to its file.
        output_dir (`Path`, *optional*):
            Instead of the file's own.

    Raises:
        UserError: if a key is unknown, missing or of another type, or a value cannot work.
    """
    given = read_yaml(path)
    source = str(path)
    _check_keys(given, source)
    seeds = given["seeds"]
    if not seeds or any(type(seed) is not int or seed < 0 for seed in seeds) or len(set(seeds)) != len(seeds):
        raise UserError(f"{source}: `seeds` is {seeds!r}: expected different whole numbers, such as [0, 1, 2].")
    methods = _mapping_of_mappings(given, "methods", source)
    if not methods:
        raise UserError(f"{source}: `methods` is empty: name at least one, `DAPO: {{config: arithmetic/dapo}}`.")
    variants = _mapping_of_mappings(given, "variants", source) or {"": {}}
    baseline = given.get("baseline", next(iter(methods)))
    if baseline not in methods:
        raise UserError(f"{source}: `baseline` {baseline!r} is none of the methods: {', '.join(methods)}.")
    untrained = given.get("untrained")
    if untrained in methods:
        raise UserError(f"{source}: `untrained` {untrained!r} is a method's name too: choose another.")
    _check_evaluation(given.get("evaluation"), source)
    if untrained is not None and given.get("evaluation") is None:
        raise UserError(f"{source}: `untrained` needs `evaluation`: without it there is nothing to measure with.")
    folder = output_dir or Path(given["output_dir"]).expanduser()
    contents = {
        method: read_yaml(find_recipe(_config_of(method, settings, source))) for method, settings in methods.items()
    }
    named = ({untrained: methods[baseline]} if untrained else {}) | methods
    _check_slugs([*named], "methods", source)
    _check_slugs([name for name in variants if name], "variants", source)
    cells: list[Cell] = []
    for variant, changes in variants.items():
        for method, settings in named.items():
            own = {name: value for name, value in settings.items() if name != "config"}
            content = contents[baseline if method == untrained else method]
            for seed in seeds:
                place = folder.joinpath(*([slug(variant)] if variant else []), slug(method), f"seed-{seed}")
                recipe = content | _fill(given.get("overrides", {}) | changes | own, variant, seed, source)
                if method == untrained and cells and _same_model(cells[-1], variant, method, recipe):
                    continue  # one model for all seeds is measured once
                recipe |= {"output_dir": str(place), "run_name": f"{path.stem}-{'-'.join(place.parts[-2:])}"}
                cells.append(Cell(variant, method, seed, place, {**recipe, "seed": seed}, method != untrained))
    options = {
        name: given[name] for name in ("accelerate_config", "num_processes", "keep_checkpoints") if name in given
    }
    return Study(
        source, folder, [*named], baseline, cells, untrained, given.get("evaluation"), variants=[*variants], **options
    )


def slug(name: str) -> str:
    """`"w/o Dynamic b"` -> `"w_o_dynamic_b"`: a folder's name."""
    return re.sub(r"[^\w.]+", "_", name.lower()).strip("._")


def _check_keys(given: dict[str, Any], source: str) -> None:
    for name, value in given.items():
        if name not in KEYS:
            hint = nearest(name, KEYS) or f" Keys: {', '.join(KEYS)}."
            raise UserError(f"{source}: the key `{name}` is not known in a study.{hint}")
        if type(value) is not KEYS[name]:
            raise UserError(f"{source}: `{name}`: expected a {KEYS[name].__name__}, got {kind(value)} {value!r}.")
    for name in REQUIRED:
        if not given.get(name) and name not in ("seeds", "methods"):
            raise UserError(f"{source}: `{name}` is missing.")
        if name not in given:
            raise UserError(f"{source}: `{name}` is missing.")
    groups = {"overrides": given.get("overrides", {})}
    for key in ("methods", "variants"):
        groups |= {f"{key}.{name}": settings for name, settings in given.get(key, {}).items()}
    for where, settings in groups.items():
        for name in PLACED:
            if isinstance(settings, dict) and name in settings:
                raise UserError(f"{source}: `{where}` sets `{name}`, which each run gets from the study: remove it.")


def _mapping_of_mappings(given: dict[str, Any], key: str, source: str) -> dict[str, dict[str, Any]]:
    entries = given.get(key, {})
    for name, settings in entries.items():
        if not isinstance(name, str) or not isinstance(settings, dict):
            raise UserError(f"{source}: `{key}`: {name!r} is {settings!r}: expected a name and a mapping of fields.")
    return entries


def _config_of(method: str, settings: dict[str, Any], source: str) -> str:
    if not isinstance(settings.get("config"), str):
        raise UserError(f"{source}: the method {method!r} needs `config`, the recipe that it starts from.")
    return settings["config"]


def _check_slugs(names: list[str], key: str, source: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(slug(name), name)
        if not slug(name):
            raise UserError(f"{source}: `{key}`: {name!r} gives no folder name: use letters or digits.")
        if other != name:
            raise UserError(f"{source}: `{key}`: {other!r} and {name!r} would share a folder: rename one.")


def _check_evaluation(settings: dict[str, Any] | None, source: str) -> None:
    if settings is None:
        return
    if not isinstance(settings.get("function"), str):
        raise UserError(f"{source}: `evaluation` needs `function`, the dotted path of what measures a model.")
    try:
        survives = json.loads(json.dumps(settings)) == settings
    except TypeError:
        survives = False
    if not survives:  # it is kept as JSON, and compared when the study is started again
        raise UserError(f"{source}: `evaluation` holds something other than words, numbers, lists and mappings.")


def _same_model(previous: Cell, variant: str, method: str, recipe: dict[str, Any]) -> bool:
    if (previous.variant, previous.method) != (variant, method):
        return False
    return all(previous.recipe.get(name) == recipe.get(name) for name in MODEL_FIELDS)


def _fill(value: Any, variant: str, seed: int, source: str) -> Any:
    """`value` with `{seed}` and `{variant}` in its texts replaced; a text that is only `{seed}` becomes the number."""
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
        raise UserError(
            f"{source}: {value!r}: {{{min(unknown)}}} stands for nothing; known are {{seed}}, {{variant}}."
        )
    return value.replace("{seed}", str(seed)).replace("{variant}", slug(variant))
