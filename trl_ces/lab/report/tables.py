"""Tables of what the runs hold, their differences first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ...support.tables import percent
from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.statistics import Interval
from ..evaluation.summary import KINDS, span, tokens
from ..study.comparison import VARIANTS_NOTE, benchmark_table, method_table, sensitivity_table, variants_table
from .questions import Split
from .studies import StudyRuns, measured_on
from .trainings import Training

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Table:
    """A table as text cells; a row's first cell names it."""

    caption: str
    header: list[str]
    rows: list[list[str]]
    note: str = ""


# Headings, in the order of the page.
TRAINED, METHODS, BENCHMARKED, SENSITIVITY, DIFFICULTY = (
    "At the end of training",
    "Methods",
    "By benchmark",
    "Sensitivity to τ and β",
    "Simple and hard questions",
)
STUDY_NOTE = "Means over seeds, ± half the 95 % interval (Student's t). Δ: paired by seed, against {}."
RUN_NOTE = (
    "In brackets: 95 % intervals over problems. Differences are taken problem by problem. Acc: right "
    "answers, %. Len: tokens, thinking included."
)


TRAINED_NOTE = "Means over the last five logged steps, of the training problems; in brackets, minus {}."


def report_tables(
    studies: Sequence[StudyRuns],
    trainings: Sequence[Training],
    compared: Sequence[dict[str, Any]],
    splits: Sequence[Split],
    baseline: str,
) -> dict[str, list[Table]]:
    """Heading -> tables, of what there is."""
    found: dict[str, list[Table]] = {title: [] for title in (TRAINED, METHODS, BENCHMARKED, SENSITIVITY, DIFFICULTY)}
    if trainings:
        found[TRAINED].append(training_table(trainings, baseline))
    for study in studies:
        for title, table in study_tables(study, study.baseline(baseline)):
            found[title].append(table)
    found[BENCHMARKED] += [comparison_table(entry) for entry in compared]
    if splits:
        found[DIFFICULTY].append(split_table(splits))
    return {title: tables for title, tables in found.items() if tables}


def training_table(trainings: Sequence[Training], baseline: str) -> Table:
    """Accuracy and length at the end of each run's log, and their differences to the baseline, else to the first."""
    names = [training.name for training in trainings]
    against = trainings[names.index(baseline) if baseline in names else 0]
    rows = []
    for training in trainings:
        cells = [training.name, f"{training.curve['step'][-1]:.0f}"]
        for key, write in (("accuracy", percent), ("length", tokens)):
            value, base = (fmean(run.curve[key][-5:]) for run in (training, against))
            sign = "+" if value >= base else "−"
            cells.append(write(value) + ("" if training is against else f" ({sign}{write(abs(value - base))})"))
        rows.append(cells)
    note = TRAINED_NOTE.format(against.name)
    return Table(f"{', '.join(names)}: the logs", ["Run", "Steps", "Acc ↑, %", "Len ↓"], rows, note)


def study_tables(study: StudyRuns, baseline: str) -> list[tuple[str, Table]]:
    """Heading and table, for each that a study's rows can fill."""
    found = []
    note = STUDY_NOTE.format(baseline)
    for _, where, runs in study.parts():
        filled = [(METHODS, f"{where}: measured on {measured_on(runs)}", method_table(runs, baseline))]
        for kind in KINDS:
            header, *lines = benchmark_table(_of_kind(runs, kind)) or [[]]
            titled = [[BENCHMARKS[name].title if name in BENCHMARKS else name, *cells] for name, *cells in lines]
            filled.append((BENCHMARKED, where, [header, *titled]))
        filled.append((SENSITIVITY, where, sensitivity_table(runs, baseline)))
        found += [(title, Table(caption, rows[0], rows[1:], note)) for title, caption, rows in filled if any(rows)]
    if pooled := variants_table(study.runs, baseline):
        found.append((METHODS, Table(f"{study.name}: over all variants", pooled[0], pooled[1:], VARIANTS_NOTE)))
    return found


def _of_kind(runs: DataFrame, kind: str) -> DataFrame:
    """The benchmarks of one kind that all runs have, and their average. Unknown ones are mathematics."""
    whole = runs.dropna(axis="columns")
    names = [
        name.removesuffix("/accuracy") for name in whole if name.endswith("/accuracy") and name != "train/accuracy"
    ]
    names = [name for name in names if (BENCHMARKS[name].kind if name in BENCHMARKS else "math") == kind]
    columns = {measure: [f"{name}/{measure}" for name in names] for measure in ("accuracy", "length_tokens")}
    part = runs[["method", "seed", *columns["accuracy"], *columns["length_tokens"]]]
    return part.assign(**{measure: runs[of].mean(axis="columns") for measure, of in columns.items()})


def comparison_table(compared: dict[str, Any]) -> Table:
    """One row per benchmark, each run's accuracy and length, the differences."""
    titled = [(BENCHMARKS[name].title, row) for name, row in compared["benchmarks"].items()]
    if compared["kind"] in compared["averages"]:
        titled.append((KINDS[compared["kind"]], compared["averages"][compared["kind"]]))
    runs, baseline = compared["runs"], compared["baseline"]
    others = [place for place, run in enumerate(runs) if run != baseline]
    header = ["Dataset", *(f"{run} {what}" for run in runs for what in ("Acc ↑", "Len ↓"))]
    header += [f"{runs[place]} − {baseline} {what}" for place in others for what in ("Acc", "Len")]
    rows = []
    for title, row in titled:
        cells = [title]
        for accuracy, length in zip(row["accuracy"], row["length"], strict=True):
            cells += [_cell(Interval(**accuracy), percent), _cell(Interval(**length), tokens)]
        for place in others:
            for measure, write in (("accuracy", percent), ("length", tokens)):
                cells.append(_cell(Interval(**row[f"{measure}_difference"][place]), write, signed=True))
        rows.append(cells)
    note = RUN_NOTE
    if compared["verdict"] == "correct_qwen":
        note += " Right by the rules of the Qwen2.5-Math script."
    for run, settings in compared["differing"].items():
        changes = "; ".join(f"{key} {old!r} and {new!r}" for key, (old, new) in settings.items())
        note += f" Drawn with other settings than {runs[0]}: {run} ({changes})."
    return Table(f"{', '.join(runs)}: evaluations by trl-ces eval", header, rows, note)


def _cell(found: Interval, write: Callable[[float | None], str], signed: bool = False) -> str:
    """`69.6 [67.1, 72.0]`, or `+2.5 [+0.1, +4.9]`."""

    def text(value: float | None) -> str:
        return ("+" if signed and value is not None and value >= 0 else "") + write(value)

    return f"{text(found.mean)} {span(found.low, found.high, text)}".strip()


def split_table(splits: Sequence[Split]) -> Table:
    """How many questions are simple and hard; each run's accuracy and length there."""
    runs = list(dict.fromkeys(run for split in splits for run in split.simple.length))
    header = ["Dataset", "Part", "Questions", *(f"{run} {what}" for run in runs for what in ("Acc ↑", "Len ↓"))]
    rows, empty = [], Interval(None, None, None)
    for split in splits:
        for name, part in (("simple", split.simple), ("hard", split.hard)):
            cells = [split.title, name, str(part.questions)]
            for run in runs:
                cells.append(_cell(part.accuracy.get(run, empty), percent))
                cells.append(_cell(part.length.get(run, empty), tokens))
            rows.append(cells)
        total = split.simple.questions + split.hard.questions
        rows.append([split.title, "total", str(total), *[""] * 2 * len(runs)])
    references = ", ".join(dict.fromkeys(split.reference for split in splits))
    note = f"Simple: {references} is right in more than half of its answers. In brackets: 95 % intervals."
    return Table("Questions by difficulty", header, rows, note)
