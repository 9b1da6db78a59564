"""What a reader gets: the model card, the curves, the report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..evaluation.models import fingerprint
from ..evaluation.summary import SUMMARY
from ..support.errors import UserError
from ..support.files import write_text
from .card import model_card
from .facts import CARD, CURVES, REPORT, RunFacts, find_licence, read_facts


def describe(
    folder: Path,
    repo: str,
    card: Path | None = None,
    evaluations: Sequence[Path] = (),
    licence: str | None = None,
    merged: bool = False,
    local: bool = False,
) -> list[str]:
    """
    Writes the card, the curves and the report of the run in `folder`.

    Args:
        folder (`Path`): From [`stage`], filled by [`place_run`]; or the run's own.
        repo (`str`): The model's id on the Hub, or its name here.
        card (`Path`, *optional*): A card to copy instead.
        evaluations (`Sequence[Path]`): Folders of `trl-ces eval`.
        licence (`str`, *optional*): Of the base model, where its own card does not say.
        merged (`bool`): Whether an adapter was merged into its base.
        local (`bool`): Do not ask the Hub for the licence, and make no report.

    Returns:
        `list[str]`: What was left out, and why.
    """
    facts, notes = read_facts(folder), list[str]()
    curves = _draw_curves(folder, facts, repo.split("/")[-1], notes)
    report = not local and _write_report(folder, repo, evaluations, notes)
    if card is not None:
        shutil.copyfile(card, folder / CARD)
        return notes
    content = model_card(
        facts,
        repo,
        summaries=[read_summary(place) for place in evaluations],
        licence={"license": licence} if licence else find_licence(facts.base, ask_the_hub=not local),
        merged=merged,
        curves=curves,
        report=report,
    ).content
    write_text(folder / CARD, content + "\n")
    return notes


def read_summary(place: Path) -> dict[str, Any]:
    """The summary.json of an evaluation; raises `UserError` if it is missing or damaged."""
    try:
        summary = json.loads((place / SUMMARY).read_text(encoding="utf-8"))
        if summary["settings"] and summary["benchmarks"]:
            return summary
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UserError(
        f"{place} holds no intact {SUMMARY}: name an output directory of `trl-ces eval`. An interrupted one resumes "
        "when started again."
    )


def check_measured_weights(place: Path, weights: Path) -> None:
    """Raises `UserError` if the evaluation in `place` measured other weights than those in `weights`."""
    measured = read_summary(place)["settings"].get("fingerprint")
    if measured is not None and measured != fingerprint(weights):
        raise UserError(
            f"{place} measured other weights than those in {weights}: run `trl-ces eval --model {weights}`."
        )


def _draw_curves(folder: Path, facts: RunFacts, name: str, notes: list[str]) -> str | None:
    """Draws curves.png; returns its alternative text, `None` without a picture."""
    if facts.curve is None or not facts.curve["step"]:
        notes.append("No curves: the run logged none.")
        return None
    if find_spec("matplotlib") is None:
        notes.append('No curves: they need matplotlib (pip install "trl_ces[study]").')
        return None
    from ..train.curves import plot_curves

    plot_curves({name: [facts.curve]}, folder / CURVES)
    first, last = ({key: values[place] for key, values in facts.curve.items()} for place in (0, -1))
    return (
        f"Three line charts, step {first['step']:.0f} to {last['step']:.0f}: accuracy from {first['accuracy']:.1%} to "
        f"{last['accuracy']:.1%}, answer length from {first['length']:.1f} to {last['length']:.1f} tokens, entropy "
        f"from {first['entropy']:.3f} to {last['entropy']:.3f} bits per token."
    )


def _write_report(folder: Path, repo: str, evaluations: Sequence[Path], notes: list[str]) -> bool:
    missing = [name for name in ("scipy", "matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        notes.append(f'No report: it needs {" and ".join(missing)} (pip install "trl_ces[study]").')
        return False
    from ..report.page import make_page, render
    from ..report.runs import read_runs

    name = repo.split("/")[-1]
    names = [name, *(f"{name}, evaluation {number}" for number in range(1, len(evaluations) + 1))]
    try:
        runs, command = read_runs([folder, *evaluations], names), "trl-ces report RUN --out report.html"
        page = make_page(runs, command, "DAPO", "correct")
    except UserError as error:
        notes.append(f"No report: {error}")
        return False
    write_text(folder / REPORT, render(page).replace(str(folder), name))
    return True
