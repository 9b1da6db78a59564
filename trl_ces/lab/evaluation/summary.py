"""Results of an evaluation: `summary.json`, and a table in the layout of the paper's Table 1."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ...support.files import write_json, write_text
from .benchmarks import BENCHMARKS
from .intervals import Interval
from .measures import CORRECTNESS, by_benchmark, measure, pass_at
from .samples import Sample
from .tables import markdown, percent

SUMMARY, TABLE = "summary.json", "table.md"
KINDS = {"math": "Average", "choice": "Average of multiple choice", "code": "Average of code"}
BUDGETS_NOTE = (
    "Acc within: correct completions that end within so many tokens, %. Area: their mean over all budgets up to the "
    "last."
)


def summarize(settings: dict[str, Any], samples: Sequence[Sample]) -> dict[str, Any]:
    """The content of summary.json, from that of settings.json and all samples."""
    from ...support.environment import environment

    tables, names = by_benchmark(samples), settings["benchmarks"]
    by_kind = {kind: [tables[name] for name in names if BENCHMARKS[name].kind == kind] for kind in KINDS}
    limit = settings["max_new_tokens"]
    return {
        "settings": settings,
        "benchmarks": {name: {**_counts(tables[name]), **_measure([tables[name]], limit)} for name in names},
        "averages": {kind: _measure(sets, limit) for kind, sets in by_kind.items() if sets},
        "packages": environment(),
    }


def _counts(samples: pd.DataFrame) -> dict[str, Any]:
    """`unscored`: completions where `correct` is `None`; `truncated`: share that reached `max_new_tokens`."""
    unscored, truncated = samples["correct"].isna(), samples["finish_reason"] == "length"
    return {"samples": len(samples), "unscored": int(unscored.sum()), "truncated": float(truncated.mean())}


def _measure(sets: list[pd.DataFrame], limit: int) -> dict[str, Any]:
    """Numbers of one set, or of the average over several: by both graders, and mean length."""
    found: dict[str, Any] = {}
    for by in CORRECTNESS:
        measured = measure([sets], by, limit=limit)
        found |= {"problems": measured["problems"], "length_tokens": measured["length"][0]}
        found[by] = {
            "problems": measured["scored"],
            "accuracy": measured["accuracy"][0],
            "area": measured["area"][0],
            "budgets": {str(row["budget"]): row["accuracy"][0]["mean"] for row in measured["budgets"]},
            "pass_at": pass_at(sets[0], by) if len(sets) == 1 else None,
        }
    return found


def tokens(value: float | None) -> str:
    """`8194`: whole tokens as in the paper, one decimal below 100; `-` for `None`."""
    return "-" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _main_table(summary: dict[str, Any]) -> str:
    """The paper's Table 1 of one run, with sizes, pass@k and the share of truncated completions."""
    found = summary["benchmarks"]
    most = max(next(iter(found.values()))["correct"]["pass_at"], key=int)

    def cells(entry: dict[str, Any]) -> list[str]:
        own, script = entry["correct"], entry["correct_qwen"]
        accuracy = [Interval(**own["accuracy"]).text(percent), str(own["problems"])]
        script_accuracy = [percent(script["accuracy"]["mean"]), str(script["problems"])]
        return [*accuracy, *script_accuracy, Interval(**entry["length_tokens"]).text(tokens)]

    rows = []
    for kind, title in KINDS.items():
        names = [name for name in found if BENCHMARKS[name].kind == kind]
        for name in names:
            rest = [percent(found[name]["correct"]["pass_at"][most]), percent(found[name]["truncated"])]
            rows.append([BENCHMARKS[name].title, *cells(found[name]), *rest])
        if len(names) > 1:
            rows.append([title, *cells(summary["averages"][kind]), "", ""])
    return markdown(["Dataset", "Acc ↑", "n", "Script Acc", "n", "Len ↓", f"pass@{most}", "Cut off"], rows)


def _budget_table(summary: dict[str, Any]) -> str:
    """Accuracy at each budget by benchmark."""
    measured = {BENCHMARKS[name].title: entry["correct"] for name, entry in summary["benchmarks"].items()}
    budgets = next(iter(measured.values()))["budgets"]
    rows = [[title, *map(percent, [*own["budgets"].values(), own["area"]["mean"]])] for title, own in measured.items()]
    return markdown(["Acc ↑ within", *budgets, "Area"], rows)


def results_table(summary: dict[str, Any]) -> str:
    """The run's tables as Markdown, with notes."""
    found, settings = summary["benchmarks"], summary["settings"]
    problems, unscored = (sum(entry[count] for entry in found.values()) for count in ("problems", "unscored"))
    title = (
        f"{settings['model']}: {problems} problems, {settings['num_samples']} completions each, temperature "
        f"{settings['temperature']:g}, top-p {settings['top_p']:g}, top-k {settings.get('top_k') or 'all'}, "
        f"repetition penalty {settings['repetition_penalty']:g}, at most {settings['max_new_tokens']} tokens, by "
        f"{settings['backend']}."
    )
    notes = (
        "Acc: correct completions, %. Script Acc: by the rules of the Qwen2.5-Math script, as in the paper. n: "
        "problems that count in the column to its left. Len: tokens, thinking included. In brackets: 95 % intervals "
        "over problems, Acc's by Wilson at the effective number of completions, Len's by bootstrap-t. Cut off: "
        "completions that reached the token limit, %."
    )
    if unscored:
        notes += (
            f"\n\n{unscored} completions are unscored: `correct` cannot grade against their golds, which count in "
            "Script Acc alone, or a program's reference solution does not run here."
        )
    return "\n\n".join([title, _main_table(summary), notes, _budget_table(summary), BUDGETS_NOTE]) + "\n"


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Write `summary.json` and `table.md` atomically."""
    write_json(folder / SUMMARY, summary)
    write_text(folder / TABLE, results_table(summary))
