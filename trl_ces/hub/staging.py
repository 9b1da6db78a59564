"""The folder that is uploaded: which files of a run go into it, an adapter merged, and no secrets."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from ..evaluation.models import first_line
from ..report.runs import STATE
from ..support.errors import UserError, hub_errors
from ..support.yaml import read_yaml
from ..train.checkpoints import damage, read_state
from ..train.recipe import RECIPE
from .card import REPORT
from .facts import ADAPTER, CARD, FACTS

# By name: a checkpoint's rollout-0.safetensors holds prompts and completions.
WEIGHTS = (
    "model*.safetensors", "adapter_model*.safetensors", "model.safetensors.index.json",
    "adapter_model.safetensors.index.json",
)  # fmt: skip
# What belongs to a model. No pickles: they can run code, and the training_args.bin of a script can hold a token.
MODEL_FILES = (
    *WEIGHTS, "config.json", "generation_config.json", ADAPTER, "tokenizer*", "special_tokens_map.json",
    "added_tokens.json", "vocab*", "merges.txt", "chat_template*", "*.model", "*processor_config.json",
    "modeling_*.py", "configuration_*.py",
)  # fmt: skip
PICKLED_ARGUMENTS = "training_args.bin"
LINKED_BYTES = 2**20
STAGE = "_push-"  # the Trainer, too, leaves what begins with _ at home
SECRET_NAME = re.compile(r"TOKEN(?!IZ|S)|SECRET|PASSWORD|API_?KEY|ACCESS_KEY", re.IGNORECASE)
SECRET_SHAPE = re.compile(r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pous]_[A-Za-z0-9]{30,})\b")


@contextmanager
def stage(home: Path) -> Iterator[Path]:
    """
    A folder in `home`, on its disk so that files can be linked, which is gone afterwards.

    Raises:
        UserError: if `home` cannot be written.
    """
    folder = open_stage(home)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def open_stage(home: Path) -> Path:
    """As [`stage`], to be removed by whoever is done with it. What a killed process left behind is removed here."""
    for left in home.glob(f"{STAGE}*"):
        process = left.name.removeprefix(STAGE).partition("-")[0]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    try:
        return Path(tempfile.mkdtemp(dir=home, prefix=f"{STAGE}{os.getpid()}-"))
    except OSError as error:
        raise UserError(f"{home} cannot be written ({error.strerror}), and a push needs a folder in it.") from None


def find_weights(run: Path) -> Path:
    """
    Where a run's newest weights are: in its folder once it has ended, else in its newest whole checkpoint.

    Raises:
        UserError: if there are none, or they are damaged.
    """
    if not run.is_dir():
        raise UserError(f"{run} does not exist: name an output directory of `trl-ces train`.")
    found = {}
    for place in (run, *run.glob("checkpoint-*")):
        state = read_state(place)
        if state is not None and any(file for pattern in WEIGHTS for file in place.glob(pattern)):
            found[place] = (state["global_step"], place == run)  # of two at one step the run's own
    wrong = []
    for place in sorted(found, key=lambda place: found[place], reverse=True):
        # The run's own are checked in the staged folder, where no checkpoints lie beside them
        problem = None if place == run else damage(place)
        if problem is None:
            return place
        wrong.append(f"{place}: {problem}")
    if wrong:
        raise UserError(f"The weights are damaged ({'; '.join(wrong)}): nothing whole is there to push.")
    raise UserError(
        f"{run} holds no trained weights (safetensors, with {STATE}): name an output directory of `trl-ces train`."
    )


def home_of(run: Path) -> Path:
    """The folder with recipe.yaml: a checkpoint's is beside it."""
    return run.parent if not (run / RECIPE).is_file() and (run.parent / RECIPE).is_file() else run


def place_run(weights: Path, home: Path, folder: Path) -> None:
    """
    Links what a push takes along from a run into `folder`.

    Args:
        weights (`Path`): The run's folder or one of its checkpoints: model, tokenizer and log.
        home (`Path`): Where its recipe.yaml and run.json are.
        folder (`Path`): From [`stage`].

    Raises:
        UserError: if a file of weights is damaged.
    """
    for pattern in MODEL_FILES:
        for file in weights.glob(pattern):
            if file.is_file():
                _link(file, folder / file.name)
    _link(weights / STATE, folder / STATE)
    for name in (RECIPE, FACTS):
        if (home / name).is_file():
            _link(home / name, folder / name)
    problem = damage(folder)
    if problem is not None:
        raise UserError(f"The weights in {weights} are damaged ({problem}): push one of the run's checkpoints.")


def place_checkpoint(checkpoint: Path, folder: Path) -> None:
    """Links a whole checkpoint, from which a training can go on, into the new `folder`."""
    for file in checkpoint.rglob("*"):
        if file.is_file() and file.name != PICKLED_ARGUMENTS:
            _link(file, folder / file.relative_to(checkpoint))


def merge(adapter: Path, folder: Path) -> None:
    """
    Replaces an adapter in the staged `folder` by its model, base included, in the base's own dtype.

    Args:
        adapter (`Path`): The run's folder or one of its checkpoints.
        folder (`Path`): Filled by [`place_run`].

    Raises:
        UserError: if the base cannot be loaded.
    """
    from peft import AutoPeftModelForCausalLM

    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError, ImportError, KeyError, RuntimeError)
    try:
        model = AutoPeftModelForCausalLM.from_pretrained(str(adapter), dtype="auto")
    except refusals as error:
        raise UserError(f"The adapter in {adapter} cannot be loaded onto its base: {first_line(error)}") from error
    for pattern in (*WEIGHTS, ADAPTER):
        for file in folder.glob(pattern):
            file.unlink()
    model.merge_and_unload().save_pretrained(str(folder))


def secrets_in(env: Mapping[str, Any]) -> dict[str, str]:
    """Value -> name of the variables whose names say that they are secret."""
    return {str(value): name for name, value in env.items() if SECRET_NAME.search(name) and len(str(value)) > 7}


def check_secrets(folder: Path) -> None:
    """
    Looks for tokens in what the run itself wrote, the recipe's `env` above all.

    Raises:
        UserError: naming the file, not the token.
    """
    from huggingface_hub import get_token

    env = read_yaml(folder / RECIPE).get("env") if (folder / RECIPE).is_file() else None
    known = secrets_in(os.environ) | secrets_in(env if isinstance(env, dict) else {})
    known |= {token: "your token for the Hub" for token in [get_token()] if token}
    for name in (RECIPE, STATE, FACTS, CARD, REPORT, "config.json", ADAPTER):
        file = folder / name
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        found = next((of for value, of in known.items() if value in text), None)
        if found is None and SECRET_SHAPE.search(text):
            found = "what looks like a token"
        if found is not None:
            raise UserError(
                f"{name} holds {found} and would be uploaded: take it out of the run's {name} and push again. A "
                "recipe's `env` is no place for it, the environment is."
            )


def _link(file: Path, place: Path) -> None:
    """Copies a small file; gives a large one a second name, which stays when the Trainer removes the first."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if file.stat().st_size >= LINKED_BYTES:
        try:
            os.link(file, place)
            return
        except OSError:  # a disk without links, or another one
            pass
    shutil.copyfile(file, place)
