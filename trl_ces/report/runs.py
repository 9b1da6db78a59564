"""What is in the folders that `trl-ces train`, `study` and `eval` wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..evaluation.comparison import Run, load_run
from ..evaluation.samples import SAMPLES, SETTINGS
from ..study.comparison import ABLATIONS
from ..study.results import CURVES, RESULTS, read_curve_table, read_results
from ..support.errors import UserError
from ..support.reward_names import accuracy_reward_index
from ..support.yaml import read_yaml
from ..train.checkpoints import read_state
from ..train.curves import Curve, read_curves
from ..train.recipe import RECIPE

Row = dict[str, Any]
STATE = "trainer_state.json"


@dataclass(frozen=True)
class Training:
    """
    One training run.

    Args:
        method (`str`): Under which name it is drawn; runs of one name are seeds of one method.
        seed (`int`, *optional*): `None` where nothing tells it.
        folder (`Path`): Its output directory.
        curve (`Curve`): What was logged.
        settings (`dict`): Its recipe, empty where the folder holds none.
        samples_per_step (`float`, *optional*): Training problems met in an optimizer step; `None` where nothing tells.
        variant (`str`): Of a study, else empty.
    """

    method: str
    seed: int | None
    folder: Path
    curve: Curve
    settings: dict[str, Any]
    samples_per_step: float | None
    variant: str = ""


@dataclass(frozen=True)
class StudyRuns:
    """A study: its name, the rows of its results.csv, and its trainings."""

    name: str
    folder: Path
    rows: list[Row]
    trainings: list[Training]

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(row["variant"] for row in self.rows))

    def methods(self, variant: str) -> dict[str, list[Row]]:
        """Method -> its rows, in the file's order."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if row["variant"] == variant:
                found.setdefault(row["method"], []).append(row)
        return found

    def baseline(self, wanted: str) -> str:
        """`wanted`, or where the study has no such method its first trained one."""
        trained = [row["method"] for row in self.rows if "train/steps" in row]
        return wanted if wanted in trained else next(iter(trained), self.rows[0]["method"])


@dataclass
class Found:
    """Everything that the named folders hold; `notes` say what they lack, and how to get it."""

    studies: list[StudyRuns] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    evaluations: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def all_trainings(self) -> list[Training]:
        """Those of the studies too."""
        return [*self.trainings, *(training for study in self.studies for training in study.trainings)]


def read_runs(places: Sequence[Path], names: Sequence[str] | None = None) -> Found:
    """
    Reads folders of trainings, studies and evaluations, in any mixture.

    Args:
        places (`Sequence[Path]`): Output directories, or a study's results.csv.
        names (`Sequence[str]`, *optional*): What to call them, one for each; else as the folders are called.

    Raises:
        UserError: if one of them is none, a file is damaged, or there is nothing to show in any.
    """
    found = Found()
    for place, name in zip(places, names or short_names(places), strict=True):
        _read(place, name, found)
    if not found.studies and not found.trainings and not found.evaluations:
        raise UserError(f"There is nothing to report yet. {' '.join(found.notes)}")
    return found


def _read(place: Path, name: str, found: Found) -> None:
    if place.is_file() and place.suffix == ".csv":
        found.studies.append(read_study(place, name, found.notes))
        return
    known = False
    if (place / RESULTS).is_file():
        found.studies.append(read_study(place / RESULTS, name, found.notes))
        known = True
    elif list(place.glob(f"*/seed-*/{RECIPE}")) or list(place.glob(f"*/*/seed-*/{RECIPE}")):
        found.notes.append(f"{place} is a study none of whose runs has finished: start it again, it goes on there.")
        known = True
    if (place / SETTINGS).is_file() and "benchmarks" in _json(place / SETTINGS):
        _read_evaluation(place, name, found)
        known = True
    if (place / STATE).is_file() or list(place.glob(f"checkpoint-*/{STATE}")):
        training = read_training(place, name, found.notes)
        if training is not None:
            found.trainings.append(training)
        known = True
    if not known:
        what = "does not exist" if not place.exists() else "was written by none of them"
        raise UserError(
            f"{place} {what}: name an output directory of `trl-ces train` (it holds {STATE}), `trl-ces study` "
            f"({RESULTS}) or `trl-ces eval` ({SETTINGS})."
        )


def _read_evaluation(place: Path, name: str, found: Found) -> None:
    try:
        run = load_run(place, name)
    except UserError as error:  # what was not finished is named, and the rest is shown
        if not (place / SAMPLES).is_file() or "go on" in str(error) or "goes on" in str(error):
            found.notes.append(f"Not shown: {error}")
            return
        raise
    found.evaluations.append(run)


def read_training(place: Path, name: str, notes: list[str]) -> Training | None:
    """A training's log, of its newest checkpoint where it has not ended; `None`, and a note, if nothing was logged."""
    source = place if (place / STATE).is_file() else _newest(place)
    state = read_state(source)
    if state is None:
        raise UserError(f"{source / STATE} is damaged: remove that folder, or leave {place} out.")
    settings = read_recipe(place)
    total = state.get("max_steps") or 0
    if source != place:
        notes.append(
            f"{place} has not ended: shown up to its checkpoint at step {state['global_step']} of {total}. Its "
            "`trl-ces train` goes on there with `--resume_from_checkpoint true`."
        )
    reward = _accuracy_reward(state["log_history"], settings)
    if reward is None:
        notes.append(
            f"{place} is left out: it cannot be told which of its rewards is the accuracy. Set "
            f"`ces_accuracy_reward` in its {RECIPE}."
        )
        return None
    curve = read_curves(source, reward)
    if not curve["step"]:
        notes.append(f"{place} is left out: no step was logged (`logging_steps`).")
        return None
    return Training(name, settings.get("seed"), place, curve, settings, _pace(state, settings))


def read_recipe(place: Path) -> dict[str, Any]:
    """The recipe in a run's folder, empty if there is none."""
    return read_yaml(place / RECIPE) if (place / RECIPE).is_file() else {}


def _newest(place: Path) -> Path:
    """The checkpoint of the most steps."""
    return max((file.parent for file in place.glob(f"checkpoint-*/{STATE}")), key=_step_of)


def _step_of(checkpoint: Path) -> int:
    number = re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    return int(number[1]) if number else -1


def _accuracy_reward(history: list[dict[str, Any]], settings: dict[str, Any]) -> str | None:
    """Name of the reward that is the accuracy, by the trainer's own rule; `None` if it cannot be told."""
    keys = dict.fromkeys(key for entry in history for key in entry)
    names = [found[1] for found in (re.fullmatch(r"rewards/(.+)/mean", key) for key in keys) if found]
    try:
        return names[accuracy_reward_index(names, settings.get("ces_accuracy_reward"))] if names else None
    except ValueError:
        return None


def _pace(state: dict[str, Any], settings: dict[str, Any]) -> float | None:
    """Training problems met in an optimizer step: an epoch is one meeting with each, and the recipe says how many."""
    rows, steps = settings.get("max_train_samples"), state["global_step"]
    return rows * state["epoch"] / steps if rows and steps and state.get("epoch") else None


def read_study(results: Path, name: str, notes: list[str]) -> StudyRuns:
    """
    A study from its results.csv, the curves.csv beside it, and the folders of its runs as far as they are there.

    Raises:
        UserError: if results.csv is none, or holds no run.
    """
    rows = [row.dropna().to_dict() for _, row in read_results(results).iterrows()]
    if not rows:
        raise UserError(f"{results} holds no run: start the study again, it goes on.")
    folder = results.parent
    by_run = {(row["variant"], row["method"], row["seed"]): row for row in rows}
    curves: dict[tuple[str, str, int], Curve] = {}
    if results.name == RESULTS and (folder / CURVES).is_file():
        curves = read_curve_table(folder / CURVES)
    trainings = []
    for (variant, method, seed), curve in curves.items():
        row = by_run.get((variant, method, seed), {})
        settings = json.loads(row["settings"]) if row else {}
        cell = _cell(folder, settings)
        state = read_state(cell)
        pace = _pace(state, settings) if state else None
        trainings.append(Training(method, seed, cell, curve, settings, pace, variant))
    if results.name == RESULTS:
        trainings += _own_logs(folder, [row for run, row in by_run.items() if run not in curves])
    if not trainings:
        notes.append(f"{results}: no {CURVES} beside it, so no curves. `{command_of(rows[0])}` writes it at its end.")
    notes += _missing_cells(folder, rows)
    return StudyRuns(name, folder, rows, trainings)


def _own_logs(folder: Path, rows: list[Row]) -> list[Training]:
    """The trainings of a study that has not ended: its curves.csv is written last, and each run has its own log."""
    found = []
    for row in rows:
        settings = json.loads(row["settings"])
        cell = _cell(folder, settings)
        if "train/steps" in row and (cell / STATE).is_file():
            training = read_training(cell, row["method"], [])
            if training is not None:
                found.append(replace(training, seed=row["seed"], settings=settings, variant=row["variant"]))
    return found


def _missing_cells(folder: Path, rows: list[Row]) -> list[str]:
    """Runs that were begun and are not among the rows, and seeds that some methods lack."""
    notes = []
    known = {_cell(folder, json.loads(row["settings"])) for row in rows}
    # What a run of this study writes last.
    last = "evaluation.json" if any((cell / "evaluation.json").is_file() for cell in known) else "training.json"
    cells = sorted(file.parent for file in folder.rglob(f"seed-*/{RECIPE}"))
    begun = [cell for cell in cells if cell not in known and not (cell / last).is_file()]
    if begun:
        listed = ", ".join(str(place.relative_to(folder)) for place in begun)
        notes.append(f"{folder}: not finished, and left out: {listed}. `{command_of(rows[0])}` goes on with them.")
    trained = [row for row in rows if "train/steps" in row]
    seeds = dict.fromkeys(row["seed"] for row in trained)
    for variant, method in dict.fromkeys((row["variant"], row["method"]) for row in trained):
        own = {row["seed"] for row in trained if (row["variant"], row["method"]) == (variant, method)}
        lacking = [str(seed) for seed in seeds if seed not in own]
        if lacking:
            name = f"{variant}, {method}" if variant else method
            notes.append(f"{folder}: {name} has no finished run of seed {', '.join(lacking)}.")
    return notes


def _cell(folder: Path, settings: dict[str, Any]) -> Path:
    """The folder of a run, wherever the study has been moved."""
    parts = Path(settings.get("output_dir", "")).parts
    short, long = folder.joinpath(*parts[-2:]), folder.joinpath(*parts[-3:])
    return long if long.is_dir() else short


def is_whole_ces(settings: dict[str, Any]) -> bool:
    """Whether a recipe trains CES itself, not an ablation of it or another method."""
    return settings.get("shaping", "ces") == "ces" and all(settings.get(name, True) for name in ABLATIONS)


def command_of(row: Row) -> str:
    """The command that made a row: a study names its runs `NAME-method-seed-N`."""
    settings = json.loads(row["settings"])
    tail = "-".join(Path(settings.get("output_dir", "")).parts[-2:])
    name = str(settings.get("run_name", "")).removesuffix(f"-{tail}") or "NAME"
    return f"trl-ces study --config {name}"


def short_names(places: Sequence[Path]) -> list[str]:
    """The folders' names, with as many of their parents as it takes to tell them apart."""
    paths = [place.parent if place.name == RESULTS else place for place in places]
    full = [path.expanduser().resolve() for path in paths]
    parts = [(path.with_suffix("") if path.is_file() else path).parts for path in full]
    for count in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return ["/".join(part[-1:]) for part in parts]


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({error}).") from None
    return content if isinstance(content, dict) else {}
