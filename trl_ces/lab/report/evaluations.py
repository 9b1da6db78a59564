"""Evaluations compared, per backbone and kind of benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...support.errors import UserError
from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.comparison import Run, compare
from ..evaluation.summary import KINDS


def compare_evaluations(
    runs: Sequence[Run], baseline: str, verdict: str, notes: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The kind or the only benchmark, and the comparison of the runs that have it and one backbone."""
    groups: dict[tuple[str, str], list[Run]] = {}
    known = {backbone(run) for run in runs} - {""}
    unknown = min(known) if len(known) == 1 else ""  # a Hub model or an adapter stands beside the only shape there is
    for run in runs:
        for kind in KINDS:
            if names := [name for name in run.settings["benchmarks"] if BENCHMARKS[name].kind == kind]:
                data = {name: run.settings["data"][name] for name in names}
                own = replace(run, settings={**run.settings, "benchmarks": names, "data": data})
                groups.setdefault((backbone(run) or unknown, kind), []).append(own)
    for (_, kind), group in groups.items():
        names = [run.name for run in group]
        try:
            found = compare(group, verdict, names.index(baseline) if baseline in names else 0)
            only = next(iter(found["benchmarks"]))
            yield KINDS[kind] if found["averages"] else BENCHMARKS[only].title, found
        except UserError as error:
            notes.append(f"Not compared: {', '.join(names)}. {error}")


def backbone(run: Run) -> str:
    """The shape in the model's config.json, which identifies the backbone; empty if there is no such file."""
    file = Path(str(run.settings.get("model", ""))).expanduser() / "config.json"
    if not file.is_file():
        return ""
    config = json.loads(file.read_text(encoding="utf-8"))
    return "-".join(str(config.get(key)) for key in ("model_type", "num_hidden_layers", "hidden_size", "vocab_size"))
