"""Runs side by side: the paper's Table 1 with paired differences, and section 5.2's simple and hard questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support.errors import UserError
from ..support.tables import markdown
from .benchmarks import BENCHMARKS
from .samples import SAMPLES, SETTINGS, Sample, differences, read_samples, read_settings_file
from .statistics import Interval, interval, interval_of_average
from .summary import KINDS, accuracies, by_problem, mean_lengths, percent, span, tokens

# Section 5.2: a question is simple if the reference model answers it right more often than this.
SIMPLE_ABOVE = 0.5


@dataclass(frozen=True)
class Run:
    """A finished evaluation: what it is called, its settings.json, benchmark -> problem -> samples."""

    name: str
    settings: dict[str, Any]
    problems: dict[str, dict[int, list[Sample]]]


def load_run(folder: Path, name: str) -> Run:
    """
    Reads an output directory of `trl-ces eval`.

    Raises:
        UserError: if it is none, or its run is not finished.
    """
    settings = read_settings_file(folder)
    missing = [key for key in ("num_samples", "benchmarks", "data") if key not in settings]
    if missing:
        raise UserError(f"{folder / SETTINGS} has no `{missing[0]}`: name an output directory of `trl-ces eval`.")
    samples, _ = read_samples(folder / SAMPLES)
    expected = settings["num_samples"] * sum(entry["problems"] for entry in settings["data"].values())
    if len(samples) != expected:
        raise UserError(
            f"{folder} holds {len(samples)} of {expected} answers: start its `trl-ces eval` again, it goes on there."
        )
    return Run(name, settings, by_problem(samples))


def shared_benchmarks(runs: Sequence[Run]) -> list[str]:
    """
    The benchmarks that all runs have, in the order of the first.

    Raises:
        UserError: if there is none, or one was asked with other problems.
    """
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


@dataclass(frozen=True)
class Measured:
    """One run on one benchmark: problem -> accuracy in [0, 1] and mean tokens, over the problems of all runs."""

    accuracy: dict[int, float]
    length: dict[int, float]


def measure(runs: Sequence[Run], names: Sequence[str], verdict: str) -> dict[str, list[Measured]]:
    """Benchmark -> one [`Measured`] for each run; problems that a run could not judge are left out of all of them."""
    found = {}
    for name in names:
        shares = [accuracies(run.problems[name], verdict) for run in runs]
        judged = set.intersection(*map(set, shares))
        found[name] = [
            Measured(
                {problem: share for problem, share in shares[place].items() if problem in judged},
                mean_lengths(run.problems[name]),
            )
            for place, run in enumerate(runs)
        ]
    return found


def difference(ours: dict[int, float], theirs: dict[int, float]) -> list[float]:
    """Ours minus theirs, problem by problem: the same questions, so their difficulty cancels."""
    return [ours[problem] - theirs[problem] for problem in ours]


def compare(runs: Sequence[Run], verdict: str = "correct", baseline: int = 0) -> dict[str, Any]:
    """
    Everything that the comparison's tables hold.

    Args:
        runs (`Sequence[Run]`): At least two; the first is section 5.2's reference model.
        verdict (`str`): `"correct"` or `"correct_qwen"`.
        baseline (`int`): The number of the run that the others are compared with.

    Returns:
        `dict`: `runs`, `baseline`, `verdict`, `differing` settings, `benchmarks` and `averages` with the means of each
        run and the paired differences to the baseline, and `split`, benchmark -> simple and hard.
    """
    names = shared_benchmarks(runs)
    measured = measure(runs, names, verdict)
    rows = {name: _row([measured[name]], baseline) for name in names}
    averages = {}
    for kind in KINDS:
        sets = [measured[name] for name in names if BENCHMARKS[name].kind == kind]
        if len(sets) > 1:
            averages[kind] = _row(sets, baseline)
    return {
        "runs": [run.name for run in runs],
        "baseline": runs[baseline].name,
        "verdict": verdict,
        "differing": {run.name: _differing(runs[0], run) for run in runs[1:] if _differing(runs[0], run)},
        "benchmarks": rows,
        "averages": averages,
        "split": {name: _split(measured[name]) for name in names},
    }


def _differing(first: Run, other: Run) -> dict[str, list[Any]]:
    apart = ("model", "fingerprint", "benchmarks", "data")
    found = differences(first.settings, other.settings)
    return {name: list(pair) for name, pair in found.items() if name.split(".")[0] not in apart}


def _row(sets: Sequence[Sequence[Measured]], baseline: int) -> dict[str, Any]:
    """For one set its numbers, for several the unweighted mean of theirs."""
    join = (lambda values: interval(values[0])) if len(sets) == 1 else interval_of_average
    numbers = range(len(sets[0]))
    entry: dict[str, Any] = {}
    for field in ("accuracy", "length"):
        entry[field] = [join([list(getattr(one[run], field).values()) for one in sets]).as_dict() for run in numbers]
        entry[f"{field}_difference"] = [
            None
            if run == baseline
            else join([difference(getattr(one[run], field), getattr(one[baseline], field)) for one in sets]).as_dict()
            for run in numbers
        ]
    return entry


def _split(runs: Sequence[Measured]) -> dict[str, Any]:
    reference = runs[0].accuracy
    simple = [problem for problem, share in reference.items() if share > SIMPLE_ABOVE]
    hard = [problem for problem, share in reference.items() if share <= SIMPLE_ABOVE]
    return {
        part: {
            "problems": len(chosen),
            "accuracy": [interval([run.accuracy[problem] for problem in chosen]).as_dict() for run in runs],
            "length": [interval([run.length[problem] for problem in chosen]).as_dict() for run in runs],
            "length_difference": [
                interval([run.length[problem] - runs[0].length[problem] for problem in chosen]).as_dict()
                for run in runs
            ],
        }
        for part, chosen in (("simple", simple), ("hard", hard))
    }


def comparison_text(found: dict[str, Any]) -> str:
    """The comparison as Markdown: Table 1's layout, the paired differences, simple and hard questions."""
    names, baseline = found["runs"], found["runs"].index(found["baseline"])
    titled = [(BENCHMARKS[name].title, row) for name, row in found["benchmarks"].items()]
    titled += [(KINDS[kind], row) for kind, row in found["averages"].items()]
    others = [place for place in range(len(names)) if place != baseline]
    header = ["Dataset", *(f"{name} {what}" for name in names for what in ("Acc ↑", "Len ↓"))]
    table = [[title, *_cells(row)] for title, row in titled]
    last = others[-1]
    header += [f"{names[last]} - {found['baseline']} Acc", "Len"]
    for line, (_, row) in zip(table, titled, strict=True):
        line += [
            _signed(row["accuracy_difference"][last], _points)[0],
            _signed(row["length_difference"][last], tokens)[0],
        ]
    parts = [markdown(header, table), "**Bold**: best of the row."]
    parts.append(f"## Differences to {found['baseline']}, problem by problem, with 95 % bootstrap intervals")
    parts.append(_difference_table(names, others, titled))
    parts.append(f"## Simple and hard questions (simple: {names[0]} is right in more than half of its answers)")
    parts.append(_split_table(names, found["split"]))
    verdict = {"correct": "the mathematics", "correct_qwen": "the rules of the Qwen2.5-Math script"}[found["verdict"]]
    parts.append(f"Acc: share of answers right by {verdict}, %. Len: tokens, thinking included.")
    for name, settings in found["differing"].items():
        changes = "; ".join(f"`{key}` {old!r} and {new!r}" for key, (old, new) in settings.items())
        parts.append(f"Drawn with other settings than {names[0]}: {name} ({changes}).")
    return "\n\n".join(parts) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    """Accuracy and length of each run, the best of the row in bold, ties too."""
    accuracy = [percent(entry["mean"]) for entry in row["accuracy"]]
    length = [tokens(entry["mean"]) for entry in row["length"]]
    best = (max(accuracy, key=_number), min(length, key=_number))
    pairs = zip(accuracy, length, strict=True)
    return [f"**{cell}**" if cell == best[place] else cell for pair in pairs for place, cell in enumerate(pair)]


def _number(cell: str) -> float:
    return float("nan") if cell == "-" else float(cell)


def _points(value: float | None) -> str:
    return percent(value)


def _signed(entry: dict[str, float | None], write: Any) -> tuple[str, str]:
    """`+6.7` and `[+1.2, +12.3]`."""
    found = Interval(**entry)

    def signed(value: float | None) -> str:
        return "-" if value is None else ("+" if value >= 0 else "") + write(value)

    return signed(found.mean), span(found.low, found.high, signed)


def _difference_table(names: list[str], others: list[int], titled: list[tuple[str, dict[str, Any]]]) -> str:
    header, rows = ["Dataset"], []
    for place in others:
        header += [f"{names[place]} Acc", "95 %", "Len", "95 %"]
    for title, row in titled:
        cells = [title]
        for place in others:
            cells += _signed(row["accuracy_difference"][place], _points)
            cells += _signed(row["length_difference"][place], tokens)
        rows.append(cells)
    return markdown(header, rows)


def _split_table(names: list[str], split: dict[str, Any]) -> str:
    """Counts as in the paper's Table 9, and each run's mean length and accuracy in both parts."""
    header = ["Dataset", "Part", "Problems"]
    header += [f"{name} {what}" for name in names for what in ("Len", "Acc")]
    rows = []
    for benchmark, parts in split.items():
        for part, entry in parts.items():
            row = [BENCHMARKS[benchmark].title, part, str(entry["problems"])]
            for length, accuracy in zip(entry["length"], entry["accuracy"], strict=True):
                row += [tokens(length["mean"]), percent(accuracy["mean"])]
            rows.append(row)
    return markdown(header, rows)
