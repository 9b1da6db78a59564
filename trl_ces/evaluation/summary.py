"""Results of an evaluation: `summary.json`, and a table in the layout of the paper's Table 1."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..support.files import write_json, write_text
from ..support.tables import markdown, percent
from .benchmarks import BENCHMARKS
from .samples import FIELDS, Sample
from .statistics import interval, interval_of_average, majority_is_correct, pass_at_k

SUMMARY, TABLE = "summary.json", "table.md"
VERDICTS = ("correct", "correct_qwen")
KINDS = {"math": "Average", "choice": "Average of multiple choice", "code": "Average of code"}


def by_benchmark(samples: Sequence[Sample]) -> dict[str, pd.DataFrame]:
    """Benchmark -> table of its samples, sorted by problem and sample; verdicts are nullable booleans."""
    table = pd.DataFrame(samples, columns=list(FIELDS), dtype=object)
    table = table.astype({"problem": int, "sample": int, "tokens": int, **dict.fromkeys(VERDICTS, "boolean")})
    return {str(name): own for name, own in table.sort_values(["problem", "sample"]).groupby("benchmark")}


def accuracies(samples: pd.DataFrame, verdict: str) -> pd.Series:
    """Problem -> share of correct answers, float64; problems without any verdict are left out."""
    return samples.groupby("problem")[verdict].mean().dropna().astype(float)


def mean_lengths(samples: pd.DataFrame) -> pd.Series:
    """Problem -> mean tokens per answer, thinking included, end token excluded."""
    return samples.groupby("problem")["tokens"].mean()


def score(samples: pd.DataFrame, verdict: str) -> dict[str, Any]:
    """One verdict on one benchmark: accuracy with interval, pass@k for powers of two, majority vote."""
    found = interval(accuracies(samples, verdict))
    count = samples.groupby("problem").size().min()
    ks = [2**power for power in range(int(count).bit_length())]
    answers = [own for _, own in samples.groupby("problem") if own[verdict].notna().all()]
    return {
        "accuracy": found.mean,
        "low": found.low,
        "high": found.high,
        "pass_at": {str(k): _mean([pass_at_k(len(own), int(own[verdict].sum()), k) for own in answers]) for k in ks},
        "majority": _mean([majority_is_correct(own["answer"].tolist(), own[verdict].tolist()) for own in answers]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def summarize(settings: dict[str, Any], samples: Sequence[Sample]) -> dict[str, Any]:
    """
    Results of a finished run.

    Args:
        settings (`dict`): The content of its settings.json.
        samples (`Sequence[Sample]`): In any order.

    Returns:
        `dict`: `settings`; `benchmarks`, name -> `problems`, `samples`, `not_judged` (answers without a verdict),
        `truncated` (share in [0, 1] that reached `max_new_tokens`), `length_tokens` and, for each verdict, `accuracy`
        with interval, `pass_at`, `majority`; `averages`, unweighted means over the sets of a kind; `packages`.
    """
    from ..support.environment import environment

    tables = by_benchmark(samples)
    found: dict[str, Any] = {}
    for name in settings["benchmarks"]:
        own = tables[name]
        found[name] = {
            "problems": own["problem"].nunique(),
            "excluded": {str(row): why for row, why in BENCHMARKS[name].excluded.items()},
            "samples": len(own),
            "not_judged": int(own["correct"].isna().sum()),
            "truncated": float((own["finish_reason"] == "length").mean()),
            "length_tokens": interval(mean_lengths(own)).as_dict(),
            **{verdict: score(own, verdict) for verdict in VERDICTS},
        }
        if BENCHMARKS[name].kind == "code":
            # Two programs are hardly ever the same text: there is nothing to vote on.
            for verdict in VERDICTS:
                found[name][verdict]["majority"] = None
    averages = {}
    for kind in KINDS:
        sets = [tables[name] for name in settings["benchmarks"] if BENCHMARKS[name].kind == kind]
        if sets:
            averages[kind] = {
                "length_tokens": interval_of_average([mean_lengths(own) for own in sets]).as_dict(),
                **{
                    verdict: interval_of_average([accuracies(own, verdict) for own in sets]).as_dict()
                    for verdict in VERDICTS
                },
            }
    return {"settings": settings, "benchmarks": found, "averages": averages, "packages": environment()}


def tokens(value: float | None) -> str:
    """`8194`: whole tokens as in the paper, one decimal below 100; `-` for `None`."""
    return "-" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def span(low: float | None, high: float | None, write: Any) -> str:
    """`[40.1, 46.6]`; empty for `None`."""
    return "" if low is None else f"[{write(low)}, {write(high)}]"


def result_rows(summary: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """
    Header and rows of the run's table: Dataset, Acc and Len as in the paper's Table 1, and what belongs beside them.

    Args:
        summary (`dict`): From [`summarize`].
    """
    found = summary["benchmarks"]
    most = str(max(int(k) for k in next(iter(found.values()))["correct"]["pass_at"]))
    header = ["Dataset", "Acc ↑", "95 %", "Script Acc", "Len ↓", "95 %", f"pass@{most}", "Majority", "Cut off"]
    rows = []
    for kind, title in KINDS.items():
        names = [name for name in found if BENCHMARKS[name].kind == kind]
        for name in names:
            entry, right = found[name], found[name]["correct"]
            right = {"mean": right["accuracy"], **right}
            rest = [right["pass_at"][most], right["majority"], entry["truncated"]]
            cells = _cells(right, entry["correct_qwen"]["accuracy"], entry["length_tokens"])
            rows.append([BENCHMARKS[name].title, *cells, *map(percent, rest)])
        if len(names) > 1:
            mean = summary["averages"][kind]
            cells = _cells(mean["correct"], mean["correct_qwen"]["mean"], mean["length_tokens"])
            rows.append([title, *cells, "", "", ""])
    return header, rows


def _cells(right: dict[str, Any], script: float | None, length: dict[str, Any]) -> list[str]:
    return [
        percent(right["mean"]),
        span(right["low"], right["high"], percent),
        percent(script),
        tokens(length["mean"]),
        span(length["low"], length["high"], tokens),
    ]


def results_table(summary: dict[str, Any]) -> str:
    """The run's table as Markdown, with its notes; see [`result_rows`]."""
    found, settings = summary["benchmarks"], summary["settings"]
    problems = sum(entry["problems"] for entry in found.values())
    not_judged = sum(entry["not_judged"] for entry in found.values())
    notes = [
        "Acc: correct answers, %. Script Acc: by the rules of the Qwen2.5-Math script, as in the paper. Len: tokens, "
        "thinking included. 95 %: bootstrap over problems. Cut off: answers that reached the token limit, %.",
    ]
    left_out = [
        f"{BENCHMARKS[name].title} rows {', '.join(e['excluded'])}" for name, e in found.items() if e["excluded"]
    ]
    if left_out:
        notes.append(f"Left out because no answer can be judged: {'; '.join(left_out)}.")
    if not_judged:
        notes.append(f"{not_judged} answers could not be judged and count in no accuracy.")
    title = (
        f"{settings['model']}: {problems} problems, {settings['num_samples']} answers each, temperature "
        f"{settings['temperature']:g}, top-p {settings['top_p']:g}, repetition penalty "
        f"{settings['repetition_penalty']:g}, at most {settings['max_new_tokens']} tokens, by {settings['backend']}."
    )
    return "\n\n".join([title, markdown(*result_rows(summary)), *notes]) + "\n"


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Writes `summary.json` and `table.md` atomically."""
    write_json(folder / SUMMARY, summary)
    write_text(folder / TABLE, results_table(summary))
