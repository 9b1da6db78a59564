"""What is written for a reader: the model card, the picture of the curves, the report; from which evaluations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..evaluation.models import fingerprint
from ..evaluation.summary import SUMMARY
from ..support.errors import UserError
from ..support.files import write_text
from .card import CURVES, REPORT, Extras, model_card
from .facts import CARD, Licence, RunFacts, find_licence, read_facts


def describe(
    folder: Path,
    repo: str,
    *,
    say: Callable[[str], None],
    card: Path | None = None,
    evaluations: Sequence[Path] = (),
    licence: str | None = None,
    online: bool = True,
    merged: bool = False,
    report: bool = True,
) -> None:
    """
    Writes the card, the curves and the report of the run in `folder`.

    Args:
        folder (`Path`): From [`stage`], filled by [`place_run`]; or the run's own.
        repo (`str`): The model's id on the Hub, or its name.
        say (`Callable`): Told what is left out, and why.
        card (`Path`, *optional*): A card to take instead.
        evaluations (`Sequence[Path]`): Folders of `trl-ces eval`.
        licence (`str`, *optional*): The base model's, where it is known better.
        online (`bool`): Whether the Hub may be asked for the base model's licence.
        merged (`bool`): Whether an adapter was merged into its base.
        report (`bool`): Whether to make report.html.
    """
    facts = read_facts(folder)
    alt = _draw_curves(folder, facts, repo.split("/")[-1], say)
    has_report = report and _write_report(folder, repo, evaluations, say)
    if card is not None:
        shutil.copyfile(card, folder / CARD)
        return
    extras = Extras(
        summaries=[read_summary(place) for place in evaluations],
        licence=Licence(licence) if licence else find_licence(facts.base, online),
        merged=merged,
        curves_alt=alt,
        report=has_report,
    )
    write_text(folder / CARD, model_card(facts, repo, extras).content)


def read_summary(place: Path) -> dict[str, Any]:
    """
    The summary.json of an evaluation.

    Raises:
        UserError: if it is not there, or damaged.
    """
    try:
        summary = json.loads((place / SUMMARY).read_text(encoding="utf-8"))
        if not summary["settings"] or not summary["benchmarks"]:
            raise ValueError("it holds no results")
    except FileNotFoundError:
        raise UserError(
            f"{place} holds no {SUMMARY}: name an output directory of `trl-ces eval`; one that was stopped goes on if "
            "started again."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{place / SUMMARY} cannot be read ({error}).") from None
    return summary


def check_evaluation(place: Path, weights: Path) -> None:
    """
    Refuses an evaluation that is not of these weights.

    Args:
        place (`Path`): A folder of `trl-ces eval`.
        weights (`Path`): The run's or checkpoint's.

    Raises:
        UserError: saying what it is instead.
    """
    settings: dict[str, Any] = read_summary(place)["settings"]
    measured = settings.get("fingerprint")
    if measured is not None and measured != fingerprint(weights):
        raise UserError(
            f"{place} measured other weights than those in {weights}: run `trl-ces eval --model {weights}`."
        )


def _draw_curves(folder: Path, facts: RunFacts, name: str, say: Callable[[str], None]) -> str | None:
    """Draws the curves; returns what they show in words, `None` if there is no picture."""
    if facts.curve is None or not facts.curve["step"]:
        say("No curves: the run logged none.")
        return None
    if find_spec("matplotlib") is None:
        say('No curves: they need matplotlib (pip install "trl_ces[study]").')
        return None
    from ..train.curves import draw

    draw({name: [facts.curve]}, folder / CURVES)
    first, last = ({key: values[place] for key, values in facts.curve.items()} for place in (0, -1))
    return (
        f"Three line charts, step {first['step']:.0f} to {last['step']:.0f}: accuracy from {first['accuracy']:.1%} to "
        f"{last['accuracy']:.1%}, answer length from {first['length']:.1f} to {last['length']:.1f} tokens, entropy "
        f"from {first['entropy']:.3f} to {last['entropy']:.3f} bits per token."
    )


def _write_report(folder: Path, repo: str, evaluations: Sequence[Path], say: Callable[[str], None]) -> bool:
    missing = [name for name in ("scipy", "matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        say(f'No report: it needs {" and ".join(missing)} (pip install "trl_ces[study]").')
        return False
    from ..report.page import make_page, render
    from ..report.runs import read_runs

    name = repo.split("/")[-1]
    names = [name, *(f"{name}, evaluation {number}" for number in range(1, len(evaluations) + 1))]
    try:
        page = make_page(read_runs([folder, *evaluations], names), f"trl-ces push --repo_id {repo}", "DAPO", "correct")
    except UserError as error:
        say(f"No report: {error}")
        return False
    write_text(folder / REPORT, render(page).replace(str(folder), name))
    return True
