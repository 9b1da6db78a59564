"""Results of an evaluation: `summary.json`, and a table in the layout of the paper's Table 1."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from ...support.files import write_json, write_text
from ...support.tables import markdown, percent
from .benchmarks import BENCHMARKS
from .budgets import PICTURE, budget_table, draw_budgets, of_one_run
from .proportions import Shares, accuracy_interval
from .samples import FIELDS, Sample
from .statistics import interval_of_average, pass_at_k

SUMMARY, TABLE = "summary.json", "table.md"
VERDICTS = ("correct", "correct_qwen")
KINDS = {"math": "Average", "choice": "Average of multiple choice", "code": "Average of code"}


def by_benchmark(samples: Sequence[Sample]) -> dict[str, pd.DataFrame]:
    """Benchmark -> table of its samples, sorted by problem and sample; verdicts are nullable booleans."""
    table = pd.DataFrame(samples, columns=list(FIELDS), dtype=object)
    table = table.astype({"problem": int, "sample": int, "tokens": int, **dict.fromkeys(VERDICTS, "boolean")})
    return {str(name): own for name, own in table.sort_values(["problem", "sample"]).groupby("benchmark")}


def accuracies(samples: pd.DataFrame, verdict: str) -> pd.DataFrame:
    """Problem -> `right`, share of correct completions, and `answers`, those with a verdict; without any, no row."""
    found = samples.dropna(subset=verdict).astype({verdict: float}).groupby("problem")[verdict]
    return found.agg(right="mean", answers="count")


def shares(found: pd.DataFrame) -> Shares:
    """The columns of [`accuracies`]."""
    return Shares(found["right"].to_numpy(), found["answers"].to_numpy())


def mean_lengths(samples: pd.DataFrame) -> pd.Series:
    """Problem -> mean tokens per completion, thinking included, end token excluded."""
    return samples.groupby("problem")["tokens"].mean()


def score(samples: pd.DataFrame, verdict: str) -> dict[str, Any]:
    """One verdict on one benchmark: how many problems have it, accuracy with interval, pass@k."""
    judged = accuracies(samples, verdict)
    problems = samples.groupby("problem")[verdict]
    answers = [own for _, own in problems if own.notna().all()]
    pass_at = {}
    for k in (2**power for power in range(int(problems.size().min()).bit_length())):
        found = [pass_at_k(len(own), int(own.sum()), k) for own in answers]
        pass_at[str(k)] = sum(found) / len(found) if found else None
    mean, low, high = accuracy_interval([shares(judged)])
    return {"problems": len(judged), "accuracy": mean, "low": low, "high": high, "pass_at": pass_at}


def measured(samples: pd.DataFrame) -> dict[str, Any]:
    """One benchmark. `not_judged`: completions without a verdict; `truncated`: share that reached `max_new_tokens`."""
    return {
        "problems": samples["problem"].nunique(),
        "samples": len(samples),
        "not_judged": int(samples["correct"].isna().sum()),
        "truncated": float((samples["finish_reason"] == "length").mean()),
        "length_tokens": interval_of_average([mean_lengths(samples)], least=0)._asdict(),
        **{verdict: score(samples, verdict) for verdict in VERDICTS},
    }


def summarize(settings: dict[str, Any], samples: Sequence[Sample]) -> dict[str, Any]:
    from ...support.environment import environment

    tables = by_benchmark(samples)
    averages = {}
    for kind in KINDS:
        sets = [tables[name] for name in settings["benchmarks"] if BENCHMARKS[name].kind == kind]
        if sets:
            averages[kind] = {"length_tokens": interval_of_average(list(map(mean_lengths, sets)), least=0)._asdict()}
            for verdict in VERDICTS:
                right = [shares(accuracies(own, verdict)) for own in sets]
                averages[kind][verdict] = accuracy_interval(right)._asdict()
    found, limit = {}, settings["max_new_tokens"]
    for name in settings["benchmarks"]:
        budgets = {verdict: of_one_run(tables[name], verdict, limit) for verdict in VERDICTS}
        found[name] = measured(tables[name]) | {"budgets": budgets}
        if forced_mark(settings):
            found[name]["forced"] = float((tables[name]["finish_reason"] == "forced").mean())
    return {"settings": settings, "benchmarks": found, "averages": averages, "packages": environment()}


def forced_mark(settings: dict[str, Any]) -> str:
    """Stands behind the name of a run whose thinking was ended by force; empty for any other."""
    budget = settings.get("thinking_token_budget")
    return "" if budget is None else f" (forced at {budget})"


def tokens(value: float | None) -> str:
    """`8194`: whole tokens as in the paper, one decimal below 100; `-` for `None`."""
    return "-" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def span(low: float | None, high: float | None, write: Any) -> str:
    """`[40.1, 46.6]`; empty for `None`."""
    return "" if low is None else f"[{write(low)}, {write(high)}]"


def _table(summary: dict[str, Any]) -> str:
    """The paper's Table 1 of one run, and what belongs beside it."""
    found = summary["benchmarks"]
    most = max(next(iter(found.values()))["correct"]["pass_at"], key=int)
    header = ["Dataset", "Acc ↑", "95 %", "n", "Script Acc", "n", "Len ↓", "95 %", f"pass@{most}"]
    ends = {"truncated": "Cut off"} | ({"forced": "Forced"} if forced_mark(summary["settings"]) else {})
    rows = []
    for kind, title in KINDS.items():
        names = [name for name in found if BENCHMARKS[name].kind == kind]
        for name in names:
            entry = found[name]
            rest = [percent(entry["correct"]["pass_at"][most]), *(percent(entry[what]) for what in ends)]
            rows.append([BENCHMARKS[name].title, *_cells(entry), *rest])
        if len(names) > 1:
            mean = summary["averages"][kind]
            named = {verdict: {"accuracy": mean[verdict]["mean"], **mean[verdict]} for verdict in VERDICTS}
            rows.append([title, *_cells({**mean, **named}), "", *("" for _ in ends)])
    return markdown([*header, *ends.values()], rows)


def _cells(entry: dict[str, Any]) -> list[str]:
    """Accuracy by both verdicts, and length; an average has no counts."""
    right, script, length = entry["correct"], entry["correct_qwen"], entry["length_tokens"]
    return [
        percent(right["accuracy"]),
        span(right["low"], right["high"], percent),
        str(right.get("problems", "")),
        percent(script["accuracy"]),
        str(script.get("problems", "")),
        tokens(length["mean"]),
        span(length["low"], length["high"], tokens),
    ]


def results_table(summary: dict[str, Any]) -> str:
    """The run's table as Markdown, with its notes."""
    found, settings = summary["benchmarks"], summary["settings"]
    problems = sum(entry["problems"] for entry in found.values())
    not_judged = sum(entry["not_judged"] for entry in found.values())
    notes = [
        "Acc: correct completions, %. Script Acc: by the rules of the Qwen2.5-Math script, as in the paper. n: "
        "problems that count in the column to its left. Len: tokens, thinking included. 95 %: over problems; Acc by "
        "Wilson's interval at the effective number of completions, Len by bootstrap-t. Cut off: completions that "
        "reached the token limit, %.",
    ]
    if forced_mark(settings):
        notes.append(
            f"Forced: ended completions whose thinking vLLM cut after {settings['thinking_token_budget']} tokens, %. "
            "The model did not choose that end: do not read this as a run without a budget."
        )
    if not_judged:
        notes.append(
            f"{not_judged} completions are not judged: `correct` cannot grade against their golds, which count in "
            "Script Acc alone, or a program's tests judge nothing."
        )
    title = (
        f"{settings['model']}{forced_mark(settings)}: {problems} problems, {settings['num_samples']} completions "
        f"each, temperature {settings['temperature']:g}, top-p {settings['top_p']:g}, top-k "
        f"{settings.get('top_k') or 'all'}, repetition penalty {settings['repetition_penalty']:g}, at most "
        f"{settings['max_new_tokens']} tokens, by {settings['backend']}."
    )
    curves = {name: entry["budgets"]["correct"] for name, entry in found.items()}
    notes += [
        budget_table(curves),
        "Acc within: correct completions that end within so many tokens, %. Area: their mean over all budgets up to "
        "the limit. Len: mean tokens of correct and of wrong completions.",
    ]
    return "\n\n".join([title, _table(summary), *notes]) + "\n"


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Writes `summary.json` and `table.md` atomically; and, with matplotlib, the picture of the budgets."""
    write_json(folder / SUMMARY, summary)
    write_text(folder / TABLE, results_table(summary))
    if find_spec("matplotlib") is not None:
        mark = forced_mark(summary["settings"])
        found = {name: entry["budgets"]["correct"] for name, entry in summary["benchmarks"].items()}
        lines = {BENCHMARKS[name].title + mark: (own["budgets"], own["accuracy"]) for name, own in found.items()}
        draw_budgets(lines, folder / PICTURE)
