"""The paper's tables from what the runs hold; for one that cannot be filled, the command that would make its data."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...support.tables import percent
from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.statistics import Interval
from ..evaluation.summary import KINDS, span, tokens
from ..study.comparison import VARIANTS_NOTE, benchmark_table, method_table, sensitivity_table, variants_table
from .questions import Split
from .studies import StudyRuns, measured_on

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Table:
    """A table as text cells; a row's first cell names it."""

    caption: str
    header: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass
class Numbered:
    """One of the paper's tables."""

    number: int  # in the paper
    title: str
    command: str  # what would make its data, or more of it
    why: str  # why there is none, if `found` is empty
    found: list[Table] = field(default_factory=list)  # one per source that has data


TITLES = {
    1: "Accuracy and length by benchmark",
    2: "Methods and ablations",
    4: "Sensitivity to τ and β",
    6: "Accuracy and length by benchmark, second backbone",
    7: "General reasoning",
    8: "Code",
    9: "Simple and hard questions",
}
# How to fill a table. MODEL stands for each of the models to compare.
TABLE_COMMANDS = {
    1: "trl-ces eval --config paper --model MODEL --data_dir FOLDER --output_dir EVALUATION",
    2: "trl-ces study --config arithmetic --jobs 2",
    4: "trl-ces study --config arithmetic_sensitivity --jobs 2",
    6: "trl-ces study --config DeepSeek-R1-Distill-Qwen-1.5B",
    7: "trl-ces eval --config reasoning --model MODEL --output_dir EVALUATION",
    8: "trl-ces eval --config code --model MODEL --output_dir EVALUATION --allow_code_execution",
    9: "trl-ces eval --config paper --model BASE --data_dir FOLDER --output_dir EVALUATION",
}
WHY = {
    1: "No run here was measured on two mathematics sets or more.",
    2: "No study is among the runs.",
    4: "No study here has CES with two settings of τ and β or more.",
    6: "All runs here start from one backbone, or do not say from which.",
    7: "No run here was measured on ARC-Challenge, CommonsenseQA or OpenBookQA.",
    8: "No run here was measured on HumanEval or MBPP.",
    9: "No evaluation, and no answers to the same questions over training (`--tokens N`), are among the runs.",
}
OF_KIND = {"math": 1, "choice": 7, "code": 8}
STUDY_NOTE = "Means over seeds, ± half the 95 % interval (Student's t). Δ: paired by seed, against {}."
RUN_NOTE = (
    "In brackets: 95 % intervals over problems. Differences are taken problem by problem. Acc: right "
    "answers, %. Len: tokens, thinking included."
)


def paper_tables(
    studies: Sequence[StudyRuns], compared: Sequence[dict[str, Any]], splits: Sequence[Split], baseline: str
) -> list[Numbered]:
    """All of the tables, with the sources that can fill them."""
    found = {number: Numbered(number, title, TABLE_COMMANDS[number], WHY[number]) for number, title in TITLES.items()}
    first = ""  # the backbone of Table 1

    def add(number: int, table: Table, backbone: str) -> None:
        nonlocal first
        first = first or (backbone if number == 1 else "")
        found[6 if number == 1 and backbone != first else number].found.append(table)

    for study in studies:
        for number, table in study_tables(study, study.baseline(baseline)):
            add(number, table, f"study {_backbone(study)}")
    for entry in compared:
        add(OF_KIND[entry["kind"]], comparison_table(entry), f"evaluation {entry['backbone']}")
    if splits:
        found[9].found.append(split_table(splits))
    if not found[1].found and studies and not compared:
        found[1].why = "The study was measured on one set of problems, so Table 2 says all of it. " + WHY[1]
    return list(found.values())


def _backbone(study: StudyRuns) -> str:
    """What all of a study's runs start from, without the number of a seed."""
    model = next(iter(study.recipes.values())).get("model_name_or_path", study.name)
    return re.sub(r"seed-\d+$", "", model)


def study_tables(study: StudyRuns, baseline: str) -> list[tuple[int, Table]]:
    """Number and table, for each that a study's rows can fill."""
    found = []
    note = STUDY_NOTE.format(baseline)
    for _, where, runs in study.parts():
        filled = [(2, f"{where}: measured on {measured_on(runs)}", method_table(runs, baseline))]
        for kind, number in OF_KIND.items():
            header, *lines = benchmark_table(_of_kind(runs, kind)) or [[]]
            titled = [[BENCHMARKS[name].title if name in BENCHMARKS else name, *cells] for name, *cells in lines]
            filled.append((number, where, [header, *titled]))
        filled.append((4, where, sensitivity_table(runs, baseline)))
        found += [(number, Table(caption, rows[0], rows[1:], note)) for number, caption, rows in filled if any(rows)]
    if pooled := variants_table(study.runs, baseline):
        found.append((2, Table(f"{study.name}: over all variants", pooled[0], pooled[1:], VARIANTS_NOTE)))
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
    """The layout of Tables 1, 7 and 8: one row per benchmark, each run's accuracy and length, the differences."""
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
    """Table 9: how many questions are simple and hard; each run's accuracy and length there."""
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
