"""What is known of a training from the files in its folder: the ones that are uploaded, so a reader knows as much."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..report.runs import STATE, read_training
from ..support.environment import environment
from ..support.errors import UserError, hub_errors
from ..support.files import write_json
from ..support.yaml import read_yaml
from ..train.arguments import ScriptArguments
from ..train.recipe import RECIPE, recipe_fields

if TYPE_CHECKING:
    from ..config import CESConfig
    from ..train.curves import Curve

# Settings that follow from recipe and processes, and the packages of the training: no other file has them.
FACTS = "run.json"
ADAPTER = "adapter_config.json"
CARD = "README.md"
# The settings that a reader of the card looks for; the others stand in recipe.yaml.
SHAPING_FIELDS = {
    "ces": ("ces_tau", "ces_beta_correct", "ces_beta_incorrect", "ces_dynamic_multiplier", "ces_entropy_gradient",
            "ces_accuracy_reward", "ces_correct_threshold"),
    "none": (),
    "entropy_advantage": ("entropy_advantage_alpha", "entropy_advantage_kappa"),
}  # fmt: skip
TRAINING_FIELDS = (
    "loss_type", "epsilon", "epsilon_high", "beta", "learning_rate", "lr_scheduler_type", "warmup_steps", "adam_beta1",
    "adam_beta2", "max_grad_norm", "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps",
    "steps_per_generation", "num_iterations", "temperature", "top_p", "max_completion_length", "seed", "world_size",
)  # fmt: skip


@dataclass(frozen=True)
class RunFacts:
    """
    A training, as its folder tells it.

    Args:
        recipe (`dict`): The content of its recipe.yaml.
        settings (`dict`): The fields above, as they were in the run; those of the recipe where it recorded none.
        packages (`dict[str, str]`): Package -> version in the training; empty where it recorded none.
        steps (`int`): Optimizer steps done.
        max_steps (`int`): Optimizer steps planned.
        log (`list[dict]`): What the Trainer logged.
        curve (`Curve`, *optional*): Accuracy, length and entropy; `None` where none was logged.
        is_adapter (`bool`): Whether the weights are a LoRA adapter's.
        has_chat_template (`bool`): Whether the tokenizer has one.
    """

    recipe: dict[str, Any]
    settings: dict[str, Any]
    packages: dict[str, str]
    steps: int
    max_steps: int
    log: list[dict[str, Any]]
    curve: Curve | None
    is_adapter: bool
    has_chat_template: bool

    @property
    def base(self) -> str:
        """Hub id or path of the model that was trained."""
        return str(self.recipe.get("model_name_or_path"))

    @property
    def dataset(self) -> str:
        """Hub id, path, or a name of a task made on the spot."""
        return str(self.recipe.get("dataset_name"))

    @property
    def shaping(self) -> str:
        """`"ces"`, `"none"` or `"entropy_advantage"`."""
        return str(self.settings.get("shaping", recipe_fields()["shaping"].default))

    @property
    def system_prompt(self) -> str | None:
        """The system message of the training prompts."""
        return self.recipe.get("system_prompt", recipe_fields()["system_prompt"].default)

    def data_settings(self) -> dict[str, Any]:
        """What the recipe says of data, prompts and rewards."""
        own = {entry.name for entry in dataclasses.fields(ScriptArguments)}
        shown_elsewhere = ("dataset_name", "model_builder", "model_builder_kwargs", "system_prompt")
        return {name: value for name, value in self.recipe.items() if name in own and name not in shown_elsewhere}


@dataclass(frozen=True)
class Licence:
    """The licence of the base model, in the Hub's words; empty where it is not known."""

    license: str | None = None
    license_name: str | None = None
    license_link: str | None = None


def write_facts(folder: Path, args: CESConfig) -> None:
    """Records what the recipe alone does not tell: the run's settings as they came out, and its packages.

    Args:
        folder (`Path`): The run's `output_dir`.
        args ([`CESConfig`]): The run's. Only the fields named above are written, so no token is.
    """
    names = ("shaping", *SHAPING_FIELDS[args.shaping], *TRAINING_FIELDS)
    values = {name: getattr(args, name) for name in names}
    settings = {name: getattr(value, "value", value) for name, value in values.items()}
    write_json(folder / FACTS, {"settings": settings, "packages": environment()})


def read_facts(folder: Path) -> RunFacts:
    """
    Reads a run's folder, or one of its checkpoints with recipe.yaml and run.json beside the weights.

    Raises:
        UserError: if the folder holds no recipe or no whole trainer_state.json.
    """
    for name in (RECIPE, STATE):
        if not (folder / name).is_file():
            raise UserError(f"{folder} holds no {name}: name an output directory of `trl-ces train`.")
    recipe, recorded = read_yaml(folder / RECIPE), _recorded(folder / FACTS)
    training = read_training(folder, folder.name, [])
    state = json.loads((folder / STATE).read_text(encoding="utf-8"))  # whole: read_training has read it
    known = ("shaping", *(name for fields in SHAPING_FIELDS.values() for name in fields), *TRAINING_FIELDS)
    given = {name: recipe[name] for name in known if name in recipe}
    return RunFacts(
        recipe=recipe,
        settings=recorded.get("settings", given),
        packages=recorded.get("packages", {}),
        steps=state["global_step"],
        max_steps=state.get("max_steps", 0),
        log=state["log_history"],
        curve=None if training is None else training.curve,
        is_adapter=(folder / ADAPTER).is_file(),
        has_chat_template=_has_chat_template(folder),
    )


def find_licence(base: str, ask_the_hub: bool) -> Licence:
    """
    The licence that a base model states.

    Args:
        base (`str`): Its directory or Hub id.
        ask_the_hub (`bool`): Whether the network may be used.

    Returns:
        [`Licence`]: Empty where the model states none, or the Hub does not answer.
    """
    from huggingface_hub import HfApi, ModelCard

    data: Any = None
    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError)  # no metadata, a model that is gone
    card = Path(base).expanduser() / CARD
    try:
        if card.is_file():
            data = ModelCard.load(card, ignore_metadata_errors=True).data
        elif ask_the_hub and is_hub_id(base):
            data = HfApi().model_info(base).card_data
    except refusals:
        return Licence()
    found = {name: getattr(data, name, None) for name in ("license", "license_name", "license_link")}
    return Licence(**{name: value for name, value in found.items() if isinstance(value, str)})


def is_hub_id(name: str) -> bool:
    """Whether a model's or data set's name can be one of the Hub: no path and not on this disk."""
    is_path = name.startswith((".", "/", "~")) or Path(name).suffix in (".json", ".jsonl", ".parquet")
    return not is_path and name.count("/") <= 1 and not os.path.exists(name)


def _recorded(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): remove it, and the card says less.") from None


def _has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    config = folder / "tokenizer_config.json"
    return config.is_file() and '"chat_template"' in config.read_text(encoding="utf-8")
