"""The folder that is uploaded: which of a run's files go into it, an adapter merged, no pickles, no secrets."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from huggingface_hub import get_token

from ...support.errors import UserError, first_line, hub_errors
from ...support.yaml import read_yaml
from ...train.card import ADAPTER, FACTS
from ...train.checkpoints import STATE, damage, read_state
from ...train.recipe import RECIPE

REPORT = "report.html"
# By name, because a checkpoint's rollout-0.safetensors holds prompts and completions.
WEIGHTS, INDEX = ("model*.safetensors", "adapter_model*.safetensors"), "*.safetensors.index.json"
# What belongs to a model. No pickles: they can run code, and the training_args.bin of a script can hold a token.
MODEL_FILES = (
    *WEIGHTS, INDEX, "config.json", "generation_config.json", ADAPTER, "tokenizer*", "special_tokens_map.json",
    "added_tokens.json", "vocab*", "merges.txt", "chat_template*", "*.model", "*processor_config.json",
    "modeling_*.py", "configuration_*.py",
)  # fmt: skip
UNREAD = (*WEIGHTS, "tokenizer.json", "vocab*", "merges.txt", "*.model")
# Of an earlier push: an adapter beside merged weights, or another number of shards, would be what loads.
REPLACED = [*WEIGHTS, "model*.safetensors.index.json", ADAPTER]
PICKLED_ARGUMENTS = "training_args.bin"
LINKED = (".safetensors", ".pt", ".bin")
STAGE = "_push-"  # the Trainer's own push also skips names starting with `_`
SECRET_NAME = re.compile(r"TOKEN(?!IZ|S)|SECRET|PASSWORD|API_?KEY|ACCESS_KEY", re.IGNORECASE)
SECRET_SHAPE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pous]_[A-Za-z0-9]{30,}|github_pat_\w{30,})\b"
)


def stage(home: Path) -> TemporaryDirectory[str]:
    """A temporary folder in `home`, on its disk so that large files can be linked. Removes those of killed pushes."""
    for left in home.glob(f"{STAGE}*"):
        process = left.name.removeprefix(STAGE).partition("-")[0]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    try:
        return TemporaryDirectory(dir=home, prefix=f"{STAGE}{os.getpid()}-", ignore_cleanup_errors=True)
    except OSError as error:
        raise UserError(f"A push needs a folder in {home}, which is not writable ({error.strerror}).") from None


def find_weights(run: Path) -> Path:
    """The run's folder once it has ended, else its newest intact checkpoint."""
    found = {}
    for place in (run, *run.glob("checkpoint-*")):
        state = read_state(place)
        if state is not None and any(file for pattern in WEIGHTS for file in place.glob(pattern)):
            found[place] = (state["global_step"], place == run)  # at the same step, the run's own
    damaged = []
    for place in sorted(found, key=lambda place: found[place], reverse=True):
        # The run's own weights are checked once staged: `damage` would also look into the checkpoints beside them
        problem = None if place == run else damage(place)
        if problem is None:
            return place
        damaged.append(f"{place}: {problem}")
    what = f"holds no intact weights ({'; '.join(damaged)})" if damaged else "holds no trained weights (safetensors)"
    raise UserError(f"{run} {what}: name an output directory of `trl-ces train`.")


def home_of(run: Path) -> Path:
    """The folder with recipe.yaml: the parent of a checkpoint."""
    return run.parent if not (run / RECIPE).is_file() and (run.parent / RECIPE).is_file() else run


def place_run(weights: Path, home: Path, folder: Path) -> None:
    """Puts a run's files into `folder`: model, tokenizer and log of `weights`, recipe.yaml and run.json of `home`."""
    files = {file for pattern in MODEL_FILES for file in weights.glob(pattern)}  # tokenizer.model fits two
    for file in (*files, weights / STATE, home / RECIPE, home / FACTS):
        if file.is_file():
            _link(file, folder / file.name)
    problem = damage(folder)
    if problem is not None:
        raise UserError(f"The weights in {weights} are damaged ({problem}): push one of the run's checkpoints.")


def place_checkpoint(checkpoint: Path, folder: Path) -> None:
    """Puts a whole checkpoint, from which training can resume, into the new `folder`."""
    for file in checkpoint.rglob("*"):
        if file.is_file() and file.name != PICKLED_ARGUMENTS:
            _link(file, folder / file.relative_to(checkpoint))


def merge(adapter: Path, folder: Path) -> None:
    """Replaces the adapter in `folder` by the model in which the one in `adapter` is merged, in the base's dtype."""
    from peft import AutoPeftModelForCausalLM

    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError, ImportError, KeyError, RuntimeError)
    try:
        model = AutoPeftModelForCausalLM.from_pretrained(str(adapter), dtype="auto")
    except refusals as error:
        raise UserError(f"The adapter in {adapter} cannot be loaded onto its base: {first_line(error)}") from error
    for pattern in (*WEIGHTS, INDEX, ADAPTER):
        for file in folder.glob(pattern):
            file.unlink()
    model.merge_and_unload().save_pretrained(str(folder))


def secrets_in(env: Mapping[str, Any]) -> dict[str, str]:
    """Value -> name of the variables whose names say that they are secret."""
    return {str(value): name for name, value in env.items() if SECRET_NAME.search(name) and len(str(value)) > 7}


def check_secrets(folder: Path) -> None:
    """Scans all but weights and vocabularies, in which any word may stand, for tokens."""
    known = secrets_in(os.environ) | secrets_in(read_yaml(folder / RECIPE).get("env") or {})
    known |= {token: "your token for the Hub" for token in [get_token()] if token}
    for file in sorted(folder.iterdir()):
        if not file.is_file() or any(file.match(pattern) for pattern in UNREAD):
            continue
        name, text = file.name, file.read_text(encoding="utf-8", errors="replace")
        found = next((of for value, of in known.items() if value in text), None)
        if found is None and SECRET_SHAPE.search(text):
            found = "what looks like a token"
        if found is not None:
            raise UserError(
                f"{name} holds {found} and would be uploaded: remove it from the run's {name} and push again. Set "
                "secrets in the environment, not in a recipe's `env`."
            )


def _link(file: Path, place: Path) -> None:
    """Hard-links weights and states, which so outlive their removal by the Trainer; copies what a user may edit."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix in LINKED:
        try:
            os.link(file, place)
            return
        except OSError:  # no hard links, or another disk
            pass
    shutil.copyfile(file, place)
