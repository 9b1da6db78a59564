"""What is in the folders that `trl-ces train`, `study` and `eval` wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...support.errors import UserError
from ...train.recipe import RECIPE
from ..evaluation.comparison import Run, UnfinishedRun, load_run
from ..evaluation.samples import SETTINGS, read_settings_file
from ..study.results import RESULTS
from .studies import StudyRuns, read_study
from .trainings import STATE, Training, logged_checkpoints, read_training


@dataclass
class Found:
    """What the named folders hold; `notes` say what they lack, and how to get it."""

    studies: list[StudyRuns] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    evaluations: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def all_trainings(self) -> list[Training]:
        """The studies' too."""
        return [*self.trainings, *(training for study in self.studies for training in study.trainings)]

    def names(self) -> list[str]:
        """Every name that pictures distinguish, the trained methods first: its place decides its style."""
        trained = [training.method for training in self.all_trainings()]
        measured = [method for study in self.studies for method in study.runs["method"]]
        lines = [line for study in self.studies for line in study.lines()]
        return list(dict.fromkeys([*lines, *trained, *(run.name for run in self.evaluations), *measured]))


def read_runs(places: Sequence[Path], names: Sequence[str] | None = None) -> Found:
    """Reads folders of trainings, studies and evaluations, in any mixture."""
    found = Found()
    for place, name in zip(places, names or short_names(places), strict=True):
        _read(place, name, found)
    for name, count in Counter(run.name for run in found.evaluations).items():
        if count > 1:
            raise UserError(f"Two evaluations are called {name!r}: give each a name of its own with `--names`.")
    if not found.studies and not found.trainings and not found.evaluations:
        raise UserError(f"There is nothing to report yet. {' '.join(found.notes)}")
    return found


def runs_below(place: Path) -> list[Path]:
    """The folder itself if it holds a run, else those of its folders that do, else itself, to be refused."""
    if _holds_a_run(place):
        return [place]
    return sorted(child for child in place.glob("*/") if _holds_a_run(child)) or [place]


def _holds_a_run(place: Path) -> bool:
    files = any((place / name).is_file() for name in (RESULTS, SETTINGS, STATE))
    return place.is_file() or files or bool(logged_checkpoints(place)) or bool(list(place.glob(f"*/seed-*/{RECIPE}")))


def _read(place: Path, name: str, found: Found) -> None:
    if place.is_file() and place.suffix == ".csv":
        found.studies.append(read_study(place, name, found.notes))
        return
    known = False
    if (place / RESULTS).is_file():
        found.studies.append(read_study(place / RESULTS, name, found.notes))
        known = True
    elif list(place.glob(f"*/seed-*/{RECIPE}")) or list(place.glob(f"*/*/seed-*/{RECIPE}")):
        found.notes.append(f"{place} is a study with no finished run: its `trl-ces study` command continues it.")
        known = True
    if (place / SETTINGS).is_file() and "benchmarks" in read_settings_file(place):
        _read_evaluation(place, name, found)
        known = True
    if (place / STATE).is_file() or logged_checkpoints(place):
        training = read_training(place, name, found.notes)
        if training is not None:
            found.trainings.append(training)
        known = True
    if not known:
        what = "holds no run" if place.exists() else "does not exist"
        raise UserError(
            f"{place} {what}: name an output directory of `trl-ces train` (it holds {STATE}), `trl-ces study` "
            f"({RESULTS}) or `trl-ces eval` ({SETTINGS})."
        )


def _read_evaluation(place: Path, name: str, found: Found) -> None:
    try:
        found.evaluations.append(load_run(place, name))
    except UnfinishedRun as error:  # it is named, and the rest is shown
        found.notes.append(f"Not shown: {error}")


def short_names(places: Sequence[Path]) -> list[str]:
    """The folders' names, with as many of their parents as it takes to distinguish them."""
    paths = [place.parent if place.name == RESULTS else place for place in places]
    full = [path.expanduser().resolve() for path in paths]
    parts = [(path.with_suffix("") if path.is_file() else path).parts for path in full]
    for count in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return ["/".join(part[-1:]) for part in parts]
