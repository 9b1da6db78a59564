"""An evaluation's results: `summary.json`, and a table in the layout of the paper's Table 1."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..support.files import write_json, write_text
from ..support.tables import markdown
from .benchmarks import BENCHMARKS
from .samples import Sample, key_of
from .statistics import Interval, interval, interval_of_average, majority_is_correct, pass_at_k

SUMMARY, TABLE = "summary.json", "table.md"
# Verdict -> what a reader calls it.
VERDICTS = {"correct": "Acc", "correct_qwen": "Acc by the Qwen2.5-Math script"}
KINDS = {"math": "Average", "choice": "Average of multiple choice", "code": "Average of code"}


def by_problem(samples: Sequence[Sample]) -> dict[str, dict[int, list[Sample]]]:
    """Benchmark -> problem -> its samples in their order."""
    grouped: dict[str, dict[int, list[Sample]]] = {}
    for sample in sorted(samples, key=key_of):
        grouped.setdefault(sample["benchmark"], {}).setdefault(sample["problem"], []).append(sample)
    return grouped


def accuracies(problems: dict[int, list[Sample]], verdict: str) -> dict[int, float]:
    """Problem -> share of its answers that are right. A problem none of whose answers could be judged is left out."""
    shares = {}
    for problem, samples in problems.items():
        judged = [sample[verdict] for sample in samples if sample[verdict] is not None]
        if judged:
            shares[problem] = sum(judged) / len(judged)
    return shares


def mean_lengths(problems: dict[int, list[Sample]]) -> dict[int, float]:
    """Problem -> mean tokens of its answers, thinking included, the end token not."""
    return {problem: sum(s["tokens"] for s in samples) / len(samples) for problem, samples in problems.items()}


def judge_problems(problems: dict[int, list[Sample]], verdict: str) -> dict[str, Any]:
    """What one verdict says of a benchmark: accuracy with interval, pass@k for powers of two, majority vote."""
    shares = accuracies(problems, verdict)
    whole = [samples for samples in problems.values() if all(sample[verdict] is not None for sample in samples)]
    found = interval(list(shares.values()))
    count = min(map(len, problems.values()))
    ks = [2**power for power in range(count.bit_length()) if 2**power <= count]
    passed = {
        str(k): _mean([pass_at_k(len(samples), sum(s[verdict] for s in samples), k) for samples in whole]) for k in ks
    }
    votes = [
        float(majority_is_correct([s["answer"] for s in samples], [s[verdict] for s in samples])) for samples in whole
    ]
    return {
        "accuracy": found.mean,
        "low": found.low,
        "high": found.high,
        "pass_at": passed,
        "majority": _mean(votes),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def summarize(settings: dict[str, Any], samples: Sequence[Sample]) -> dict[str, Any]:
    """
    The results of a finished run.

    Args:
        settings (`dict`): The content of its settings.json.
        samples (`Sequence[Sample]`): In any order.

    Returns:
        `dict`: `settings`; `benchmarks`, name -> `problems`, `samples`, `not_judged` (answers without a verdict),
        `truncated` (share in [0, 1] that reached `max_new_tokens`), `length_tokens` and for each verdict `accuracy`
        with interval, `pass_at`, `majority`; `averages`, the unweighted means over the sets of a kind; `packages`.
    """
    from ..support.environment import environment

    grouped = by_problem(samples)
    found: dict[str, Any] = {}
    for name in settings["benchmarks"]:
        problems = grouped[name]
        flat = [sample for samples in problems.values() for sample in samples]
        found[name] = {
            "problems": len(problems),
            "excluded": {str(row): why for row, why in BENCHMARKS[name].excluded.items()},
            "samples": len(flat),
            "not_judged": sum(sample["correct"] is None for sample in flat),
            "truncated": sum(sample["finish_reason"] == "length" for sample in flat) / len(flat),
            "length_tokens": interval(list(mean_lengths(problems).values())).as_dict(),
            **{verdict: judge_problems(problems, verdict) for verdict in VERDICTS},
        }
        if BENCHMARKS[name].kind == "code":
            # Two programs are hardly ever the same text: there is nothing to vote on.
            for verdict in VERDICTS:
                found[name][verdict]["majority"] = None
    averages = {}
    for kind in KINDS:
        sets = [grouped[name] for name in settings["benchmarks"] if BENCHMARKS[name].kind == kind]
        if sets:
            averages[kind] = {
                "length_tokens": _average([list(mean_lengths(problems).values()) for problems in sets]),
                **{
                    verdict: _average([list(accuracies(problems, verdict).values()) for problems in sets])
                    for verdict in VERDICTS
                },
            }
    return {"settings": settings, "benchmarks": found, "averages": averages, "packages": environment()}


def _average(sets: list[list[float]]) -> dict[str, float | None]:
    return interval_of_average(sets).as_dict()


def percent(value: float | None) -> str:
    """`43.3`, or a dash where there is nothing."""
    return "-" if value is None else f"{100 * value:.1f}"


def tokens(value: float | None) -> str:
    """`8194`: whole tokens, as the paper writes them; one decimal below 100."""
    return "-" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def span(low: float | None, high: float | None, write: Any) -> str:
    """`[40.1, 46.6]`, the ends of an interval."""
    return "" if low is None else f"[{write(low)}, {write(high)}]"


def results_table(summary: dict[str, Any]) -> str:
    """
    The run's table: Dataset, Acc and Len as in the paper's Table 1, and what stands beside them.

    Args:
        summary (`dict`): From [`summarize`].
    """
    found = summary["benchmarks"]
    most = str(max(int(k) for k in next(iter(found.values()))["correct"]["pass_at"]))
    header = ["Dataset", "Acc ↑", "95 %", "Script Acc", "Len ↓", "95 %", f"pass@{most}", "Majority", "Cut off"]
    rows = []
    for kind, name_of_average in KINDS.items():
        names = [name for name in found if BENCHMARKS[name].kind == kind]
        rows += [_result_row(BENCHMARKS[name].title, found[name], most) for name in names]
        if len(names) > 1:
            rows.append(_average_row(name_of_average, summary["averages"][kind]))
    settings = summary["settings"]
    problems = sum(entry["problems"] for entry in found.values())
    not_judged = sum(entry["not_judged"] for entry in found.values())
    notes = [
        f"{settings['model']}: {problems} problems, {settings['num_samples']} answers each, temperature "
        f"{settings['temperature']:g}, top-p {settings['top_p']:g}, repetition penalty "
        f"{settings['repetition_penalty']:g}, at most {settings['max_new_tokens']} tokens, by {settings['backend']}.",
        "Acc: share of right answers, %. Script Acc: by the rules of the Qwen2.5-Math script, as the paper's "
        "numbers are. Len: tokens, thinking included. 95 %: bootstrap over problems. Cut off: share of answers that "
        "reached the token limit, %.",
    ]
    left_out = [
        f"{BENCHMARKS[name].title} rows {', '.join(e['excluded'])}" for name, e in found.items() if e["excluded"]
    ]
    if left_out:
        notes.append(f"Left out, because no answer can be judged: {'; '.join(left_out)}.")
    if not_judged:
        notes.append(f"{not_judged} answers could not be judged and count in no accuracy.")
    return "\n\n".join([notes[0], markdown(header, rows), *notes[1:]]) + "\n"


def _result_row(title: str, entry: dict[str, Any], most: str) -> list[str]:
    correct, length = entry["correct"], entry["length_tokens"]
    return [
        title,
        percent(correct["accuracy"]),
        span(correct["low"], correct["high"], percent),
        percent(entry["correct_qwen"]["accuracy"]),
        tokens(length["mean"]),
        span(length["low"], length["high"], tokens),
        percent(correct["pass_at"][most]),
        percent(correct["majority"]),
        percent(entry["truncated"]),
    ]


def _average_row(title: str, average: dict[str, Any]) -> list[str]:
    correct, script = (Interval(**average[verdict]) for verdict in VERDICTS)
    length = Interval(**average["length_tokens"])
    return [
        title,
        percent(correct.mean),
        span(correct.low, correct.high, percent),
        percent(script.mean),
        tokens(length.mean),
        span(length.low, length.high, tokens),
        "",
        "",
        "",
    ]


def write_results(folder: Path, summary: dict[str, Any]) -> None:
    """Writes `summary.json` and `table.md`, whole or not at all."""
    write_json(folder / SUMMARY, summary)
    write_text(folder / TABLE, results_table(summary))
