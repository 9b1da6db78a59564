"""Create a model card with training method, settings, usage and citation from the run's files."""

import dataclasses
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from huggingface_hub import ModelCard, ModelCardData

from ..config import CESConfig
from ..support.environment import MISSING, environment
from ..support.files import write_json, write_text
from ..support.hub import is_local
from ..support.imports import install_line
from ..support.yaml import read_yaml
from .arguments import ScriptArguments, recipe_fields
from .checkpoints import read_state
from .curves import plot_curves, read_curves
from .recipe import RECIPE

FACTS = "run.json"  # the rule's title, the resolved settings and the package versions
ADAPTER, CARD, CURVES = "adapter_config.json", "README.md", "curves.png"
# Settings that the card lists in addition to the settings of the token rule. recipe.yaml contains all settings.
TRAINING_FIELDS = (
    "loss_type", "epsilon", "epsilon_high", "beta", "learning_rate", "lr_scheduler_type", "warmup_steps", "adam_beta1",
    "adam_beta2", "max_grad_norm", "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps",
    "steps_per_generation", "num_iterations", "temperature", "top_p", "max_completion_length", "dynamic_sampling",
    "scale_rewards", "entropy_coef", "top_entropy_quantile", "seed", "world_size",
)  # fmt: skip
PATHS = ("eval_dataset_name", "reward_model_name_or_path")
SHOWN_IN_TEXT = {"dataset_name", "model_builder", "model_builder_kwargs", "system_prompt"}
LOGGED = ("reward", "completions/mean_length", "entropy", "ces/group_accuracy", "ces/selected_tokens")


def write_facts(folder: Path, args: CESConfig, accuracy_reward: str | None, changes: Sequence[Any] = ()) -> None:
    """Write a run's resolved settings, package versions and setting changes on resume to `folder`."""
    rule_fields = [name for name in vars(args) if name.startswith(f"{args.shaping}_")]
    rule_fields += ["shaping_kwargs"] if args.shaping_kwargs else []
    values = {name: getattr(args, name) for name in ("shaping", *rule_fields, *TRAINING_FIELDS)}  # has no secrets
    facts = {
        "rule": args.rule.title if args.rule is not None else None,
        "accuracy_reward": accuracy_reward,
        "settings": {name: getattr(value, "value", value) for name, value in values.items()},
        "packages": environment(),
        "changes": list(changes),
    }
    write_json(folder / FACTS, facts)


def write_card(folder: Path, repo: str) -> str | None:
    """Write the card and curves of a run for the Hub id `repo`; return a message if the curves are missing."""
    from ..trainer import CESTrainer  # imports TRL, which takes seconds

    recipe, state = read_yaml(folder / RECIPE), cast("dict[str, Any]", read_state(folder))
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    settings, name = facts["settings"], repo.split("/")[-1]
    base = str(recipe["model_name_or_path"])
    dataset = str(recipe.get("dataset_name") or recipe.get("dataset_builder"))
    missing = _draw_curves(folder, name, facts["accuracy_reward"])
    is_adapter = (folder / ADAPTER).is_file()
    base_on_hub, dataset_on_hub = not is_local(base), "/" in dataset and not is_local(dataset)
    loss = settings["loss_type"]
    method_tags = ["ces"] if settings["shaping"] == "ces" else [] if loss == "grpo" else [loss]
    metadata = ModelCardData(
        base_model=base if base_on_hub else None,
        base_model_relation=("adapter" if is_adapter else "finetune") if base_on_hub else None,
        datasets=dataset if dataset_on_hub else None,
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["trl", "grpo", *method_tags, "generated_from_trainer"],
    )
    data_fields = {field.name for field in dataclasses.fields(ScriptArguments)} - SHOWN_IN_TEXT
    data = {key: value for key, value in recipe.items() if key in data_fields}
    data |= {key: Path(data[key]).name for key in PATHS if is_local(str(data.get(key)))}
    logged = {key: [entry[key] for entry in state["log_history"] if entry.get(key) is not None] for key in LOGGED}
    card = ModelCard.from_template(
        metadata,
        str(Path(__file__).with_name("card.md.j2")),
        name=name,
        repo=repo,
        state=state,
        base=f"[{base}](https://huggingface.co/{base})" if base_on_hub else f"`{Path(base).name}`",
        dataset=f"[{dataset}](https://huggingface.co/datasets/{dataset})" if dataset_on_hub
        else f"`{Path(dataset).name}`",
        method=" and ".join(filter(None, ["DAPO" if loss == "dapo" else f"GRPO (`loss_type` {loss})", facts["rule"]])),
        changes=facts.get("changes", ()),
        is_adapter=is_adapter,
        has_chat_template=(folder / "chat_template.jinja").is_file(),
        system_prompt=recipe.get("system_prompt", recipe_fields()["system_prompt"].default),
        shown={
            "Shaping": {key: value for key, value in settings.items() if key not in TRAINING_FIELDS},
            "Data, prompts and rewards": data,
            "Optimization and sampling": {key: settings[key] for key in TRAINING_FIELDS},
            "Versions": {key: value for key, value in facts["packages"].items() if value != MISSING},
        },
        has_curves=missing is None,
        logged=[(key, values[0], values[-1]) for key, values in logged.items() if values],
        citation=CESTrainer._paper["citation"],
    )  # fmt: skip
    write_text(folder / CARD, card.content + "\n")
    return missing


def _draw_curves(folder: Path, name: str, accuracy_reward: str | None) -> str | None:
    """Draw curves.png, or return a message if the curves cannot be drawn."""
    curve = read_curves(folder, accuracy_reward) if accuracy_reward is not None else None
    if curve is None or not curve["step"]:
        return f"No {CURVES}: no accuracy was logged."
    if find_spec("matplotlib") is None:
        return f"No {CURVES}: matplotlib is missing ({install_line('lab')})."
    plot_curves({name: [curve]}, folder / CURVES)
    return None
