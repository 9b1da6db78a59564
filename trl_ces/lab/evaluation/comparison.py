"""Compare runs: the paper's Table 1 with paired differences, and section 5.2's simple and hard questions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from ...support.errors import UserError, nearest
from ...support.files import write_json
from ...support.tables import Table, percent
from .benchmarks import BENCHMARKS
from .budgets import curves, draw_budgets, paired_table
from .proportions import accuracy_difference, accuracy_interval
from .samples import SAMPLES, SETTINGS, differences, read_samples, read_settings_file
from .statistics import Interval, interval_of_average
from .summary import KINDS, accuracies, by_benchmark, forced_mark, mean_lengths, shares, tokens

# Section 5.2: a question is simple if more of the reference model's completions are correct.
SIMPLE_ABOVE = 0.5


@dataclass(frozen=True)
class Run:
    """A finished evaluation: name, content of settings.json, benchmark -> table of samples (see [`by_benchmark`])."""

    name: str
    settings: dict[str, Any]
    samples: dict[str, pd.DataFrame]


class UnfinishedRun(UserError):
    """An evaluation that still lacks completions."""


def load_run(folder: Path, name: str) -> Run:
    """Reads an output directory of `trl-ces eval`."""
    settings = read_settings_file(folder)
    missing = [key for key in ("num_samples", "max_new_tokens", "benchmarks", "data") if key not in settings]
    if missing:
        raise UserError(f"{folder / SETTINGS} has no `{missing[0]}`: name an output directory of `trl-ces eval`.")
    samples, _ = read_samples(folder / SAMPLES)
    expected = settings["num_samples"] * sum(entry["problems"] for entry in settings["data"].values())
    if len(samples) != expected:
        raise UnfinishedRun(
            f"{folder} holds {len(samples)} of {expected} completions: start its `trl-ces eval` again to resume."
        )
    return Run(name + forced_mark(settings), settings, by_benchmark(samples))


def compare_folders(
    folders: Sequence[Path],
    names: Sequence[str] | None = None,
    baseline: str | None = None,
    verdict: str = "correct",
    output: Path | None = None,
    picture: Path | None = None,
) -> dict[str, Any]:
    """Compares output directories of `trl-ces eval`; see [`compare`]. `picture`: of accuracy over budgets."""
    if len(folders) < 2:
        raise UserError("One directory is named: a comparison takes at least two.")
    names = names or [folder.resolve().name for folder in folders]
    if len(names) != len(folders) or len(set(names)) != len(names):
        raise UserError(
            f"The names are {', '.join(names)} for {len(folders)} directories: give each its own with `--names`."
        )
    baseline = baseline or names[0]
    if baseline not in names:
        raise UserError(f"`--baseline` {baseline!r} is none of {', '.join(names)}.{nearest(baseline, names)}")
    runs = [load_run(folder, name) for folder, name in zip(folders, names, strict=True)]
    found = compare(runs, verdict, names.index(baseline))
    if output is not None:
        try:
            write_json(output, found)
        except OSError as error:
            raise UserError(f"`--output` {str(output)!r} cannot be written ({error.strerror}).") from None
    if picture is not None:
        lines = {}
        for kind, own in found["budgets"].items():
            for name, run in zip(found["runs"], own["accuracy"], strict=True):
                label = name if len(found["budgets"]) == 1 else f"{name}, {KINDS[kind].lower()}"
                lines[label] = own["budgets"], [entry["mean"] for entry in run]
        try:
            draw_budgets(lines, picture)
        except (OSError, ValueError, ImportError) as error:
            raise UserError(f"`--picture` {str(picture)!r} cannot be drawn ({error}).") from None
    return found


def shared_benchmarks(runs: Sequence[Run]) -> list[str]:
    """The benchmarks that all runs have, in the first run's order."""
    shared = [name for name in runs[0].settings["benchmarks"] if all(name in run.settings["data"] for run in runs)]
    if not shared:
        raise UserError("The runs have no benchmark in common: there is nothing to compare.")
    for run in runs[1:]:
        for name in shared:
            first, other = runs[0].settings["data"][name], run.settings["data"][name]
            if first != other:
                raise UserError(
                    f"{runs[0].name} and {run.name} were asked different problems of {name} ({first['problems']} and "
                    f"{other['problems']}): run both with the same data and `--max_problems`."
                )
    return shared


# One benchmark, per run: `accuracies` of the problems that every run could judge, and the mean lengths of all.
Measured = list[tuple[pd.DataFrame, pd.Series]]


def _measure(runs: Sequence[Run], name: str, verdict: str) -> Measured:
    found = [accuracies(run.samples[name], verdict) for run in runs]
    judged = reduce(pd.Index.intersection, (table.index for table in found))
    return [(table.loc[judged], mean_lengths(run.samples[name])) for run, table in zip(runs, found, strict=True)]


def compare(runs: Sequence[Run], verdict: str = "correct", baseline: int = 0) -> dict[str, Any]:
    names = shared_benchmarks(runs)
    measured = {name: _measure(runs, name, verdict) for name in names}
    averages, budgets = {}, {}
    limit = min(run.settings["max_new_tokens"] for run in runs)
    for kind in KINDS:
        of_kind = [name for name in names if BENCHMARKS[name].kind == kind]
        if len(of_kind) > 1:
            averages[kind] = _row([measured[name] for name in of_kind], baseline)
        if of_kind:
            budgets[kind] = curves([[run.samples[name] for name in of_kind] for run in runs], verdict, limit, baseline)
    return {
        "runs": [run.name for run in runs],
        "baseline": runs[baseline].name,
        "verdict": verdict,
        "differing": {run.name: found for run in runs[1:] if (found := _differing(runs[0], run))},
        "left_out": [
            name for name in dict.fromkeys(chain(*(run.settings["data"] for run in runs))) if name not in names
        ],
        "benchmarks": {name: _row([measured[name]], baseline) for name in names},
        "averages": averages,
        "split": {name: _split(measured[name]) for name in names},
        "budgets": budgets,
    }


def _differing(first: Run, other: Run) -> dict[str, list[Any]]:
    apart = ("model", "fingerprint", "benchmarks", "data")
    found = differences(first.settings, other.settings)
    return {name: list(pair) for name, pair in found.items() if name.split(".")[0] not in apart}


def _row(sets: Sequence[Measured], baseline: int) -> dict[str, Any]:
    """The numbers of one set, or the unweighted means over several."""
    runs = range(len(sets[0]))
    right = [[shares(each[run][0]) for each in sets] for run in runs]
    lengths = [[each[run][1] for each in sets] for run in runs]
    # Paired: the same questions, so their difficulty cancels.
    longer = [[one - other for one, other in zip(own, lengths[baseline], strict=True)] for own in lengths]
    return {
        "problems": sum(map(len, lengths[0])),
        "judged": sum(len(each[0][0]) for each in sets),
        "accuracy": [accuracy_interval(own)._asdict() for own in right],
        "accuracy_difference": [
            None if run == baseline else accuracy_difference(right[run], right[baseline])._asdict() for run in runs
        ],
        "length": [interval_of_average(own, least=0)._asdict() for own in lengths],
        "length_difference": [None if run == baseline else interval_of_average(longer[run])._asdict() for run in runs],
    }


def _split(measured: Measured) -> dict[str, Any]:
    reference = measured[0][0]["right"]
    simple, hard = (reference.index[chosen] for chosen in (reference > SIMPLE_ABOVE, reference <= SIMPLE_ABOVE))
    return {
        part: _row([[(table.loc[chosen], length.loc[chosen]) for table, length in measured]], baseline=0)
        for part, chosen in (("simple", simple), ("hard", hard))
    }


def comparison_tables(found: dict[str, Any]) -> list[Table]:
    """Each run by benchmark (Table 1's layout), the differences to the baseline, and simple and hard questions."""
    names, baseline = found["runs"], found["baseline"]
    titled = [(BENCHMARKS[name].title, row) for name, row in found["benchmarks"].items()]
    titled += [(KINDS[kind], row) for kind, row in found["averages"].items()]
    others = [name for name in names if name != baseline]
    apart = [place for place, name in enumerate(names) if name != baseline]
    parts = [
        ((BENCHMARKS[name].title, part), entry) for name, of in found["split"].items() for part, entry in of.items()
    ]
    by_benchmark = [[title, *_bold_best(_levels(row, range(len(names))))] for title, row in titled]
    differences = [[title, *_levels(row, apart, "_difference")] for title, row in titled]
    split = [[*of, str(row["problems"]), *_levels(row, range(len(names)))] for of, row in parts]
    minus = [f"{name} − {baseline}" for name in others]
    simple = f"Simple: more than half of {names[0]}'s completions are correct."
    return [
        Table("By benchmark", ["Dataset", *_headings(names)], by_benchmark, _notes(found)),
        *([Table("Differences problem by problem", ["Dataset", *_headings(minus)], differences)] if minus else []),
        Table("Simple and hard questions", ["Dataset", "Part", "Problems", *_headings(names)], split, simple),
        *(paired_table(names, names.index(baseline), KINDS[kind], own) for kind, own in found["budgets"].items()),
    ]


def comparison_text(found: dict[str, Any]) -> str:
    parts = [
        part for table in comparison_tables(found) for part in (f"## {table.title}", table.markdown(), table.note)
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _headings(names: Sequence[str]) -> list[str]:
    return [f"{name} {what}" for name in names for what in ("Acc ↑", "Len ↓")]


def _levels(row: dict[str, Any], runs: Sequence[int], what: str = "") -> list[str]:
    """Of each run accuracy and length, or what `what` says of them, with intervals: `69.6 [67.1, 72.0]`."""
    measures = (("accuracy", percent), ("length", tokens))
    return [Interval(**row[of + what][run]).text(write, bool(what)) for run in runs for of, write in measures]


def _bold_best(cells: list[str]) -> list[str]:
    """The highest accuracy and the lowest length, ties too, in bold."""
    means = [cell.partition(" ")[0] for cell in cells]
    number = [math.nan if mean == "-" else float(mean) for mean in means]
    known = [[value for value in number[place::2] if value == value] for place in (0, 1)]
    best = max(known[0], default=math.nan), min(known[1], default=math.nan)
    return [
        cell.replace(mean, f"**{mean}**", 1) if value == best[place % 2] else cell
        for place, (cell, mean, value) in enumerate(zip(cells, means, number, strict=True))
    ]


def _notes(found: dict[str, Any]) -> str:
    verdict = {"correct": "the mathematics", "correct_qwen": "the rules of the Qwen2.5-Math script"}[found["verdict"]]
    notes = [
        f"Acc: completions correct by {verdict}, %. Len: tokens, thinking included. Bold: best of the row. In "
        "brackets: 95 % intervals over problems."
    ]
    partly = [
        f"{row['judged']} of {row['problems']} problems of {BENCHMARKS[name].title}"
        for name, row in found["benchmarks"].items()
        if row["judged"] < row["problems"]
    ]
    if partly:
        notes.append(f"Acc counts the problems whose gold can be graded against: {', '.join(partly)}; Len all.")
    if found["left_out"]:
        titles = [BENCHMARKS[name].title for name in found["left_out"]]
        notes.append(f"Left out, because not every run has it: {', '.join(titles)}.")
    for name, settings in found["differing"].items():
        changes = "; ".join(f"`{key}` {old!r} and {new!r}" for key, (old, new) in settings.items())
        notes.append(f"Drawn with other settings than {found['runs'][0]}: {name} ({changes}).")
    return " ".join(notes)
