"""Evaluations compared, per backbone and kind of benchmark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...support.errors import UserError
from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.comparison import Run, compare
from ..evaluation.summary import KINDS


def compare_evaluations(runs: Sequence[Run], baseline: str, verdict: str, notes: list[str]) -> list[dict[str, Any]]:
    """A comparison per backbone and kind of benchmark."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        for kind in KINDS:
            if any(BENCHMARKS[name].kind == kind for name in run.settings["benchmarks"]):
                groups.setdefault((backbone(run), kind), []).append(run)
    compared = []
    for (of, kind), group in groups.items():
        names = [run.name for run in group]
        place = names.index(baseline) if baseline in names else 0
        try:
            found = compare([_of_kind(run, kind) for run in group], verdict, place)
        except UserError as error:
            notes.append(f"Not compared: {', '.join(names)}. {error}")
            continue
        compared.append({**found, "kind": kind, "backbone": of})
    return compared


def _of_kind(run: Run, kind: str) -> Run:
    """A run with its benchmarks of one kind."""
    names = [name for name in run.settings["benchmarks"] if BENCHMARKS[name].kind == kind]
    data = {name: run.settings["data"][name] for name in names}
    return replace(run, settings={**run.settings, "benchmarks": names, "data": data})


def backbone(run: Run) -> str:
    """The shape in the model's config.json, which identifies the backbone; empty if there is no such file."""
    file = Path(str(run.settings.get("model", ""))).expanduser() / "config.json"
    if not file.is_file():
        return ""
    config = json.loads(file.read_text(encoding="utf-8"))
    return "-".join(str(config.get(key)) for key in ("model_type", "num_hidden_layers", "hidden_size", "vocab_size"))
