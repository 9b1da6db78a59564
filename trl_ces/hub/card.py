"""The model card: what was trained and how, how to use it, how good it is, whom to cite."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.summary import results_table
from ..support.hub import is_local
from ..train.recipe import RECIPE
from .facts import RunFacts
from .method import effect, method

TEMPLATE = Path(__file__).with_name("card.md.j2")
LOGGED = (
    "reward", "completions/mean_length", "entropy", "ces/group_accuracy", "ces/selected_tokens",
    "ces/shaping_to_advantage", "ces/sign_flip_share",
)  # fmt: skip
CARD_PACKAGES = ("trl_ces", "trl", "transformers", "torch", "peft", "vllm", "datasets", "accelerate", "python")


def model_card(
    facts: RunFacts,
    repo: str,
    *,
    summaries: Sequence[dict[str, Any]] = (),
    licence: Mapping[str, Any] | None = None,
    merged: bool = False,
    curves: str | None = None,
    report: bool = False,
) -> ModelCard:
    """
    The card of a run's model.

    Args:
        facts ([`RunFacts`]): The training.
        repo (`str`): The model's id on the Hub, or its name here.
        summaries (`Sequence[dict]`): summary.json of evaluations of these weights.
        licence (`Mapping`, *optional*): Of the base model, from [`find_licence`].
        merged (`bool`): Whether the weights are an adapter merged into its base.
        curves (`str`, *optional*): What curves.png shows, if there is one.
        report (`bool`): Whether there is a report.html.

    Returns:
        [`~huggingface_hub.ModelCard`]: Markdown below the Hub's metadata.
    """
    from ..trainer import CESTrainer  # loads TRL, which takes seconds

    name, is_adapter = repo.split("/")[-1], facts.is_adapter and not merged
    base_on_hub, dataset_on_hub = not is_local(facts.base), "/" in facts.dataset and not is_local(facts.dataset)
    results = [result for summary in summaries for result in eval_results(summary)]
    metadata = ModelCardData(
        base_model=facts.base if base_on_hub else None,
        base_model_relation=("adapter" if is_adapter else "finetune") if base_on_hub else None,
        datasets=facts.dataset if dataset_on_hub else None,
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["trl", "grpo", "ces" if facts.shaping == "ces" else "dapo", "generated_from_trainer"],
        model_name=name if results else None,
        eval_results=results or None,
        **(licence or {}),
    )
    local = {"model_name_or_path": facts.base, "dataset_name": facts.dataset}
    return ModelCard.from_template(
        metadata,
        str(TEMPLATE),
        facts=facts,
        name=name,
        repo=repo,
        base=_linked(facts.base, "") if base_on_hub else f"`{_last_part(facts.base)}`",
        dataset=_linked(facts.dataset, "datasets/") if dataset_on_hub else f"`{_last_part(facts.dataset)}`",
        method=method(facts.shaping, facts.settings, facts.recipe),
        effect=effect(facts.shaping, facts.settings),
        merged=merged,
        is_adapter=is_adapter,
        results=[results_table({**s, "settings": {**s["settings"], "model": name}}) for s in summaries],
        curves=curves,
        logged=_first_and_last(facts.log),
        report=report,
        command=_train_command(facts),
        paths=[f"`{key}` (there {_last_part(path)!r})" for key, path in local.items() if is_local(path)],
        packages={key: facts.packages[key] for key in CARD_PACKAGES
                  if facts.packages.get(key, "not installed") != "not installed"},
        citation=CESTrainer._paper["citation"],
    )  # fmt: skip


def eval_results(summary: dict[str, Any]) -> list[EvalResult]:
    """An evaluation's accuracy and answer length on each benchmark, for the card's model-index."""
    settings, found = summary["settings"], []
    how = {key: settings[key] for key in ("num_samples", "temperature", "top_p", "max_new_tokens") if key in settings}
    for name, entry in summary["benchmarks"].items():
        benchmark = BENCHMARKS[name]
        hub = benchmark.hub
        accuracy, length = entry["correct"]["accuracy"], entry["length_tokens"]["mean"]
        if accuracy is None:
            continue
        where: dict[str, Any] = {
            "task_type": "text-generation",
            "dataset_name": benchmark.title,
            "dataset_type": hub.repository if hub else name,
            "dataset_config": hub.configuration if hub else None,
            "dataset_split": hub.split if hub else None,
            "metric_args": how,
        }
        for kind, title, value in (
            ("accuracy", "accuracy, %", round(100 * accuracy, 2)),
            ("answer_length", "mean answer length, tokens", round(length, 1)),
        ):
            metric = f"{title}, of {entry['problems']} problems"
            found.append(EvalResult(metric_type=kind, metric_name=metric, metric_value=value, **where))
    return found


def _first_and_last(log: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """Name, first and last logged value; TRL logs a mean over nothing as `None`."""
    rows = []
    for name in LOGGED:
        values = [entry[name] for entry in log if entry.get(name) is not None]
        if values:
            rows.append((name, values[0], values[-1]))
    return rows


def _train_command(facts: RunFacts) -> str:
    processes = facts.settings.get("world_size", 1)
    words = ["trl-ces", "train", "--config", RECIPE, "--output_dir", "my-run"]
    words += ["--num_processes", str(processes)] if processes > 1 else []
    words += ["--push_to_hub", "false"] if facts.recipe.get("push_to_hub") else []
    return shlex.join(words)


def _linked(name: str, kind: str) -> str:
    return f"[{name}](https://huggingface.co/{kind}{name})"


def _last_part(name: str) -> str:
    """The last part of a path; the others mean nothing to a reader elsewhere."""
    return Path(name).name if is_local(name) else name
