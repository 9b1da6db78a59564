"""The report as one HTML file: what is on it, in which order, and its template's rendering."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from ...support.errors import UserError
from ...support.files import write_text
from ...support.tables import Table, percent
from ..evaluation.comparison import comparison_tables
from ..evaluation.statistics import Interval
from ..evaluation.summary import tokens
from ..study.cells import slug
from ..study.front import has_lines, middle_of_lines, read_settings
from ..study.results import measured_on, variant_tables
from .evaluations import compare_evaluations
from .figures import Measured, front_figure, training_figures
from .picture import DARK, LIGHT, Figure, save_figures
from .runs import Found
from .studies import StudyRuns
from .tokens import read_tokens
from .trainings import Training
from .viewer import LEVELS, RunView, view_run


@dataclass(frozen=True)
class FigureGroup:
    """Pictures under one heading, with the command that made their data."""

    title: str
    command: str
    figures: list[Figure]


@dataclass
class Page:
    """Everything that the template shows."""

    title: str
    command: str
    tables: dict[str, list[Table]] = field(default_factory=dict)  # what they are of -> the differences
    training: list[FigureGroup] = field(default_factory=list)
    planes: list[FigureGroup] = field(default_factory=list)
    tokens: list[RunView] = field(default_factory=list)
    runs: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: str = ""

    def figures(self) -> list[Figure]:
        """All of its pictures, each once."""
        return [figure for group in (*self.training, *self.planes) for figure in group.figures]

    def missing(self) -> list[str]:
        """What could be on the page and is not, and what would make it."""
        missing = list(self.notes)
        if not self.tokens and self.training:
            missing.append("the shaped tokens. `--tokens 32` samples the saved models and shows them.")
        return missing


def make_page(found: Found, command: str, baseline: str = "DAPO", verdict: str = "correct") -> Page:
    names = [study.name for study in found.studies] + list(
        dict.fromkeys([training.method for training in found.trainings] + [run.name for run in found.evaluations])
    )
    page = Page(", ".join(names), command, notes=list(found.notes), runs=_runs(found), versions=_versions(found))
    order = found.names()
    if found.trainings:
        page.tables["At the end of training"] = [training_table(found.trainings, baseline)]
        commands = " and ".join(f"trl-ces train … --output_dir {training.folder}" for training in found.trainings[:3])
        page.training.append(FigureGroup("", commands, training_figures(found.trainings, order)))
    for study in found.studies:
        _add_study(page, study, order, study.baseline(baseline))
    for title, compared in compare_evaluations(found.evaluations, baseline, verdict, page.notes):
        page.tables[f"{title}: {', '.join(compared['runs'])}"] = comparison_tables(compared)
        row = next(iter((compared["averages"] or compared["benchmarks"]).values()))
        measured = [
            Measured(name, Interval(**length), Interval(**accuracy))
            for name, length, accuracy in zip(compared["runs"], row["length"], row["accuracy"], strict=True)
            if accuracy["mean"] is not None
        ]
        if measured:
            name = f"evaluation_{len(page.planes) + 1}_front"
            figure = front_figure(measured, order, name, "95 % intervals over problems")
            where = f"{', '.join(compared['runs'])}: {title}"
            page.planes.append(FigureGroup(where, "trl-ces eval, one run each", [figure]))
    files = [(run, read_tokens(run.folder)) for run in found.all_trainings() if run.folder.is_dir()]
    # Runs with CES first: they are what the viewer is for.
    files.sort(key=lambda entry: not entry[0].is_whole_ces)
    page.tokens = [view_run(training.name, training.seed, own) for training, own in files if own]
    return page


def training_table(trainings: Sequence[Training], baseline: str) -> Table:
    """Each run's accuracy and length at the end of its log, and minus the baseline's of its seed."""
    names = [training.name for training in trainings]
    bases = [training for training in trainings if training.name == baseline] or [trainings[0]]
    of_seed = {training.seed: training for training in reversed(bases)} if len(bases) > 1 else {}
    rows = []
    for training in trainings:
        against = of_seed.get(training.seed) if of_seed else bases[0]
        compared = against is not None and not any(training is base for base in bases)
        cells = [training.name, f"{training.curve['step'][-1]:.0f}"]
        for key, write in (("accuracy", percent), ("length", tokens)):
            value, base = (fmean(run.curve[key][-5:]) for run in (training, against or training))
            sign = "+" if value >= base else "−"
            cells.append(write(value) + (f" ({sign}{write(abs(value - base))})" if compared else ""))
        rows.append(cells)
    note = "Means over the last five logged steps, of the training problems"
    note += f"; in brackets, minus {bases[0].name}{' of the same seed' if of_seed else ''}." if len(rows) > 1 else "."
    return Table(f"{', '.join(names)}: the logs", ["Run", "Steps", "Acc ↑, %", "Len ↓"], rows, note)


def _add_study(page: Page, study: StudyRuns, order: list[str], baseline: str) -> None:
    """Tables, curves and the plane of a study, for each of its variants."""
    for variant, table in variant_tables(study.runs, baseline):
        page.tables.setdefault(study.part(variant), []).append(table)
    for variant, runs in study.runs.groupby("variant", sort=False):
        title = study.part(variant)
        name = f"{slug(title.replace('/', '_'))}_"
        of_strengths = has_lines(runs)
        settings = read_settings(runs, of_strengths)
        middle = middle_of_lines({setting.name: setting.line for setting in settings})
        trainings = [
            replace(training, method=middle[training.method])
            for training in study.trainings
            if training.variant == variant and training.method in middle
        ]
        if trainings:
            page.training.append(FigureGroup(title, study.command, training_figures(trainings, order, name)))
        bars = "95 % intervals over seeds (Student's t)"
        figure = front_figure(settings, order, f"{name}front", bars, not of_strengths)
        page.planes.append(FigureGroup(f"{title}: {measured_on(runs)}", study.command, [figure]))


def _runs(found: Found) -> list[list[str]]:
    """What was read: name, kind, folder, extent, command."""
    rows = []
    for study in found.studies:
        counts = study.runs.nunique()
        extent = f"{len(study.runs)} runs: {counts['method']} methods, {counts['seed']} seeds"
        extent += f", {counts['variant']} variants" if counts["variant"] > 1 else ""
        rows.append([study.name, "study", str(study.folder), extent, study.command])
    for training in found.trainings:
        extent = f"{training.curve['step'][-1]:.0f} steps logged"
        rows.append([training.method, "training", str(training.folder), extent, "trl-ces train"])
    for run in found.evaluations:
        problems = sum(asked["problems"] for asked in run.settings["data"].values())
        extent = f"{problems} problems, {run.settings['num_samples']} completions each"
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
