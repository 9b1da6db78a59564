"""The report as one HTML file: what is on it, in which order, and its template's rendering."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.statistics import Interval, interval
from ..evaluation.summary import KINDS
from ..study.cells import slug
from ..study.comparison import estimate
from .cards import Card, evaluation_cards, study_cards
from .evaluations import compare_evaluations
from .figures import Point, difficulty_figure, forks_figure, plane_figure, training_figures
from .picture import DARK, LIGHT, Figure
from .questions import Split, split_of_tokens, splits_of_comparison
from .runs import Found, StudyRuns, Training, command_of, is_whole_ces
from .shaped_forks import follows
from .tables import Numbered, paper_tables
from .tokens import TokenFile, read_tokens
from .viewer import LEVELS, RunView, view_run

Tokens = list[tuple[Training, list[TokenFile]]]
UNTRAINED = "Before training"  # what the model of step 0 is called


@dataclass(frozen=True)
class Group:
    """Pictures under one heading, with the command that made their data."""

    title: str
    command: str
    figures: list[Figure]


@dataclass
class Page:
    """Everything that the template shows."""

    title: str
    command: str
    cards: list[Card] = field(default_factory=list)
    training: list[Group] = field(default_factory=list)
    planes: list[Group] = field(default_factory=list)
    difficulty: list[Group] = field(default_factory=list)
    tables: list[Numbered] = field(default_factory=list)
    forks: list[Group] = field(default_factory=list)
    tokens: list[RunView] = field(default_factory=list)
    runs: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: str = ""

    def figures(self) -> list[Figure]:
        """All of its pictures, each once."""
        groups = [*self.training, *self.planes, *self.difficulty, *self.forks]
        return [figure for group in groups for figure in group.figures]


def make_page(found: Found, command: str, baseline: str = "DAPO", verdict: str = "correct") -> Page:
    """
    What is to be shown of runs.

    Args:
        found ([`Found`]): The runs.
        command (`str`): The command line that makes the report.
        baseline (`str`): The method or run that others are compared with, where it is among them.
        verdict (`str`): `"correct"` or `"correct_qwen"`, of evaluations.

    Raises:
        UserError: if a file of a run is damaged.
    """
    names = [study.name for study in found.studies] + list(
        dict.fromkeys([training.method for training in found.trainings] + [run.name for run in found.evaluations])
    )
    page = Page(", ".join(names), command, notes=list(found.notes))
    tokens: Tokens = []
    for training in found.all_trainings():
        files = read_tokens(training.folder) if training.folder.is_dir() else []
        if files:
            tokens.append((training, files))
    # Runs with CES first: they are what the viewer is for.
    tokens.sort(key=lambda entry: not is_whole_ces(entry[0].settings))
    order = _order(found, tokens)
    for study in found.studies:
        _add_study(page, study, order, study.baseline(baseline))
    if found.trainings:
        commands = " and ".join(f"trl-ces train … --output_dir {training.folder}" for training in found.trainings[:3])
        page.training.append(Group("", commands, training_figures(found.trainings, order)))
    compared = compare_evaluations(found.evaluations, baseline, verdict, page.notes)
    splits = [split for entry in compared for split in splits_of_comparison(entry)]
    for number, entry in enumerate(compared):
        _add_evaluations(page, entry, order, number)
    splits += _token_splits(tokens)
    if splits:
        drawn = [
            difficulty_figure(split, order, f"difficulty_{number}") for number, split in enumerate(splits, start=1)
        ]
        page.difficulty.append(Group("", "", drawn))
    page.tables = paper_tables(found.studies, compared, splits, baseline)
    page.tokens = [view_run(_name(training), training.seed, files) for training, files in tokens]
    forks = _fork_figures(tokens, order)
    if forks:
        page.forks.append(Group("", f"{command}", forks))
    page.runs = _runs(found)
    page.versions = _versions(found)
    return page


def _name(training: Training) -> str:
    return f"{training.method}, {training.variant}" if training.variant else training.method


def _order(found: Found, tokens: Tokens) -> list[str]:
    """Every name that a picture tells apart, the trained methods first: its place decides its style."""
    trained = [training.method for training in found.all_trainings()]
    measured = [row["method"] for study in found.studies for row in study.rows]
    named = [name for training, _ in tokens for name in (_name(training), f"{_name(training)}, seed {training.seed}")]
    return list(dict.fromkeys([*trained, *(run.name for run in found.evaluations), *measured, UNTRAINED, *named]))


def _add_study(page: Page, study: StudyRuns, order: list[str], baseline: str) -> None:
    """Cards, curves and the plane of a study, for each of its variants."""
    command = command_of(study.rows[0])
    for variant in study.variants:
        methods = study.methods(variant)
        title = f"{study.name}, {variant}" if variant else study.name
        name = f"{slug(title.replace('/', '_'))}_"
        page.cards += study_cards(methods, baseline, title)
        trainings = [training for training in study.trainings if training.variant == variant]
        if trainings:
            page.training.append(Group(title, command, training_figures(trainings, order, name)))
        points = []
        for method, rows in methods.items():
            length, accuracy = (_interval([row[key] for row in rows]) for key in ("length_tokens", "accuracy"))
            runs = tuple((row["length_tokens"], row["accuracy"]) for row in rows)
            points.append(Point(method, length, accuracy, runs if len(runs) > 1 else ()))
        measured = "; ".join(sorted({row["measured_on"] for rows in methods.values() for row in rows}))
        figure = plane_figure(points, order, f"{name}plane", "95 % intervals over seeds (Student's t)")
        page.planes.append(Group(f"{title}: {measured}", command, [figure]))


def _interval(values: Sequence[float]) -> Interval:
    found = estimate(values)
    if found.count < 2:
        return Interval(found.mean, None, None)
    return Interval(found.mean, found.mean - found.half_width, found.mean + found.half_width)


def _add_evaluations(page: Page, compared: dict[str, Any], order: list[str], number: int) -> None:
    """The plane of evaluations: the average over their benchmarks, or the only one."""
    rows = compared["averages"] or compared["benchmarks"]
    title, row = next(iter(rows.items()))
    points = [
        Point(name, Interval(**length), Interval(**accuracy))
        for name, length, accuracy in zip(compared["runs"], row["length"], row["accuracy"], strict=True)
        if accuracy["mean"] is not None
    ]
    if points:
        title = KINDS[title] if title in KINDS else BENCHMARKS[title].title
        page.cards += evaluation_cards(compared, title, row)
        bars = "95 % bootstrap intervals over problems"
        figure = plane_figure(points, order, f"evaluation_{number + 1}_plane", bars)
        page.planes.append(Group(f"{', '.join(compared['runs'])}: {title}", "trl-ces eval, one run each", [figure]))


def _token_splits(tokens: Tokens) -> list[Split]:
    """Simple and hard among the problems that token files answer; the reference is the model before training."""
    groups: dict[tuple[str, int | None], list[tuple[Training, list[TokenFile]]]] = {}
    for training, files in tokens:
        if len(files) > 1 and files[0].step == 0:
            groups.setdefault((training.variant, training.seed), []).append((training, files))
    splits = []
    for (variant, seed), runs in groups.items():
        last = {training.method: files[-1] for training, files in runs}
        first = runs[0][1][0]
        title = f"{len(first.questions)} training problems" + (f", {variant}" if variant else "")
        title += "" if seed is None else f", seed {seed}"
        split = split_of_tokens(title, UNTRAINED, {UNTRAINED: first, **last})
        if split is not None:
            splits.append(split)
    return splits


def _fork_figures(tokens: Tokens, order: list[str]) -> list[Figure]:
    """Entropy over training at the first step's forks, of right and of wrong answers."""
    figures = []
    names = [_name(training) for training, _ in tokens]
    for right in (True, False):
        followed = {}
        for training, files in tokens:
            points = [(files[0].step, _entropy_of_forks(files[0], files[0], right))]
            points += [
                (content.step, _entropy_of_forks(files[0], content, right))
                for content in files[1:]
                if follows(content, files[0])
            ]
            if len(points) > 1 and points[0][1].mean is not None:
                name = _name(training)
                followed[name if names.count(name) == 1 else f"{name}, seed {training.seed}"] = points
        if followed:
            figures.append(forks_figure(followed, order, right, f"forks_{'right' if right else 'wrong'}"))
    return figures


def _entropy_of_forks(reference: TokenFile, content: TokenFile, right: bool) -> Interval:
    """Mean over the answers of the mean entropy at their shaped places."""
    by_answer: dict[int, list[float]] = {}
    if content is reference:
        entries = [(number, entry.entropy) for number, a in enumerate(reference.answers) for entry in a.shaped]
    else:
        entries = [(place.answer, place.entropy) for place in content.places]
    for number, bits in entries:
        if reference.answers[number].correct is right:
            by_answer.setdefault(number, []).append(bits)
    return interval([sum(values) / len(values) for values in by_answer.values()])


def _runs(found: Found) -> list[list[str]]:
    """What was read: name, kind, folder, extent."""
    rows = []
    for study in found.studies:
        seeds = len({row["seed"] for row in study.rows})
        methods = len({row["method"] for row in study.rows})
        extent = f"{len(study.rows)} runs: {methods} methods, {seeds} seeds"
        extent += f", {len(study.variants)} variants" if len(study.variants) > 1 else ""
        rows.append([study.name, "study", str(study.folder), extent, command_of(study.rows[0])])
    for training in found.trainings:
        extent = f"{training.curve['step'][-1]:.0f} steps logged"
        rows.append([training.method, "training", str(training.folder), extent, "trl-ces train"])
    for run in found.evaluations:
        problems = sum(asked["problems"] for asked in run.settings["data"].values())
        extent = f"{problems} problems, {run.settings['num_samples']} answers each"
        command = f"trl-ces eval --model {run.settings['model']}"
        rows.append([run.name, "evaluation", str(run.settings["model"]), extent, command])
    return rows


def _versions(found: Found) -> str:
    """The packages that the studies' runs were made with."""
    named = [json.loads(row["packages"]) for study in found.studies for row in study.rows if row.get("packages")]
    names = ("trl_ces", "trl", "transformers", "torch", "vllm")
    shown = []
    for name in names:
        values = sorted({str(packages[name]) for packages in named if packages and name in packages})
        if values and values != ["not installed"]:
            shown.append(f"{name} {' and '.join(values)}")
    return ", ".join(shown)


def render(page: Page) -> str:
    """The page's HTML: nothing in it is fetched from elsewhere, and every text from a run is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("trl_ces.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def picture(figure: Figure, dark: bool) -> str:
        return base64.b64encode(figure.render(DARK if dark else LIGHT, "svg")).decode()

    environment.globals |= {"picture": picture, "levels": LEVELS}
    environment.filters["by_backticks"] = lambda text: text.split("`")
    environment.filters["split_cell"] = lambda cell: re.split(r"\s(?=\[)|(?<=\S)\s(?=± )", cell, maxsplit=1)
    style = (Path(__file__).parent / "templates" / "page.css").read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(page=page, style=style)
