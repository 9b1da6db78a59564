"""What the model card says about a training, read from the files that are uploaded with it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import HfApi, ModelCard

from ..report.trainings import STATE, read_training
from ..support.environment import environment
from ..support.errors import UserError, hub_errors
from ..support.files import write_json
from ..support.hub import is_local
from ..support.yaml import read_yaml
from ..train.arguments import ScriptArguments
from ..train.recipe import RECIPE, recipe_fields

if TYPE_CHECKING:
    from ..config import CESConfig
    from ..train.curves import Curve

# The resolved settings and the package versions, which no other file holds.
FACTS = "run.json"
ADAPTER, CARD, CURVES, REPORT = "adapter_config.json", "README.md", "curves.png", "report.html"
# The settings that a card shows; the others are in recipe.yaml.
SHAPING_FIELDS = {
    "ces": ("ces_tau", "ces_beta_correct", "ces_beta_incorrect", "ces_dynamic_multiplier", "ces_entropy_gradient",
            "ces_accuracy_reward", "ces_correct_threshold"),
    "none": (),
    "entropy_advantage": ("entropy_advantage_alpha", "entropy_advantage_kappa"),
    "clip_cov": ("clip_cov_ratio", "clip_cov_low", "clip_cov_high"),
    "kl_cov": ("kl_cov_ratio", "kl_cov_coef"),
}  # fmt: skip
TRAINING_FIELDS = (
    "loss_type", "epsilon", "epsilon_high", "beta", "learning_rate", "lr_scheduler_type", "warmup_steps", "adam_beta1",
    "adam_beta2", "max_grad_norm", "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps",
    "steps_per_generation", "num_iterations", "temperature", "top_p", "max_completion_length", "seed", "world_size",
)  # fmt: skip
# Fields of the data's that the card shows in its text.
SHOWN_IN_TEXT = ("dataset_name", "model_builder", "model_builder_kwargs", "system_prompt")


@dataclass(frozen=True)
class RunFacts:
    """
    A training, read from its folder.

    Args:
        recipe (`dict`): The content of its recipe.yaml.
        settings (`dict`): The fields above as the run resolved them; the recipe's where the run recorded none.
        packages (`dict[str, str]`): Package -> version; empty where the run recorded none.
        steps (`int`): Optimizer steps made.
        max_steps (`int`): Optimizer steps planned.
        log (`list[dict]`): The Trainer's log.
        curve (`Curve`, *optional*): Accuracy, length and entropy over the steps, if logged.
        is_adapter (`bool`): Whether the weights are a LoRA adapter.
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
        """Hub id or path of the training data, or the name of a generated task."""
        return str(self.recipe.get("dataset_name"))

    @property
    def shaping(self) -> str:
        """`shaping` of [`CESConfig`]."""
        return str(self.settings.get("shaping", recipe_fields()["shaping"].default))

    @property
    def system_prompt(self) -> str | None:
        """The system message of the training prompts."""
        return self.recipe.get("system_prompt", recipe_fields()["system_prompt"].default)

    def shown_settings(self) -> dict[str, dict[str, Any]]:
        """Heading -> the settings below it."""

        def chosen(names: tuple[str, ...]) -> dict[str, Any]:
            return {name: self.settings[name] for name in names if name in self.settings}

        names = {field.name for field in dataclasses.fields(ScriptArguments)} - set(SHOWN_IN_TEXT)
        return {
            "Shaping": {"shaping": self.shaping} | chosen(SHAPING_FIELDS[self.shaping]),
            "Data, prompts and rewards": {name: value for name, value in self.recipe.items() if name in names},
            "Optimization and sampling": chosen(TRAINING_FIELDS),
        }


def write_facts(folder: Path, args: CESConfig) -> None:
    """Records the run's resolved settings and package versions in `folder`, its `output_dir`."""
    names = ("shaping", *SHAPING_FIELDS[args.shaping], *TRAINING_FIELDS)  # no token among them
    values = {name: getattr(args, name) for name in names}
    settings = {name: getattr(value, "value", value) for name, value in values.items()}
    write_json(folder / FACTS, {"settings": settings, "packages": environment()})


def read_facts(folder: Path) -> RunFacts:
    """
    Reads a run's folder, or one of its checkpoints with recipe.yaml and run.json placed in it.

    Raises:
        UserError: if recipe.yaml or trainer_state.json is missing or damaged.
    """
    for name in (RECIPE, STATE):
        if not (folder / name).is_file():
            raise UserError(f"{folder} holds no {name}: name an output directory of `trl-ces train`.")
    recipe, recorded = read_yaml(folder / RECIPE), _read_recorded(folder / FACTS)
    training = read_training(folder, folder.name, [])
    state = json.loads((folder / STATE).read_text(encoding="utf-8"))  # intact: read_training has read it
    known = ("shaping", *(name for names in SHAPING_FIELDS.values() for name in names), *TRAINING_FIELDS)
    return RunFacts(
        recipe=recipe,
        settings=recorded.get("settings", {name: recipe[name] for name in known if name in recipe}),
        packages=recorded.get("packages", {}),
        steps=state["global_step"],
        max_steps=state.get("max_steps", 0),
        log=state["log_history"],
        curve=None if training is None else training.curve,
        is_adapter=(folder / ADAPTER).is_file(),
        has_chat_template=(folder / "chat_template.jinja").is_file(),
    )


def find_licence(base: str, ask_the_hub: bool) -> dict[str, str]:
    """What the base model's card states of `license`, `license_name` and `license_link`, in the Hub's words."""
    data: Any = None
    card = Path(base).expanduser() / CARD
    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError)  # no metadata, a model that is gone
    try:
        if card.is_file():
            data = ModelCard.load(card, ignore_metadata_errors=True).data
        elif ask_the_hub and not is_local(base):
            data = HfApi().model_info(base).card_data
    except refusals:
        return {}
    stated = {name: getattr(data, name, None) for name in ("license", "license_name", "license_link")}
    return {name: value for name, value in stated.items() if isinstance(value, str)}


def _read_recorded(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): remove it, and the card says less.") from None
