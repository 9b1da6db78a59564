"""Compose recipes from YAML files, apply command-line overrides and check the result.

A recipe is a complete file, optionally followed by overlays, which are applied from left to right. An overlay's key
replaces the previous value; a key with the suffix `+` extends a list or mapping. The `overlays` section of a complete
file adapts overlays to its model. This module does not load the model or data, so typos are reported within seconds.
"""

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.errors import UserError, kind, nearest
from ..support.hub import expand_home
from ..support.settings import MODEL_RANGES, check_ranges
from ..support.yaml import dump_yaml, read_yaml, reject_secrets
from .arguments import RESUME, ScriptArguments, check_key, coerce, coerce_words, recipe_fields

if TYPE_CHECKING:
    from trl import ModelConfig

    from ..config import CESConfig

RECIPE = "recipe.yaml"  # the recipe saved in a run's `output_dir`
OVERLAYS = "overlays"
COMPLETE_FOLDER, OVERLAY_FOLDERS = "models", ("methods", "cluster")  # folders in recipes/
RULE, BATCHES = "shaping", "responses_per_step"
# Settings derived from `responses_per_step`.
COUNTS = ("gradient_accumulation_steps", "steps_per_generation", "generation_batch_size")


def shipped_folders(name: str) -> list[Path]:
    """Return the folders named `name` inside the installed package or, in a checkout, next to the package."""
    package = Path(__file__).resolve().parents[1]
    return [folder for folder in (package / name, package.parent / name) if folder.is_dir()]


def shipped_files(kind: str | None = None) -> dict[str, Path]:
    """Return shipped files by name: recipes and overlays by default, studies, or the files in recipes/`kind`."""
    if kind == "study":
        files = [file for folder in shipped_folders("experiments") for file in sorted(folder.glob("*/study.yaml"))]
        return {file.parent.name: file for file in files}
    parts = (COMPLETE_FOLDER, *OVERLAY_FOLDERS) if kind is None else (kind,)
    folders = [folder / part for folder in shipped_folders("recipes") for part in parts]
    return {file.stem: file for folder in folders for file in sorted(folder.glob("*.yaml"))}


def find_config(name: str, kind: str | None = None) -> Path:
    """Return the file for a `--config` value, which is a path or the name of a shipped file such as `R1-7B`."""
    file, shipped = Path(expand_home(name)), shipped_files(kind)
    if file.is_file():
        return file
    if name in shipped:
        return shipped[name]
    local = [str(path) for path in file.parent.glob("*.yaml")] if kind is None else []
    hint = nearest(name, [*local, *shipped]) or nearest(file.stem, shipped) or f" Shipped files: {', '.join(shipped)}."
    label = {None: "recipe", "accelerate": "accelerate configuration"}.get(kind, kind)
    raise UserError(f"The {label} {name} does not exist (searched from {Path.cwd()}).{hint}")


def compose(names: Sequence[str | Path]) -> dict[str, Any]:
    """
    Merge recipe files, given as paths or names of shipped files. If an overlay changes the token rule, drop the
    previous rule's settings. Append each overlay's name to `output_dir` and `run_name`.
    """
    first, *overlays = [find_config(str(name)) for name in names]
    if first.resolve() in [shipped for folder in OVERLAY_FOLDERS for shipped in shipped_files(folder).values()]:
        raise UserError(f"{first} is an overlay: put a recipe first, such as `--config R1-7B {first.stem}`.")
    content = read_yaml(first)
    sections = content.pop(OVERLAYS, None) or {}
    if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
        raise UserError(f"{first}: `{OVERLAYS}`: expected a mapping from overlay names to mappings.")
    if not overlays:
        return content
    batches_from = rule_from = None  # names of the overlays that set the batch sizes and the token rule
    for file in overlays:
        changes, section = read_yaml(file), sections.get(file.stem, {})
        changes_rule = changes.get(RULE, content.get(RULE)) != content.get(RULE)
        if batches_from is not None and BATCHES in section:
            raise UserError(
                f"{first} sets `{BATCHES}` for the `{file.stem}` overlay and would replace the value from "
                f"`{batches_from}`: put `{batches_from}` after `{file.stem}`."
            )
        if rule_from is not None and changes_rule:
            raise UserError(
                f"`{file.stem}` sets `{RULE}` to {changes[RULE]} and would replace the {content[RULE]} rule of "
                f"`{rule_from}`: put `{rule_from}` after `{file.stem}`, or remove one of the two overlays."
            )
        batches_from = file.stem if BATCHES in changes else batches_from
        rule_from = file.stem if changes.get(RULE, "none") != "none" else rule_from
        for name in ("output_dir", "run_name"):
            if isinstance(content.get(name), str) and name not in changes:
                content[name] = f"{content[name].rstrip('/')}-{file.stem}"
        if changes_rule:
            content.pop("shaping_kwargs", None)
        for source, layer in ((file, changes), (first, section)):
            for key, value in layer.items():
                name = str(key).removesuffix("+")
                if name != str(key):
                    default = recipe_fields()[name].default if name in recipe_fields() else None
                    value = _extend(content.get(name, default), value, f"{source}: `{key}`")
                content[name] = value
    from ..methods import BUILT_IN  # imports torch, which `--help` does not need

    other_rules = [(name, rule) for name, rule in BUILT_IN.items() if name != content.get(RULE, "ces")]
    other_fields = {f"{name}_{setting}" for name, rule in other_rules for setting in rule.config_fields}
    return {name: value for name, value in content.items() if name not in other_fields}


def _extend(current: Any, value: Any, location: str) -> Any:
    """Append new entries to a list, or update a mapping recursively, and return the result."""
    if current is None:
        return value
    if isinstance(current, list) and isinstance(value, list):
        return [*current, *(entry for entry in value if entry not in current)]
    if isinstance(current, dict) and isinstance(value, dict):
        inner = [name for name in current.keys() & value.keys() if isinstance(current[name], dict)]
        return current | value | {name: _extend(current[name], value[name], location) for name in inner}
    raise UserError(f"{location} adds a {kind(value)} to a {kind(current)}: use two lists or two mappings.")


@dataclass(frozen=True)
class Recipe:
    """Checked recipe. `training` contains the [`CESConfig`] fields that were set; `given` contains all keys."""

    source: str
    script: ScriptArguments
    model: "ModelConfig"
    training: dict[str, Any]
    env: dict[str, str]
    given: dict[str, Any]

    def to_yaml(self) -> str:
        """Return a single YAML document that reproduces the run."""
        return dump_yaml({name: value for name, value in self.given.items() if name != RESUME})

    def setting(self, name: str) -> Any:
        """Return the value of a [`CESConfig`] field, or the default if the recipe does not set the field."""
        return self.training.get(name, recipe_fields()[name].default)

    @property
    def attention(self) -> str | None:
        """Attention implementation of the model; `None` selects transformers' default."""
        loading = self.setting("model_init_kwargs") or {}
        return loading.get("attn_implementation", self.model.attn_implementation)

    def training_fields(self, num_processes: int) -> dict[str, Any]:
        """Return the [`CESConfig`] fields that were set, and the batch sizes derived from `responses_per_step`."""
        step, rollout = self.script.responses_per_step, self.script.responses_per_rollout
        if step is None:
            if rollout is not None:
                raise UserError(
                    "`responses_per_rollout` needs `responses_per_step`: set both, or remove `responses_per_rollout`."
                )
            return dict(self.training)
        for name in COUNTS:
            if self.training.get(name) is not None:
                raise UserError(f"`{name}` is derived from `responses_per_step`: remove one of the two fields.")
        micro_batch_size = self.training.get("per_device_train_batch_size", 2)
        return {**self.training, **batch_sizes(step, rollout or step, num_processes, micro_batch_size)}

    def check_training(self, num_processes: int) -> "CESConfig":
        """
        Return the [`CESConfig`] of an equivalent single-process CPU run, so that TRL checks whether the global batch
        sizes are divisible; raise `UserError` if the settings are invalid.
        """
        from ..config import CESConfig

        fields = self.training_fields(num_processes) | {"use_cpu": True}
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size"):
            fields[name] = fields.get(name, recipe_fields()[name].default) * num_processes
        for name in ("deepspeed", "fsdp", "fsdp_config", "tf32", "ddp_backend"):
            fields.pop(name, None)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the training processes print the warnings
                return CESConfig(**fields)
        except (ValueError, TypeError) as error:
            raise UserError(f"{self.source}: {error}") from None

    def training_config(self, num_processes: int) -> "CESConfig":
        """Return this process's [`CESConfig`], including the model-loading options of [`~trl.ModelConfig`]."""
        from ..config import CESConfig

        fields = self.training_fields(num_processes)
        loading = {
            "revision": self.model.model_revision,
            "attn_implementation": self.model.attn_implementation,
            "dtype": self.model.dtype,
        }
        fields["model_init_kwargs"] = {**loading, **(fields.get("model_init_kwargs") or {})}
        return CESConfig(**fields)


def load_recipe(names: str | Path | Sequence[str | Path], overrides: dict[str, list[str]] | None = None) -> Recipe:
    """Compose the named files (see [`compose`]), apply `overrides` (words per key) and check the result."""
    names = [names] if isinstance(names, str | Path) else names
    return make_recipe(compose(names) if names else {}, " + ".join(map(str, names)) or "command line", overrides)


def make_recipe(given: dict[str, Any], source: str, overrides: dict[str, list[str]] | None = None) -> Recipe:
    """Build a checked [`Recipe`] from its content; error messages start with `source`."""
    from trl import ModelConfig

    values, overrides = dict(given), overrides or {}
    env = values.pop("env", None) or {}
    if not isinstance(env, dict) or any(
        isinstance(value, dict | list | None) or "=" in str(name) or not name for name, value in env.items()
    ):
        raise UserError(f"{source}: `env`: expected a mapping from variable names to values.")
    env = {str(name): str(value) for name, value in env.items()}
    values = {name: _check_value(name, value, source) for name, value in values.items()}
    values |= {name: _check_value(name, words, "command line", True) for name, words in overrides.items()}
    reject_secrets(values | {"env": env}, source)
    if values.get("push_to_hub") and values.setdefault("hub_strategy", "end") != "end":
        raise UserError(f"{source}: `hub_strategy` is {values['hub_strategy']!r}, but runs support only `end`.")
    for name in values:
        if name.startswith(("lora_", "use_dora", "use_rslora")) and "use_peft" not in values:
            raise UserError(f"{source}: `{name}` has no effect without `use_peft`: set `use_peft` to true or false.")
    owners: dict[type, dict[str, Any]] = {}
    for name, value in values.items():
        owners.setdefault(recipe_fields()[name].owner, {})[name] = value
    try:
        script = ScriptArguments(**owners.pop(ScriptArguments, {}))
        model = ModelConfig(**owners.pop(ModelConfig, {}))
        check_ranges(model, MODEL_RANGES)
    except (ValueError, re.error) as error:
        raise UserError(f"{source}: {error}") from None
    training = next(iter(owners.values()), {})
    if model.model_name_or_path is None:
        raise UserError(f"{source}: `model_name_or_path` is missing: set it to a Hub id or a directory.")
    if not training.get("output_dir"):
        raise UserError(f"{source}: `output_dir` is missing: set it to a directory for the trained model.")
    model.model_name_or_path = expand_home(model.model_name_or_path)
    for name in ("output_dir", RESUME):  # absolute, because a reward function may change the working directory
        if training.get(name) and isinstance(training[name], str):
            training[name] = os.path.abspath(expand_home(training[name]))
    return Recipe(source, script, model, training, env, {**values, **({"env": env} if env else {})})


def _check_value(name: str, value: Any, source: str, from_words: bool = False) -> Any:
    check_key(name, source)
    entry = recipe_fields()[name]
    try:
        typed = coerce_words(value, entry.hint) if from_words else coerce(value, entry.hint)
    except (TypeError, UserError) as error:
        raise UserError(f"{source}: `{name}`: {str(error).rstrip('.')}.") from None
    if entry.choices and typed is not None and typed not in entry.choices:
        raise UserError(f"{source}: `{name}`: expected one of {', '.join(map(str, entry.choices))}, got {typed!r}.")
    return typed


def batch_sizes(
    responses_per_step: int, responses_per_rollout: int, num_processes: int, micro_batch_size: int = 2
) -> dict[str, int]:
    """Return TRL's batch settings that keep the global step and rollout sizes with `num_processes` processes."""
    if responses_per_step % num_processes:
        divisors = [n for n in range(1, responses_per_step + 1) if responses_per_step % n == 0]
        raise UserError(
            f"`responses_per_step` is {responses_per_step}, which {num_processes} processes cannot share: set "
            f"`--num_processes` to one of {', '.join(map(str, divisors))}, or change `responses_per_step`."
        )
    if responses_per_rollout % responses_per_step:
        raise UserError(
            f"`responses_per_rollout` is {responses_per_rollout}, which is not a multiple of `responses_per_step` "
            f"({responses_per_step})."
        )
    if micro_batch_size < 1:
        raise UserError(f"`per_device_train_batch_size` is {micro_batch_size}: it must be at least 1.")
    per_process = responses_per_step // num_processes
    per_device = max(n for n in range(1, min(per_process, micro_batch_size) + 1) if per_process % n == 0)
    return {
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": per_process // per_device,
        "steps_per_generation": responses_per_rollout // (per_device * num_processes),
    }
