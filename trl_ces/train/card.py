"""The model card: what was trained and how, how to use the model, what to cite. Read from the files of the run."""

import dataclasses
import json
import os
import shlex
from collections.abc import Mapping
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
from .curves import logged_accuracy_reward, plot_curves, read_curves
from .launch import ACCELERATE
from .recipe import RECIPE

FACTS = "run.json"  # the rule's title, the resolved settings and the package versions
ADAPTER, CARD, CURVES = "adapter_config.json", "README.md", "curves.png"
# Settings that a card shows beside those of the shaping; the others are in recipe.yaml.
TRAINING_FIELDS = (
    "loss_type", "epsilon", "epsilon_high", "beta", "learning_rate", "lr_scheduler_type", "warmup_steps", "adam_beta1",
    "adam_beta2", "max_grad_norm", "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps",
    "steps_per_generation", "num_iterations", "temperature", "top_p", "max_completion_length", "seed", "world_size",
)  # fmt: skip
PATHS = ("model_name_or_path", "dataset_name", "eval_dataset_name", "reward_model_name_or_path")
SHOWN_IN_TEXT = {"dataset_name", "model_builder", "model_builder_kwargs", "system_prompt"}
PAPER = "[arXiv 2605.19358](https://arxiv.org/abs/2605.19358)"
LOGGED = (
    "reward", "completions/mean_length", "entropy", "ces/group_accuracy", "ces/selected_tokens",
    "ces/shaping_to_advantage", "ces/sign_flip_share",
)  # fmt: skip


def write_facts(folder: Path, args: CESConfig) -> None:
    """Write a run's resolved settings and package versions into its `output_dir`."""
    own = [name for name in vars(args) if name.startswith(f"{args.shaping}_")]
    own += ["shaping_kwargs"] if args.shaping_kwargs else []
    values = {name: getattr(args, name) for name in ("shaping", *own, *TRAINING_FIELDS)}  # no token among them
    settings = {name: getattr(value, "value", value) for name, value in values.items()}
    rule = args.rule.title if args.rule is not None else None
    started = {"accelerate_config": os.environ.get(ACCELERATE)}
    write_json(folder / FACTS, {"rule": rule, "settings": settings, **started, "packages": environment()})


def write_card(folder: Path, repo: str) -> list[str]:
    """
    Write the card and the curves of the run in `folder`; return what is missing, and why.

    `repo` is the name to load the model by.
    """
    from ..trainer import CESTrainer  # loads TRL, which takes seconds

    recipe, state = read_yaml(folder / RECIPE), cast("dict[str, Any]", read_state(folder))
    recorded = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    settings, name = recorded["settings"], repo.split("/")[-1]
    base = str(recipe["model_name_or_path"])
    dataset = str(recipe.get("dataset_name") or recipe.get("dataset_builder"))
    problem = _draw_curves(folder, name, logged_accuracy_reward(state, recipe))
    is_adapter = (folder / ADAPTER).is_file()
    base_on_hub, dataset_on_hub = not is_local(base), "/" in dataset and not is_local(dataset)
    method = "ces" if settings["shaping"] == "ces" else settings["loss_type"]
    metadata = ModelCardData(
        base_model=base if base_on_hub else None,
        base_model_relation=("adapter" if is_adapter else "finetune") if base_on_hub else None,
        datasets=dataset if dataset_on_hub else None,
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=list(dict.fromkeys(["trl", "grpo", method, "generated_from_trainer"])),
    )
    data_fields = {field.name for field in dataclasses.fields(ScriptArguments)} - SHOWN_IN_TEXT
    local = {key: Path(recipe[key]).name for key in PATHS if is_local(str(recipe.get(key)))}
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
        method=trained_with(recorded["rule"], settings, recipe),
        effect=effect(settings),
        is_adapter=is_adapter,
        has_chat_template=(folder / "chat_template.jinja").is_file(),
        system_prompt=recipe.get("system_prompt", recipe_fields()["system_prompt"].default),
        shown={
            "Shaping": {key: value for key, value in settings.items() if key not in TRAINING_FIELDS},
            "Data, prompts and rewards": {
                key: local.get(key, value) for key, value in recipe.items() if key in data_fields
            },
            "Optimization and sampling": {key: settings[key] for key in TRAINING_FIELDS},
            "Versions": {key: value for key, value in recorded["packages"].items() if value != MISSING},
        },
        has_curves=problem is None,
        logged=[(key, values[0], values[-1]) for key, values in logged.items() if values],
        command=_train_command(recipe, settings["world_size"], recorded["accelerate_config"]),
        paths=[f"`{key}` (there `{name}`)" for key, name in local.items()],
        citation=CESTrainer._paper["citation"],
    )  # fmt: skip
    write_text(folder / CARD, card.content + "\n")
    return [] if problem is None else [problem]


def _draw_curves(folder: Path, name: str, reward: str | None) -> str | None:
    """Draw curves.png; return why not."""
    curve = read_curves(folder, reward) if reward is not None else None
    if curve is None or not curve["step"]:
        return f"No {CURVES}: no accuracy was logged."
    if find_spec("matplotlib") is None:
        return f"No {CURVES}: it needs matplotlib ({install_line('lab')})."
    plot_curves({name: [curve]}, folder / CURVES)
    return None


def _train_command(recipe: Mapping[str, Any], processes: int, accelerate_config: str | None) -> str:
    words = ["trl-ces", "train", "--config", RECIPE, "--output_dir", "my-run"]
    words += ["--accelerate_config", accelerate_config] if accelerate_config is not None else []
    words += ["--num_processes", str(processes)] if processes > 1 else []
    return shlex.join(words + (["--push_to_hub", "false"] if recipe.get("push_to_hub") else []))


def trained_with(rule: str | None, settings: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """Return the objective, its token rule and what the recipe adds: `DAPO, ... and dynamic sampling`."""
    loss = settings["loss_type"]
    words = ["DAPO" if loss == "dapo" else f"GRPO (`loss_type` {loss})"]
    if rule is not None:
        changes = {
            "without the dynamic multiplier b": settings.get("ces_dynamic_multiplier") is False,
            "without the gradient through the entropy": settings.get("ces_entropy_gradient") is False,
            f"capped at |A| / {settings.get('ces_cap_incorrect')} on incorrect completions":
            settings.get("ces_cap_incorrect") is not None,
        }  # fmt: skip
        words.append(f"{rule} {' and '.join(text for text, holds in changes.items() if holds)}".strip())
    rewards = [name.rpartition(".")[2] for name in recipe.get("reward_funcs") or []]
    share = recipe.get("top_entropy_quantile", 1.0)
    added = {
        "dynamic sampling": recipe.get("dynamic_sampling"),
        **{f"the reward `{name.removeprefix('get_')}`": name.startswith("get_") for name in rewards},
        "rewards scaled by the batch": recipe.get("scale_rewards") == "batch",
        "rewards normalized one by one (GDPO)": recipe.get("multi_objective_aggregation") == "normalize_then_sum",
        f"a loss on the {100 * share:g} % of the tokens with the highest entropy": share < 1,
        "an adaptive entropy bonus": recipe.get("use_adaptive_entropy"),
        "an entropy bonus": recipe.get("entropy_coef") and not recipe.get("use_adaptive_entropy"),
    }
    words += [text for text, holds in added.items() if holds]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def effect(settings: Mapping[str, Any]) -> str:
    """Return what CES does at the most uncertain tokens, as a sentence; empty for other shapings."""
    if settings["shaping"] != "ces":
        return ""
    sides = (("correct", settings["ces_beta_correct"]), ("incorrect", -settings["ces_beta_incorrect"]))
    parts = [f"{'lowers the entropy of' if beta > 0 else 'raises the entropy of'} {which} completions"
             for which, beta in sides if beta and settings["ces_tau"] != 0]  # fmt: skip
    if not parts:
        return "These settings change no token."
    return f"At the most uncertain tokens, CES ({PAPER}) {' and '.join(parts)}."
