"""The model card: what was trained how, how to use it, how good it is, whom to cite."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.summary import results_table
from ..report.runs import STATE
from ..train.recipe import RECIPE
from .facts import FACTS, SHAPING_FIELDS, TRAINING_FIELDS, Licence, RunFacts, is_hub_id
from .method import effect, method

if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCard
    from jinja2 import Template

CURVES, REPORT = "curves.png", "report.html"
LOGGED = (
    "reward", "completions/mean_length", "entropy", "ces/group_accuracy", "ces/selected_tokens",
    "ces/shaping_to_advantage", "ces/sign_flip_share",
)  # fmt: skip
PACKAGES = ("trl_ces", "trl", "transformers", "torch", "peft", "vllm", "datasets", "accelerate", "python")
# What a file of the repository is, for the card.
FILES = {
    RECIPE: "what `trl-ces train` was given; its paths are those of the machine it ran on",
    STATE: "the training log, step by step (`log_history`)",
    FACTS: "settings as they came out, and the versions of all packages",
    REPORT: "curves and tables on one page, made by `trl-ces report`: download and open it",
}
DAPO_CITATION = """@article{yu2025dapo,
    title   = {{DAPO: An Open-Source LLM Reinforcement Learning System at Scale}},
    author  = {Qiying Yu and Zheng Zhang and Ruofei Zhu and Yufeng Yuan and others},
    year    = 2025,
    eprint  = {arXiv:2503.14476},
}"""
TRL_CITATION = """@software{vonwerra2020trl,
    title   = {{TRL: Transformers Reinforcement Learning}},
    author  = {von Werra, Leandro and Belkada, Younes and Tunstall, Lewis and Beeching, Edward and Thrush, Tristan and Lambert, Nathan and Huang, Shengyi and Rasul, Kashif and Gallouédec, Quentin},
    license = {Apache-2.0},
    url     = {https://github.com/huggingface/trl},
    year    = {2020}
}"""  # noqa: E501


@dataclass(frozen=True)
class Extras:
    """
    What stands in a card besides the run's own files.

    Args:
        summaries (`Sequence[dict]`): Contents of summary.json of evaluations of these very weights.
        licence ([`Licence`]): The base model's.
        merged (`bool`): Whether the weights are an adapter's and its base's, merged.
        curves_alt (`str`, *optional*): What curves.png shows; `None` where there is none.
        report (`bool`): Whether report.html is there.
    """

    summaries: Sequence[dict[str, Any]] = field(default_factory=list)
    licence: Licence = field(default_factory=Licence)
    merged: bool = False
    curves_alt: str | None = None
    report: bool = False


def model_card(facts: RunFacts, repo: str, extras: Extras) -> ModelCard:
    """
    The card of a run's model.

    Args:
        facts ([`RunFacts`]): The training.
        repo (`str`): The model's id on the Hub, or what it is called here.
        extras ([`Extras`]): What the run's own files do not tell.

    Returns:
        [`~huggingface_hub.ModelCard`]: Its text is Markdown with the Hub's metadata on top.
    """
    from huggingface_hub import ModelCard, ModelCardData

    from ..trainer import CESTrainer

    name, is_adapter = repo.split("/")[-1], facts.is_adapter and not extras.merged
    results = [result for summary in extras.summaries for result in eval_results(summary)]
    base_on_hub = is_hub_id(facts.base)
    metadata = ModelCardData(
        base_model=facts.base if base_on_hub else None,
        base_model_relation=("adapter" if is_adapter else "finetune") if base_on_hub else None,
        datasets=facts.dataset if _is_on_hub(facts.dataset) else None,
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["trl", "grpo", "ces" if facts.shaping == "ces" else "dapo", "generated_from_trainer"],
        license=extras.licence.license,
        license_name=extras.licence.license_name,
        license_link=extras.licence.license_link,
        model_name=name,
        eval_results=results or None,
    )
    if not results:
        metadata.model_name = None
    command, note = _train_again(facts)
    text = _template().render(
        card_data=metadata.to_yaml(),
        name=name,
        base=_linked(facts.base, "https://huggingface.co/") if base_on_hub else f"`{_short(facts.base)}`",
        dataset=_linked(facts.dataset, "https://huggingface.co/datasets/") if _is_on_hub(facts.dataset)
        else f"`{_short(facts.dataset)}`",
        extent=_extent(facts),
        method=method(facts.shaping, facts.settings, facts.recipe),
        effect=effect(facts.shaping, facts.settings, facts.recipe),
        adapter_note=_adapter_note(facts, extras),
        code=use_code(repo, facts, is_adapter),
        results=[results_table({**s, "settings": {**s["settings"], "model": name}}) for s in extras.summaries],
        curves=CURVES if extras.curves_alt else None,
        curves_alt=extras.curves_alt,
        logged=_logged(facts.log),
        settings=[(title, _cells(rows)) for title, rows in _settings(facts).items() if rows],
        files=[(f"[{file}]({file})", what) for file, what in FILES.items() if file != REPORT or extras.report],
        package=f"`trl_ces` {facts.packages.get('trl_ces', '')}".rstrip(),
        reproduce=command,
        reproduce_note=note,
        packages=[(key, facts.packages[key]) for key in PACKAGES
                  if facts.packages.get(key, "not installed") != "not installed"],
        licence=_licence_text(facts, extras.licence, base_on_hub),
        citations=[CESTrainer._paper["citation"], DAPO_CITATION, TRL_CITATION],
    )  # fmt: skip
    return ModelCard(text)


def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Markdown, so nothing is escaped for HTML. `ModelCard.from_template` would leave a blank line for every block.
    loader = PackageLoader("trl_ces.hub", ".")
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("card.md.j2")


def eval_results(summary: dict[str, Any]) -> list[EvalResult]:
    """An evaluation's accuracy and answer length on each benchmark, for the card's model-index."""
    from huggingface_hub import EvalResult

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
        measured = f"{entry['problems']} problems"
        found += [
            EvalResult(
                metric_type="accuracy",
                metric_name=f"accuracy, %, of {measured}",
                metric_value=round(100 * accuracy, 2),
                **where,
            ),
            EvalResult(
                metric_type="answer_length",
                metric_name=f"mean answer length, tokens, of {measured}",
                metric_value=round(length, 1),
                **where,
            ),
        ]
    return found


def use_code(name: str, facts: RunFacts, is_adapter: bool) -> str:
    """Lines that load the model and ask it something, as it was asked in training."""
    note = "  # an adapter: needs peft" if is_adapter else ""
    lines = [
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        f'model = AutoModelForCausalLM.from_pretrained("{name}"){note}',
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
    ]
    if facts.has_chat_template:
        system = [] if facts.system_prompt is None else [{"role": "system", "content": facts.system_prompt}]
        lines += ["messages = ["]
        lines += [f"    {message!r}," for message in [*system, {"role": "user", "content": "How much is 12 * 13?"}]]
        lines += [
            "]",
            "inputs = tokenizer.apply_chat_template(",
            '    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True',
            ")",
            f"output = model.generate(**inputs, max_new_tokens={facts.settings.get('max_completion_length', 512)})",
            'print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))',
        ]
    return "\n".join(lines)


def _extent(facts: RunFacts) -> str:
    steps = f"for {facts.steps} optimizer steps"
    return steps if facts.steps >= facts.max_steps else f"{steps} of {facts.max_steps}"


def _adapter_note(facts: RunFacts, extras: Extras) -> str:
    if extras.merged:  # the adapter's own file is gone then
        return "The weights are those of a LoRA adapter and its base, merged."
    if not facts.is_adapter:
        return ""
    note = "The weights are a LoRA adapter's: the base is loaded with it."
    if not is_hub_id(facts.base):
        note += " The base was a directory on the machine of the training: without it, this adapter does not load."
    return note


def _settings(facts: RunFacts) -> dict[str, dict[str, Any]]:
    def chosen(names: Sequence[str]) -> dict[str, Any]:
        return {name: facts.settings[name] for name in names if name in facts.settings}

    return {
        "Shaping": {"shaping": facts.shaping} | chosen(SHAPING_FIELDS[facts.shaping]),
        "Data, prompts and rewards": facts.data_settings(),
        "Optimization and sampling": chosen(TRAINING_FIELDS),
    }


def _cells(rows: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value).replace("|", "\\|").replace("\n", " ")) for name, value in rows.items()]


def _logged(log: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Name, first and last value. A mean over nothing, as of correct answers where none is, is logged as `None`."""
    rows = []
    for name in LOGGED:
        values = [entry[name] for entry in log if entry.get(name) is not None]
        if values:
            rows.append((name, f"{values[0]:.4g}", f"{values[-1]:.4g}"))
    return rows


def _train_again(facts: RunFacts) -> tuple[str, str]:
    """The command, and what to change first."""
    local = {"model_name_or_path": facts.base, "dataset_name": facts.dataset}
    changes = [
        f"`{name}` (there {_short(value)!r})" for name, value in local.items() if value.startswith(("/", ".", "~"))
    ]
    note = ""
    if changes:
        note = f"First set {' and '.join(changes)} in it to what you have: a path of another machine stands there."
    words = ["trl-ces", "train", "--config", RECIPE, "--output_dir", "my-run"]
    processes = facts.settings.get("world_size", 1)
    words += ["--num_processes", str(processes)] if processes > 1 else []
    words += ["--push_to_hub", "false"] if facts.recipe.get("push_to_hub") else []
    return shlex.join(words), note


def _licence_text(facts: RunFacts, licence: Licence, base_on_hub: bool) -> str:
    base = _linked(facts.base, "https://huggingface.co/") if base_on_hub else f"`{_short(facts.base)}`"
    if licence.license is None:
        return f"That of {base}, which is not stated here: look it up before you use or pass on this model."
    name = licence.license_name or licence.license
    text = f"[{name}]({licence.license_link})" if licence.license_link else name
    return f"{text}, that of {base}."


def _is_on_hub(dataset: str) -> bool:
    return is_hub_id(dataset) and "/" in dataset


def _linked(name: str, prefix: str) -> str:
    return f"[{name}]({prefix}{name})"


def _short(name: str) -> str:
    """A path's last part: the others say nothing to a reader elsewhere."""
    return Path(name).name if name.startswith(("/", ".", "~")) else name
