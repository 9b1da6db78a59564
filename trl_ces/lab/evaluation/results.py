"""Result tables of one evaluation (in the layout of the paper's Table 1), and comparison of several evaluations."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

import pandas as pd

from ...support.errors import UserError, nearest
from ...support.files import write_json
from .benchmarks import SETS
from .intervals import Interval
from .measures import CORRECTNESS, accuracies, by_benchmark, measure, pass_at, scored_by_all
from .samples import SAMPLES, Sample, differences, read_samples, read_settings_file
from .tables import markdown, percent

SUMMARY, TABLE = "summary.json", "table.md"
KINDS = {"math": "Average", "choice": "Multiple-choice average", "code": "Code average", "own": "Your problems"}
BUDGETS_NOTE = (
    "Acc within: % of completions that are correct within the token budget. Area: mean accuracy over every "
    "budget from 0 to the largest one shown."
)
# A question is simple if more than this share of the reference model's completions is correct (paper, section 5.2).
SIMPLE_ABOVE = 0.5


def summarize(settings: dict[str, Any], samples: Sequence[Sample]) -> dict[str, Any]:
    """Compute the content of summary.json from the content of settings.json and all samples."""
    from ...support.environment import environment

    tables, names = by_benchmark(samples), settings["benchmarks"]
    by_kind = {kind: [tables[name] for name in names if SETS[name].kind == kind] for kind in KINDS}
    limit = settings["max_new_tokens"]
    return {
        "settings": settings,
        "benchmarks": {
            name: {
                "samples": len(rows := tables[name]),
                "unscored": int(rows["correct"].isna().sum()),
                "truncated": float((rows["finish_reason"] == "length").mean()),  # share that reached `max_new_tokens`
                **_measure([rows], limit),
            }
            for name in names
        },
        "averages": {kind: _measure(sets, limit) for kind, sets in by_kind.items() if sets},
        "packages": environment(),
    }


def _measure(sets: list[pd.DataFrame], limit: int) -> dict[str, Any]:
    """Measure one set or the average of several sets, with both graders."""
    results: dict[str, Any] = {}
    for by in CORRECTNESS:
        measures = measure([sets], by, limit=limit)
        results |= {"problems": measures["problems"], "length_tokens": measures["length"][0]}
        results[by] = {
            "problems": measures["scored"],
            "accuracy": measures["accuracy"][0],
            "area": measures["area"][0],
            "budgets": {str(row["budget"]): row["accuracy"][0]["mean"] for row in measures["budgets"]},
            "pass_at": pass_at(sets[0], by) if len(sets) == 1 else None,
        }
    return results


def format_tokens(value: float | None) -> str:
    """Format a number of tokens: `8194` as in the paper, `62.5` below 100, `-` for `None`."""
    return "-" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _main_table(summary: dict[str, Any]) -> str:
    """Render one run in the layout of the paper's Table 1, with set sizes, pass@k and truncation."""
    entries = summary["benchmarks"]
    largest_k = max(next(iter(entries.values()))["correct"]["pass_at"], key=int)

    def cells(entry: dict[str, Any]) -> list[str]:
        correct, script = entry["correct"], entry["correct_qwen"]
        accuracy = [Interval(**correct["accuracy"]).text(percent), str(correct["problems"])]
        script_accuracy = [percent(script["accuracy"]["mean"]), str(script["problems"])]
        return [*accuracy, *script_accuracy, Interval(**entry["length_tokens"]).text(format_tokens)]

    rows = []
    for kind, title in KINDS.items():
        names = [name for name in entries if SETS[name].kind == kind]
        for name in names:
            shares = [percent(entries[name]["correct"]["pass_at"][largest_k]), percent(entries[name]["truncated"])]
            rows.append([SETS[name].title, *cells(entries[name]), *shares])
        if len(names) > 1:
            rows.append([title, *cells(summary["averages"][kind]), "", ""])
    return markdown(["Dataset", "Acc ↑", "n", "Script Acc", "n", "Len ↓", f"pass@{largest_k}", "Cut off"], rows)


def results_table(summary: dict[str, Any]) -> str:
    """Render the run's tables as Markdown, with notes."""
    entries, settings = summary["benchmarks"], summary["settings"]
    problems, unscored = (sum(entry[count] for entry in entries.values()) for count in ("problems", "unscored"))
    heading = (
        f"{settings['model']}: {problems} problems, {settings['num_samples']} completions each, temperature "
        f"{settings['temperature']:g}, top-p {settings['top_p']:g}, top-k {settings.get('top_k') or 'all'}, "
        f"repetition penalty {settings['repetition_penalty']:g}, at most {settings['max_new_tokens']} tokens, "
        f"generated with {settings['backend']}."
    )
    notes = (
        "Acc: % of completions that are correct. Script Acc: % correct by the rules of the Qwen2.5-Math script, as in "
        "the paper. n: number of problems counted in the column to its left. Len: mean tokens, including thinking. "
        "Brackets: 95 % intervals over problems (Acc: Wilson intervals for the effective number of completions; Len: "
        "bootstrap-t intervals). Cut off: % of completions that reached the token limit."
    )
    if unscored:
        notes += (
            f"\n\n{unscored} completions are unscored: the grader does not support their reference answers (these "
            "completions count only in Script Acc), or the reference solution of a code problem does not run on this "
            "machine."
        )
    measures_by_title = {SETS[name].title: entry["correct"] for name, entry in entries.items()}
    rows = [
        [title, *map(percent, [*measures["budgets"].values(), measures["area"]["mean"]])]
        for title, measures in measures_by_title.items()
    ]
    budgets = markdown(["Acc ↑ within", *next(iter(measures_by_title.values()))["budgets"], "Area"], rows)
    return "\n\n".join([heading, _main_table(summary), notes, budgets, BUDGETS_NOTE]) + "\n"


@dataclass(frozen=True)
class Run:
    """A finished evaluation."""

    name: str
    settings: dict[str, Any]  # content of settings.json
    samples: dict[str, pd.DataFrame]  # benchmark -> table of samples, see `by_benchmark`


def load_run(folder: Path, name: str) -> Run:
    """Read an output directory of `trl-ces eval`."""
    settings = read_settings_file(folder)
    samples, _ = read_samples(folder / SAMPLES)
    expected = settings["num_samples"] * sum(entry["problems"] for entry in settings["data"].values())
    if len(samples) != expected:
        raise UserError(
            f"{folder} contains {len(samples)} of {expected} completions: run its `trl-ces eval` command again to "
            "resume."
        )
    return Run(name, settings, by_benchmark(samples))


def compare_folders(
    folders: Sequence[Path],
    names: Sequence[str] | None = None,
    baseline: str | None = None,
    correctness: str = "correct",
    output: Path | None = None,
) -> dict[str, Any]:
    """Compare output directories of `trl-ces eval`; see [`compare`]. `output`: JSON file for the results."""
    if len(folders) < 2:
        raise UserError("Only one directory is given: a comparison needs at least two.")
    names = names or [folder.resolve().name for folder in folders]
    if len(names) != len(folders) or len(set(names)) != len(names):
        raise UserError(
            f"The {len(folders)} directories are named {', '.join(names)}: give each a unique name with `--names`."
        )
    baseline = baseline or names[0]
    if baseline not in names:
        raise UserError(f"`--baseline` {baseline!r} is not one of {', '.join(names)}.{nearest(baseline, names)}")
    runs = [load_run(folder, name) for folder, name in zip(folders, names, strict=True)]
    comparison = compare(runs, correctness, names.index(baseline))
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_json(output, comparison)
    return comparison


def shared_benchmarks(runs: Sequence[Run]) -> list[str]:
    """Return the benchmarks that all runs share, in the first run's order. Raise `UserError` if problems differ."""
    shared = [name for name in runs[0].settings["benchmarks"] if all(name in run.settings["data"] for run in runs)]
    if not shared:
        raise UserError("The runs have no benchmark in common, so they cannot be compared.")
    for run, name in product(runs[1:], shared):
        if run.settings["data"][name] != runs[0].settings["data"][name]:
            raise UserError(
                f"{runs[0].name} and {run.name} used different {name} problems: run both evaluations with "
                "the same data and `--max_problems`."
            )
    return shared


def compare(runs: Sequence[Run], correctness: str = "correct", baseline: int = 0) -> dict[str, Any]:
    """
    Compare runs problem by problem on their common benchmarks; the first run determines which questions are simple.

    Return the results of [`measure`] for each benchmark, for the average of each kind of benchmark (with token
    budgets), and for simple and hard questions. Also return the settings that differ between the runs.
    """
    names = shared_benchmarks(runs)
    limit = min(run.settings["max_new_tokens"] for run in runs)
    kinds = {kind: sets for kind in KINDS if (sets := [name for name in names if SETS[name].kind == kind])}

    def tables(names: list[str]) -> list[list[pd.DataFrame]]:
        return [[run.samples[name] for name in names] for run in runs]

    all_names = dict.fromkeys(chain(*(run.settings["data"] for run in runs)))
    return {
        "runs": [run.name for run in runs],
        "baseline": runs[baseline].name,
        "correctness": correctness,
        "differing": {run.name: changes for run in runs[1:] if (changes := _changed_settings(runs[0], run))},
        "left_out": [name for name in all_names if name not in names],
        "benchmarks": {name: measure(tables([name]), correctness, baseline) for name in names},
        "averages": {kind: measure(tables(sets), correctness, baseline, limit) for kind, sets in kinds.items()},
        "split": {name: _measure_by_difficulty([run.samples[name] for run in runs], correctness) for name in names},
    }


def _changed_settings(first: Run, other: Run) -> dict[str, list[Any]]:
    ignored = ("model", "fingerprint", "benchmarks", "data")
    pairs = differences(first.settings, other.settings)
    return {name: list(pair) for name, pair in pairs.items() if name.split(".")[0] not in ignored}


def _measure_by_difficulty(runs: Sequence[pd.DataFrame], by: str) -> dict[str, Any]:
    """Measure one set's simple and hard questions separately; the first run determines the split."""
    reference = accuracies(runs[0], by)["correct"].loc[scored_by_all(runs, by)]
    parts = {"simple": reference.index[reference > SIMPLE_ABOVE], "hard": reference.index[reference <= SIMPLE_ABOVE]}
    return {
        part: measure([[samples[samples["problem"].isin(questions)]] for samples in runs], by)
        for part, questions in parts.items()
    }


def comparison_text(comparison: dict[str, Any]) -> str:
    """Render Markdown tables: results by benchmark (as in Table 1), differences, question difficulty, budgets."""
    names, baseline = comparison["runs"], comparison["baseline"]
    kinds = [SETS[name].kind for name in comparison["benchmarks"]]
    titled_rows = [(SETS[name].title, row) for name, row in comparison["benchmarks"].items()]
    titled_rows += [(KINDS[kind], row) for kind, row in comparison["averages"].items() if kinds.count(kind) > 1]
    indices, others = range(len(names)), [index for index, name in enumerate(names) if name != baseline]
    pair_names = [f"{names[index]} - {baseline}" for index in others]
    results = [[title, *_cells(row, indices)] for title, row in titled_rows]
    differences = [[title, *_cells(row, others, "_difference")] for title, row in titled_rows]
    split = [
        [SETS[name].title, part, str(row["problems"]), *_cells(row, indices)]
        for name, parts in comparison["split"].items()
        for part, row in parts.items()
    ]
    simple = f"Simple questions: more than half of the completions of {names[0]} are correct."
    tables = [
        ("By benchmark", ["Dataset", *_headings(names)], results, _notes(comparison)),
        ("Paired differences", ["Dataset", *_headings(pair_names)], differences, ""),
        ("Simple and hard questions", ["Dataset", "Part", "Problems", *_headings(names)], split, simple),
    ]
    for kind, average in comparison["averages"].items():
        entries = [(str(row["budget"]), row, "accuracy") for row in average["budgets"]] + [("Area", average, "area")]
        rows = [
            [
                title,
                *(percent(entry["mean"]) for entry in row[measure_name]),
                *(Interval(**row[f"{measure_name}_difference"][run]).text(percent, signed=True) for run in others),
            ]
            for title, row, measure_name in entries
        ]
        tables.append((f"{KINDS[kind]} within token budgets", ["Tokens", *names, *pair_names], rows, BUDGETS_NOTE))
    parts = [part for title, header, rows, note in tables for part in (f"## {title}", markdown(header, rows), note)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _headings(names: Sequence[str]) -> list[str]:
    return [f"{name} {measure_name}" for name in names for measure_name in ("Acc ↑", "Len ↓")]


def _cells(row: dict[str, Any], runs: Sequence[int], suffix: str = "") -> list[str]:
    """Format each run's accuracy and length, or their differences, with intervals: `69.6 [67.1, 72.0]`."""
    measures = (("accuracy", percent), ("length", format_tokens))
    return [
        Interval(**row[name + suffix][run]).text(format_number, bool(suffix))
        for run in runs
        for name, format_number in measures
    ]


def _notes(comparison: dict[str, Any]) -> str:
    grader = {"correct": "this package's grader", "correct_qwen": "the rules of the Qwen2.5-Math script"}
    notes = [
        f"Acc: % of completions that are correct by {grader[comparison['correctness']]}. Len: mean number of tokens, "
        "including thinking. Brackets: 95 % intervals over problems."
    ]
    partially_scored = [
        f"{row['scored']} of {row['problems']} problems of {SETS[name].title}"
        for name, row in comparison["benchmarks"].items()
        if row["scored"] < row["problems"]
    ]
    if partially_scored:
        notes.append(
            f"Acc covers only problems that can be graded: {', '.join(partially_scored)}. Len covers all problems."
        )
    if comparison["left_out"]:
        titles = [SETS[name].title for name in comparison["left_out"]]
        notes.append(f"Omitted because not every run includes them: {', '.join(titles)}.")
    for name, settings in comparison["differing"].items():
        changes = ", ".join(f"`{key}` {new!r} instead of {old!r}" for key, (old, new) in settings.items())
        notes.append(f"{name} has different settings from {comparison['runs'][0]}: {changes}.")
    return " ".join(notes)
