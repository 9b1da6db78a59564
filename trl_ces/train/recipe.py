"""A recipe: YAML files, overridden on the command line, as the checked arguments of a training run.

Stricter than TRL's own parser: an unknown key is an error, and so is a value of another type. Neither model nor data
is loaded here, so a typo costs seconds.
"""

import dataclasses
import os
import re
import typing
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.errors import UserError, nearest
from ..support.yaml import dump_yaml, fit, fit_text
from .arguments import ScriptArguments
from .compose import compose

if TYPE_CHECKING:
    from trl import ModelConfig

    from ..config import CESConfig

# By these the sizes of a run are divided.
COUNTS = ["per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"]
COUNTS += ["generation_batch_size", "num_iterations"]
# A run's own recipe, in its `output_dir`.
RECIPE = "recipe.yaml"
# transformers 5.23's names, which would win over the older ones in silence: a recipe keeps one of the two.
RENAMED = {
    "activation_checkpointing": "gradient_checkpointing",
    "activation_checkpointing_kwargs": "gradient_checkpointing_kwargs",
}
RESUME = "resume_from_checkpoint"
# Names `--accelerate_config` to the workers, whose run.json keeps it for the card.
ACCELERATE = "TRL_CES_ACCELERATE_CONFIG"


@dataclass(frozen=True)
class RecipeField:
    """A key that a recipe may hold."""

    owner: type
    name: str
    hint: Any
    default: Any
    choices: tuple[Any, ...]
    help: str


@cache
def recipe_fields() -> dict[str, RecipeField]:
    """Every key that a recipe may hold: CES's own, then those of data, model and TRL."""
    from trl import GRPOConfig, ModelConfig

    from ..config import CESConfig

    fields: dict[str, RecipeField] = {}
    for owner in (ScriptArguments, ModelConfig, CESConfig):
        hints = typing.get_type_hints(owner)
        for entry in (field for field in dataclasses.fields(owner) if field.init):  # type: ignore[arg-type]
            assert entry.name not in fields, f"{entry.name} is a field of two classes"
            default = entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()
            help_text = str(entry.metadata.get("help", "")).replace("%%", "%")
            choices = tuple(entry.metadata.get("choices") or ())
            # Typed as a path, but the Trainer also takes true (the last checkpoint in `output_dir`) and false.
            hint = str | bool | None if entry.name == RESUME else hints[entry.name]
            if entry.name.endswith("_kwargs") and str in typing.get_args(hint):  # any text would pass for a mapping
                hint = dict[str, Any] | None
            fields[entry.name] = RecipeField(owner, entry.name, hint, default, choices, help_text)
    inherited = {entry.name for entry in dataclasses.fields(GRPOConfig)}
    own = {name: entry for name, entry in fields.items() if entry.owner is CESConfig and name not in inherited}
    return own | fields


@dataclass(frozen=True)
class Recipe:
    """
    A checked recipe.

    `script` and `model` are complete; `training` holds the fields of [`CESConfig`] that were given, `given` everything
    that was, overrides included.
    """

    source: str
    script: ScriptArguments
    model: "ModelConfig"
    training: dict[str, Any]
    env: dict[str, str]
    given: dict[str, Any]

    def to_yaml(self) -> str:
        """The recipe as one file that repeats the run from its start."""
        return dump_yaml({name: value for name, value in self.given.items() if name != RESUME})

    def setting(self, name: str) -> Any:
        """A field of [`CESConfig`], as given or by default."""
        return self.training.get(name, recipe_fields()[name].default)

    @property
    def attention(self) -> str | None:
        """The attention implementation to load the model with; `None` leaves it to transformers."""
        loading = self.setting("model_init_kwargs")
        own = loading if isinstance(loading, dict) else {}
        return own.get("attn_implementation", self.model.attn_implementation)

    def training_fields(self, num_processes: int) -> dict[str, Any]:
        """The fields of [`CESConfig`] on `num_processes`, batch sizes of `responses_per_step` included."""
        for name in COUNTS:
            if (value := self.training.get(name)) is not None and value <= 0:
                raise UserError(f"`{name}` is {value}: it must be above 0.")
        step, rollout = self.script.responses_per_step, self.script.responses_per_rollout
        if step is None:
            if rollout is not None:
                raise UserError("`responses_per_rollout` needs `responses_per_step`: give both or none.")
            return dict(self.training)
        for name in ("gradient_accumulation_steps", "steps_per_generation", "generation_batch_size"):
            if self.training.get(name) is not None:
                raise UserError(f"`{name}` follows from `responses_per_step`: remove one of the two.")
        micro_batch_size = self.training.get("per_device_train_batch_size", 2)
        return {**self.training, **batch_sizes(step, rollout or step, num_processes, micro_batch_size)}

    def check_training(self, num_processes: int) -> "CESConfig":
        """The run's [`CESConfig`], with TRL's defaults, as if one process on a CPU did the work of all.

        So TRL's divisibility checks see the real sizes. Settings that need hardware (DeepSpeed, FSDP, TF32) are left
        out.

        Raises:
            `UserError`: TRL or [`CESConfig`] refuses the settings.
        """
        from ..config import CESConfig

        fields = self.training_fields(num_processes) | {"use_cpu": True}
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size"):
            fields[name] = fields.get(name, recipe_fields()[name].default) * num_processes
        for name in ("deepspeed", "fsdp", "fsdp_config", "tf32", "ddp_backend"):
            fields.pop(name, None)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the training processes show them
                config = CESConfig(**fields)
        except (ValueError, TypeError) as error:
            raise UserError(f"{self.source}: {error}") from None
        return config

    def training_config(self, num_processes: int) -> "CESConfig":
        """This process's [`CESConfig`], with the loading options of [`~trl.ModelConfig`] in `model_init_kwargs`."""
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
    """Composes the named files, or reads one, see [`compose`]; overrides and checks."""
    names = [names] if isinstance(names, str | Path) else names
    return make_recipe(compose(names) if names else {}, " + ".join(map(str, names)) or "command line", overrides)


def make_recipe(given: dict[str, Any], source: str, overrides: dict[str, list[str]] | None = None) -> Recipe:
    """As [`load_recipe`], from the content of a file."""
    given = dict(given)
    env = _check_env(given.pop("env", None), source)
    fields = recipe_fields()
    values = {name: _check_value(name, value, source) for name, value in given.items()}
    for name, texts in (overrides or {}).items():
        values[name] = _check_value(name, texts, "command line", from_text=True)
    for new, old in RENAMED.items():
        if values.get(new) is not None:
            value = values.pop(new)
            if new in (overrides or {}) or old not in (overrides or {}):
                values[old] = value
    if values.get("hub_token") is not None:
        # The Trainer saves its arguments beside the model, and a push uploads them.
        raise UserError(
            f"{source}: `hub_token` would be saved with the model: set HF_TOKEN in the environment, or run "
            "`hf auth login`."
        )
    for name in values:
        if name.startswith(("lora_", "use_dora", "use_rslora")) and "use_peft" not in values:
            raise UserError(f"{source}: `{name}` has no effect without `use_peft`: set it to true, or to false.")
    owners: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        owners.setdefault(fields[name].owner.__name__, {})[name] = value
    from trl import ModelConfig

    try:
        script = ScriptArguments(**owners.get("ScriptArguments", {}))
        model = ModelConfig(**owners.get("ModelConfig", {}))
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    if model.model_name_or_path is None:
        raise UserError(
            f"{source}: `model_name_or_path` is missing: name the model to train, a Hub id or a directory."
        )
    model.model_name_or_path = os.path.expanduser(model.model_name_or_path)
    training = owners.get("CESConfig", {})
    if not training.get("output_dir"):
        raise UserError(f"{source}: `output_dir` is missing: name the directory in which the model is saved.")
    training["output_dir"] = str(Path(training["output_dir"]).expanduser())  # as the Trainer does
    return Recipe(source, script, model, training, env, {**values, **({"env": env} if env else {})})


def check_key(name: str, source: str, others: typing.Iterable[str] = ()) -> None:
    """Refuses an unknown key of `source` (a file, or "command line"), naming the nearest key.

    `others` are valid there besides the recipe's keys.
    """
    if not isinstance(name, str):
        raise UserError(f"{source}: the key {name!r} must be text.")
    if name in recipe_fields():
        return
    hint = nearest(name, [*recipe_fields(), *others]) or " `trl-ces train --help` lists all keys."
    raise UserError(f"{source}: the key `{name}` is not known.{hint}")


def _check_value(name: str, value: Any, source: str, from_text: bool = False) -> Any:
    check_key(name, source)
    entry = recipe_fields()[name]
    try:
        fitted = fit_text(value, entry.hint) if from_text else fit(value, entry.hint)
    except TypeError as error:
        raise UserError(f"{source}: `{name}`: {error}.") from None
    if entry.choices and fitted is not None and fitted not in entry.choices:
        allowed = ", ".join(map(str, entry.choices))
        raise UserError(f"{source}: `{name}`: expected one of {allowed}, got {fitted!r}.")
    return fitted


def _check_env(env: Any, source: str) -> dict[str, str]:
    try:
        variables = fit(env, dict[str, str | int | float | bool] | None) or {}
    except TypeError as error:
        raise UserError(f"{source}: `env`: {error}.") from None
    for name in variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
            raise UserError(f"{source}: `env`: {name!r} is not a variable's name: use letters, digits and _.")
    return {name: str(value) for name, value in variables.items()}


def batch_sizes(
    responses_per_step: int, responses_per_rollout: int, num_processes: int, micro_batch_size: int = 2
) -> dict[str, int]:
    """TRL's batch sizes that keep a step and a rollout the same on any number of processes."""
    if responses_per_step % num_processes:
        usable = [n for n in range(1, responses_per_step + 1) if responses_per_step % n == 0]
        raise UserError(
            f"`responses_per_step` is {responses_per_step} and {num_processes} processes cannot share it evenly "
            f"({responses_per_step} / {num_processes} = {responses_per_step / num_processes:g} completions each): "
            f"start {', '.join(map(str, usable))} processes with --num_processes, or change `responses_per_step`."
        )
    if responses_per_rollout % responses_per_step:
        raise UserError(
            f"`responses_per_rollout` is {responses_per_rollout}, "
            f"which is {responses_per_rollout / responses_per_step:g} steps of {responses_per_step} completions: "
            "make it a multiple of `responses_per_step`."
        )
    share = responses_per_step // num_processes
    per_device = max(size for size in range(1, min(share, micro_batch_size) + 1) if share % size == 0)
    return {
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": share // per_device,
        "steps_per_generation": responses_per_rollout // (per_device * num_processes),
    }
