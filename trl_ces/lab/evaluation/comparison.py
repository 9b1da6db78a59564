"""Compare runs: the paper's Table 1 with paired differences, and section 5.2's simple and hard questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd

from ...support.errors import UserError, nearest
from ...support.files import write_json
from ...support.tables import markdown, percent
from .benchmarks import BENCHMARKS
from .budgets import curves, draw_budgets, paired_table
from .proportions import accuracy_difference, accuracy_interval
from .samples import SAMPLES, SETTINGS, differences, read_samples, read_settings_file
from .statistics import interval_of_average
from .summary import KINDS, accuracies, by_benchmark, mean_lengths, shares, span, tokens

# Section 5.2: a question is simple if the reference model answers it right more often than this.
SIMPLE_ABOVE = 0.5


@dataclass(frozen=True)
class Run:
    """A finished evaluation: name, content of settings.json, benchmark -> table of samples (see [`by_benchmark`])."""

    name: str
    settings: dict[str, Any]
    samples: dict[str, pd.DataFrame]


class UnfinishedRun(UserError):
    """An evaluation that still lacks answers."""


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
            f"{folder} holds {len(samples)} of {expected} answers: start its `trl-ces eval` again to resume."
        )
    return Run(name, settings, by_benchmark(samples))


def compare_folders(
    folders: Sequence[Path],
    names: Sequence[str] | None = None,
    baseline: str | None = None,
    verdict: str = "correct",
    output: Path | None = None,
    picture: Path | None = None,
) -> dict[str, Any]:
    """Compares output directories of `trl-ces eval`; see [`compare`]. `picture`: of accuracy over budgets."""
    folders = [folder.expanduser() for folder in folders]
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
        own = found["budgets"]
        means = [[entry["mean"] for entry in run] for run in own["accuracy"]]
        draw_budgets({name: (own["budgets"], run) for name, run in zip(names, means, strict=True)}, picture)
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
    """The numbers of the comparison's tables."""
    names = shared_benchmarks(runs)
    measured = {name: _measure(runs, name, verdict) for name in names}
    averages = {}
    for kind in KINDS:
        sets = [measured[name] for name in names if BENCHMARKS[name].kind == kind]
        if len(sets) > 1:
            averages[kind] = _row(sets, baseline)
    return {
        "runs": [run.name for run in runs],
        "baseline": runs[baseline].name,
        "verdict": verdict,
        "differing": {run.name: found for run in runs[1:] if (found := _differing(runs[0], run))},
        "benchmarks": {name: _row([measured[name]], baseline) for name in names},
        "averages": averages,
        "split": {name: _split(measured[name]) for name in names},
        "budgets": curves(
            [[run.samples[name] for name in names] for run in runs],
            verdict,
            min(run.settings["max_new_tokens"] for run in runs),
            baseline,
        ),
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


def comparison_text(found: dict[str, Any]) -> str:
    """The comparison as Markdown: Table 1's layout, paired differences, simple and hard questions."""
    names, baseline = found["runs"], found["runs"].index(found["baseline"])
    titled = [(BENCHMARKS[name].title, row) for name, row in found["benchmarks"].items()]
    titled += [(KINDS[kind], row) for kind, row in found["averages"].items()]
    others = [place for place in range(len(names)) if place != baseline]
    verdict = {"correct": "the mathematics", "correct_qwen": "the rules of the Qwen2.5-Math script"}[found["verdict"]]
    parts = [
        _main_table(names, others[-1], found["baseline"], titled),
        "**Bold**: best of the row.",
        f"## Differences to {found['baseline']}, problem by problem, with 95 % intervals",
        _difference_table(names, others, titled),
        f"## Simple and hard questions (simple: {names[0]} is right in more than half of its answers)",
        _split_table(names, found["split"]),
        "## Accuracy within token budgets, and its mean over all of them (area)",
        paired_table(names, baseline, found["budgets"]),
        f"Acc: answers right by {verdict}, %. Len: tokens, thinking included.",
    ]
    partly = [
        f"{row['judged']} of {row['problems']} problems of {BENCHMARKS[name].title}"
        for name, row in found["benchmarks"].items()
        if row["judged"] < row["problems"]
    ]
    if partly:
        parts.append(f"Acc counts the problems whose gold can be graded against: {', '.join(partly)}; Len all.")
    for name, settings in found["differing"].items():
        changes = "; ".join(f"`{key}` {old!r} and {new!r}" for key, (old, new) in settings.items())
        parts.append(f"Drawn with other settings than {names[0]}: {name} ({changes}).")
    return "\n\n".join(parts) + "\n"


def _main_table(names: list[str], last: int, baseline: str, titled: list[tuple[str, dict[str, Any]]]) -> str:
    header = ["Dataset", *(f"{name} {what}" for name in names for what in ("Acc ↑", "Len ↓"))]
    header += [f"{names[last]} - {baseline} Acc", "Len"]
    rows = []
    for title, row in titled:
        accuracy = [percent(entry["mean"]) for entry in row["accuracy"]]
        length = [tokens(entry["mean"]) for entry in row["length"]]
        best = max(accuracy, key=_number), min(length, key=_number)
        cells = [
            f"**{cell}**" if cell == best[place] else cell  # ties too
            for pair in zip(accuracy, length, strict=True)
            for place, cell in enumerate(pair)
        ]
        rows.append([title, *cells, *(_differences(row, last)[place] for place in (0, 2))])
    return markdown(header, rows)


def _number(cell: str) -> float:
    return float("nan") if cell == "-" else float(cell)


def _differences(row: dict[str, Any], run: int) -> list[str]:
    """`+6.7`, `[+1.2, +12.3]`, and the same for length."""
    cells = []
    for entry, write in ((row["accuracy_difference"][run], percent), (row["length_difference"][run], tokens)):

        def signed(value: float | None, write: Any = write) -> str:
            return "-" if value is None else ("+" if value >= 0 else "") + write(value)

        cells += [signed(entry["mean"]), span(entry["low"], entry["high"], signed)]
    return cells


def _difference_table(names: list[str], others: list[int], titled: list[tuple[str, dict[str, Any]]]) -> str:
    header = ["Dataset", *(cell for place in others for cell in (f"{names[place]} Acc", "95 %", "Len", "95 %"))]
    rows = [[title, *(cell for place in others for cell in _differences(row, place))] for title, row in titled]
    return markdown(header, rows)


def _split_table(names: list[str], split: dict[str, Any]) -> str:
    """Counts as in the paper's Table 9, and each run's mean length and accuracy in both parts."""
    header = ["Dataset", "Part", "Problems", *(f"{name} {what}" for name in names for what in ("Len", "Acc"))]
    rows = []
    for benchmark, parts in split.items():
        for part, entry in parts.items():
            row = [BENCHMARKS[benchmark].title, part, str(entry["problems"])]
            for length, accuracy in zip(entry["length"], entry["accuracy"], strict=True):
                row += [tokens(length["mean"]), percent(accuracy["mean"])]
            rows.append(row)
    return markdown(header, rows)
