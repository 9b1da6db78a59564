"""A training's folder: its log, recipe and seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...support.errors import UserError
from ...support.yaml import read_yaml
from ...train.checkpoints import STATE, checkpoints, read_state
from ...train.curves import Curve, logged_accuracy_reward, read_curves
from ...train.recipe import RECIPE


@dataclass(frozen=True)
class Training:
    method: str  # the name it is drawn under; runs of one name are seeds of one method
    seed: int | None  # `None` if unknown
    folder: Path
    curve: Curve
    settings: dict[str, Any]  # its recipe, empty if the folder holds none
    samples_per_step: float | None  # training problems per optimizer step; `None` if unknown
    variant: str = ""  # of a study

    @property
    def name(self) -> str:
        """What the page calls the method."""
        return f"{self.method}, {self.variant}" if self.variant else self.method

    @property
    def is_whole_ces(self) -> bool:
        """Whether all of CES shapes the run, no ablation; a recipe may leave fields at CESConfig's defaults."""
        found = self.settings.get
        betas = found("ces_beta_correct", 0.4), found("ces_beta_incorrect", 0.4)
        whole = found("ces_dynamic_multiplier", True) and found("ces_entropy_gradient", True) and min(betas) > 0
        return found("shaping", "ces") == "ces" and whole and found("ces_cap_incorrect") is None


def read_training(place: Path, name: str, notes: list[str]) -> Training | None:
    """A training's newest log, of a checkpoint while it trains; `None`, and a note, if nothing was logged."""
    folders = [place, *logged_checkpoints(place).values()]
    states = {folder: state for folder in folders if (state := read_state(folder)) is not None}
    if not states:
        raise UserError(f"{folders[-1] / STATE} is damaged: remove that folder, or leave {place} out.")
    source, state = max(states.items(), key=lambda entry: entry[1]["global_step"])  # at the same step, the run's own
    settings = read_recipe(place)
    if source != place:
        notes.append(
            f"{place} is unfinished: shown up to its checkpoint at step {state['global_step']} of "
            f"{state.get('max_steps') or 0}. Its `trl-ces train` with `--resume_from_checkpoint true` continues it."
        )
    reward = logged_accuracy_reward(state, settings)
    if reward is None:
        notes.append(
            f"{place} is left out: the accuracy is ambiguous among its rewards. Set `ces_accuracy_reward` in its "
            f"{RECIPE}."
        )
        return None
    curve = read_curves(source, reward)
    if not curve["step"]:
        notes.append(f"{place} is left out: no step was logged (`logging_steps`).")
        return None
    return Training(name, settings.get("seed"), place, curve, settings, pace(state, settings))


def read_recipe(place: Path) -> dict[str, Any]:
    """The recipe in a run's folder, empty if there is none."""
    return read_yaml(place / RECIPE) if (place / RECIPE).is_file() else {}


def logged_checkpoints(place: Path) -> dict[int, Path]:
    """Step -> the checkpoint of a run, of those with a log, oldest first."""
    return {step: folder for step, folder in checkpoints(place).items() if (folder / STATE).is_file()}


def pace(state: dict[str, Any], settings: dict[str, Any]) -> float | None:
    """Training problems per optimizer step: an epoch meets each once, and the recipe says how many there are."""
    rows, steps = settings.get("max_train_samples"), state["global_step"]
    return rows * state["epoch"] / steps if rows and steps and state.get("epoch") else None
