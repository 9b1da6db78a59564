"""The report as one HTML file: what is on it, in which order, and its template's rendering."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.errors import UserError
from ...support.files import write_text
from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.statistics import Interval
from ..evaluation.summary import KINDS
from ..study.cells import slug
from ..study.comparison import estimate, is_whole_ces
from ..study.front import HOW_TO_READ, dominance_table, front_table, has_lines, middle_of_lines, read_settings
from .cards import Card, evaluation_cards, study_cards
from .evaluations import compare_evaluations
from .figures import Point, difficulty_figure, forks_figure, front_figure, plane_figure, training_figures
from .picture import DARK, LIGHT, Figure, save_figures
from .questions import UNTRAINED, splits_of_comparison, splits_of_runs
from .runs import Found
from .shaped_pairs import entropy_over_steps
from .studies import StudyRuns, measured_on
from .tables import Table, report_tables
from .tokens import TokenFile, read_tokens
from .trainings import Training
from .viewer import LEVELS, RunView, view_run

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Tokens = list[tuple[Training, list[TokenFile]]]


@dataclass(frozen=True)
class FigureGroup:
    """Pictures under one heading, with the command that made their data."""

    title: str
    command: str
    figures: list[Figure]
    tables: list[Table] = field(default_factory=list)


@dataclass
class Page:
    """Everything that the template shows."""

    title: str
    command: str
    cards: list[Card] = field(default_factory=list)
    training: list[FigureGroup] = field(default_factory=list)
    planes: list[FigureGroup] = field(default_factory=list)
    difficulty: list[FigureGroup] = field(default_factory=list)
    tables: dict[str, list[Table]] = field(default_factory=dict)
    forks: list[FigureGroup] = field(default_factory=list)
    tokens: list[RunView] = field(default_factory=list)
    runs: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: str = ""

    def figures(self) -> list[Figure]:
        """All of its pictures, each once."""
        groups = [*self.training, *self.planes, *self.difficulty, *self.forks]
        return [figure for group in groups for figure in group.figures]

    def missing(self) -> list[str]:
        """What could be on the page and is not, and what would make it."""
        missing = list(self.notes)
        if not self.tokens:
            missing.append("the shaped tokens. `--tokens 32` lets the saved models answer and shows them.")
        return missing


def make_page(found: Found, command: str, baseline: str = "DAPO", verdict: str = "correct") -> Page:
    """What is shown of runs."""
    names = [study.name for study in found.studies] + list(
        dict.fromkeys([training.method for training in found.trainings] + [run.name for run in found.evaluations])
    )
    page = Page(", ".join(names), command, notes=list(found.notes))
    read = [(run, read_tokens(run.folder)) for run in found.all_trainings() if run.folder.is_dir()]
    tokens = [(run, files) for run, files in read if files]
    # Runs with CES first: they are what the viewer is for.
    tokens.sort(key=lambda entry: not is_whole_ces(entry[0].settings))
    order = _order(found, tokens)
    for study in found.studies:
        _add_study(page, study, order, study.baseline(baseline))
    if found.trainings:
        commands = " and ".join(f"trl-ces train … --output_dir {training.folder}" for training in found.trainings[:3])
        page.training.append(FigureGroup("", commands, training_figures(found.trainings, order)))
    compared = compare_evaluations(found.evaluations, baseline, verdict, page.notes)
    splits = [split for entry in compared for split in splits_of_comparison(entry)]
    for number, entry in enumerate(compared):
        _add_evaluations(page, entry, order, number)
    splits += splits_of_runs(tokens)
    if splits:
        drawn = [
            difficulty_figure(split, order, f"difficulty_{number}") for number, split in enumerate(splits, start=1)
        ]
        page.difficulty.append(FigureGroup("", "", drawn))
    page.tables = report_tables(found.studies, found.trainings, compared, splits, baseline)
    page.tokens = [view_run(training.name, training.seed, files) for training, files in tokens]
    forks = _fork_figures(tokens, order)
    if forks:
        page.forks.append(FigureGroup("", command, forks))
    page.runs = _runs(found)
    page.versions = _versions(found)
    return page


def _order(found: Found, tokens: Tokens) -> list[str]:
    """Every name that pictures distinguish, the trained methods first: its place decides its style."""
    trained = [training.method for training in found.all_trainings()]
    measured = [method for study in found.studies for method in study.runs["method"]]
    lines = [line for study in found.studies for line in study.lines()]
    named = [name for training, _ in tokens for name in (training.name, f"{training.name}, seed {training.seed}")]
    evaluated = [run.name for run in found.evaluations]
    return list(dict.fromkeys([*lines, *trained, *evaluated, *measured, UNTRAINED, *named]))


def _add_study(page: Page, study: StudyRuns, order: list[str], baseline: str) -> None:
    """Cards, curves and the plane of a study, for each of its variants."""
    for variant, title, runs in study.parts():
        name = f"{slug(title.replace('/', '_'))}_"
        middle = middle_of_lines({setting.name: setting.line for setting in read_settings(runs)})
        page.cards += study_cards(runs[runs["method"].isin(middle)], baseline, title)
        trainings = [
            replace(training, method=middle[training.method])
            for training in study.trainings
            if training.variant == variant and training.method in middle
        ]
        if trainings:
            page.training.append(FigureGroup(title, study.command, training_figures(trainings, order, name)))
        if has_lines(runs):
            page.planes.append(_front(study, title, runs, order, name))
            continue
        points = []
        for method, own in runs.groupby("method", sort=False):
            single = tuple(zip(own["length_tokens"], own["accuracy"], strict=True)) if len(own) > 1 else ()
            points.append(Point(method, _interval(own["length_tokens"]), _interval(own["accuracy"]), single))
        figure = plane_figure(points, order, f"{name}plane", "95 % intervals over seeds (Student's t)")
        page.planes.append(FigureGroup(f"{title}: {measured_on(runs)}", study.command, [figure]))


def _front(study: StudyRuns, title: str, runs: DataFrame, order: list[str], name: str) -> FigureGroup:
    """The front of a variant whose methods have several strengths: its picture and tables."""
    settings = read_settings(runs)
    tables = [
        Table(f"{title}: {what}", header, lines, note)
        for what, (header, *lines), note in (
            ("gap to the front", front_table(settings), HOW_TO_READ),
            ("who dominates whom", dominance_table(settings), ""),
        )
    ]
    figure = front_figure(settings, order, f"{name}front")
    return FigureGroup(f"{title}: {measured_on(runs)}", study.command, [figure], tables)


def _interval(values: Series) -> Interval:
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
        bars = "95 % intervals over problems"
        figure = plane_figure(points, order, f"evaluation_{number + 1}_plane", bars)
        page.planes.append(
            FigureGroup(f"{', '.join(compared['runs'])}: {title}", "trl-ces eval, one run each", [figure])
        )


def _fork_figures(tokens: Tokens, order: list[str]) -> list[Figure]:
    """Entropy over training at the first step's forks, of correct and of wrong answers."""
    figures = []
    names = [training.name for training, _ in tokens]
    for right in (True, False):
        followed = {}
        for training, files in tokens:
            points = entropy_over_steps(files, right)
            if len(points) > 1 and points[0][1].mean is not None:
                name = training.name
                followed[name if names.count(name) == 1 else f"{name}, seed {training.seed}"] = points
        if followed:
            figures.append(forks_figure(followed, order, right, f"forks_{'right' if right else 'wrong'}"))
    return figures


def _runs(found: Found) -> list[list[str]]:
    """What was read: name, kind, folder, extent, command."""
    rows = []
    for study in found.studies:
        counts, variants = study.runs.nunique(), len(study.parts())
        extent = f"{len(study.runs)} runs: {counts['method']} methods, {counts['seed']} seeds"
        extent += f", {variants} variants" if variants > 1 else ""
        rows.append([study.name, "study", str(study.folder), extent, study.command])
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
    texts = [text for study in found.studies for text in study.runs.get("packages", default=[])]
    named = [json.loads(text) or {} for text in texts if isinstance(text, str)]
    shown = []
    for name in ("trl_ces", "trl", "transformers", "torch", "vllm"):
        values = sorted({str(packages[name]) for packages in named if name in packages})
        if values and values != ["not installed"]:
            shown.append(f"{name} {' and '.join(values)}")
    return ", ".join(shown)


def render(page: Page) -> str:
    """The page's HTML: nothing in it is fetched from elsewhere, and every text from a run is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("trl_ces.lab.report", "templates"),
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


def write_page(page: Page, file: Path, figures: Path | None = None) -> tuple[int, int]:
    """Writes the page, and its pictures as files."""
    html = render(page)
    try:
        write_text(file, html)
        return len(html), len(save_figures(page.figures(), figures)) if figures is not None else 0
    except OSError as error:
        raise UserError(f"{error.filename} cannot be written ({error.strerror}): name another place.") from None
