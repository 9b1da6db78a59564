"""A study's folder: results.csv, curves.csv beside it, and the folders of its runs as far as they are there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError
from ...train.checkpoints import read_state
from ...train.recipe import RECIPE
from ..study.folder import EVALUATION, TRAINING
from ..study.front import read_settings
from ..study.results import CURVES, RESULTS, read_curve_table, read_results
from .trainings import STATE, Training, pace, read_training

if TYPE_CHECKING:
    from pandas import DataFrame, Series


@dataclass(frozen=True)
class StudyRuns:
    """A study: its name, its folder, the rows of its results.csv, and its trainings."""

    name: str
    folder: Path
    runs: DataFrame
    trainings: list[Training]

    def part(self, variant: str) -> str:
        """The title of what is shown of a variant."""
        return f"{self.name}, {variant}" if variant else self.name

    def baseline(self, wanted: str) -> str:
        """`wanted`, or if the study has no such method its first trained one."""
        methods = self.runs["method"]
        trained = methods[trained_rows(self.runs)]
        return wanted if wanted in set(trained) else next(iter(trained), methods.iloc[0])

    def lines(self) -> list[str]:
        """The lines of methods, which may have several strengths, the trained ones first; none without the column."""
        trained = trained_rows(self.runs)
        parts = (self.runs[trained], self.runs[~trained]) if "line" in self.runs else ()
        return [setting.line for runs in parts for setting in read_settings(runs)]

    @cached_property
    def recipes(self) -> dict[tuple[str, str, int], dict[str, Any]]:
        """(variant, method, seed) -> the recipe of that run."""
        return dict(zip(_places(self.runs), map(json.loads, self.runs["settings"]), strict=True))

    @property
    def command(self) -> str:
        """The command that made it: a study names its runs `NAME-method-seed-N`."""
        settings = next(iter(self.recipes.values()))
        tail = "-".join(Path(settings.get("output_dir", "")).parts[-2:])
        name = str(settings.get("run_name", "")).removesuffix(f"-{tail}") or "NAME"
        return f"trl-ces study --config {name}"


def _places(runs: DataFrame) -> list[tuple[str, str, int]]:
    return list(runs[["variant", "method", "seed"]].itertuples(index=False, name=None))


def trained_rows(runs: DataFrame) -> Series:
    """Which rows are of a training, not of the model before it."""
    return runs.reindex(columns=["train/steps"])["train/steps"].notna()


def read_study(results: Path, name: str, notes: list[str]) -> StudyRuns:
    """Reads a study from its results.csv; without the files beside it, it has no trainings."""
    runs = read_results(results)
    if runs.empty:
        raise UserError(f"{results} holds no run: start the study again, it goes on.")
    study = StudyRuns(name, results.parent, runs, [])
    if results.name == RESULTS:
        study.trainings.extend(_trainings(study))
    if not study.trainings:
        notes.append(f"{results}: no {CURVES} beside it, so no curves. `{study.command}` writes it at its end.")
    notes += _missing(study)
    return study


def _trainings(study: StudyRuns) -> Iterator[Training]:
    """The runs with their curves; in a study that has not ended, which writes curves.csv last, with their own logs."""
    curves = read_curve_table(study.folder / CURVES) if (study.folder / CURVES).is_file() else {}
    for run, curve in curves.items():
        variant, method, seed = run
        settings = study.recipes.get(run, {})
        cell = _cell(study.folder, settings)
        state = read_state(cell)
        yield Training(method, seed, cell, curve, settings, pace(state, settings) if state else None, variant)
    for variant, method, seed in _places(study.runs[trained_rows(study.runs)]):
        settings = study.recipes[variant, method, seed]
        cell = _cell(study.folder, settings)
        if (variant, method, seed) not in curves and (cell / STATE).is_file():
            training = read_training(cell, method, [])
            if training is not None:
                yield replace(training, seed=seed, settings=settings, variant=variant)


def _missing(study: StudyRuns) -> list[str]:
    """Runs that were begun and are not among the rows, and seeds that some methods lack."""
    notes = []
    folder = study.folder
    known = {_cell(folder, settings) for settings in study.recipes.values()}
    # What a run of this study writes last.
    last = EVALUATION if any((cell / EVALUATION).is_file() for cell in known) else TRAINING
    cells = sorted(file.parent for file in folder.rglob(f"seed-*/{RECIPE}"))
    begun = [cell for cell in cells if cell not in known and not (cell / last).is_file()]
    if begun:
        listed = ", ".join(str(place.relative_to(folder)) for place in begun)
        notes.append(f"{folder}: not finished, and left out: {listed}. `{study.command}` goes on with them.")
    trained = study.runs[trained_rows(study.runs)]
    for (variant, method), runs in trained.groupby(["variant", "method"], sort=False):
        lacking = [str(seed) for seed in trained["seed"].unique() if seed not in set(runs["seed"])]
        if lacking:
            name = f"{variant}, {method}" if variant else method
            notes.append(f"{folder}: {name} has no finished run of seed {', '.join(lacking)}.")
    return notes


def _cell(folder: Path, settings: dict[str, Any]) -> Path:
    """The folder of a run, wherever the study has been moved."""
    parts = Path(settings.get("output_dir", "")).parts
    short, long = folder.joinpath(*parts[-2:]), folder.joinpath(*parts[-3:])
    return long if long.is_dir() else short
