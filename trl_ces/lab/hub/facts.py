"""What a run does not know of its model: how good it is, and the licence of its base."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCard

from ...support.errors import UserError, hub_errors
from ...support.hub import is_local
from ...train.card import CARD
from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.models import fingerprint
from ..evaluation.summary import SUMMARY


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


def eval_results(summary: dict[str, Any]) -> list[EvalResult]:
    """Accuracy and completion length of an evaluation on each benchmark, for the card's model-index."""
    settings, found = summary["settings"], []
    how = {key: settings[key] for key in ("num_samples", "temperature", "top_p", "max_new_tokens") if key in settings}
    for name, entry in summary["benchmarks"].items():
        benchmark, accuracy = BENCHMARKS[name], entry["correct"]["accuracy"]
        if accuracy is None:
            continue
        where: dict[str, Any] = {
            "task_type": "text-generation",
            "dataset_name": benchmark.title,
            "dataset_type": benchmark.hub.repository if benchmark.hub else name,
            "dataset_config": benchmark.hub.configuration if benchmark.hub else None,
            "dataset_split": benchmark.hub.split if benchmark.hub else None,
            "metric_args": how,
        }
        for kind, title, value in (
            ("accuracy", "accuracy, %", round(100 * accuracy, 2)),
            ("completion_length", "mean completion length, tokens", round(entry["length_tokens"]["mean"], 1)),
        ):
            metric = f"{title}, of {entry['problems']} problems"
            found.append(EvalResult(metric_type=kind, metric_name=metric, metric_value=value, **where))
    return found


def find_licence(base: str) -> dict[str, str]:
    """`license`, `license_name` and `license_link` as the card of the base model states them."""
    card = Path(base).expanduser() / CARD
    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError)  # no metadata, a model that is gone
    try:
        if card.is_file():
            data: Any = ModelCard.load(card, ignore_metadata_errors=True).data
        else:
            data = None if is_local(base) else HfApi().model_info(base).card_data
    except refusals:
        return {}
    stated = {name: getattr(data, name, None) for name in ("license", "license_name", "license_link")}
    return {name: value for name, value in stated.items() if isinstance(value, str)}
