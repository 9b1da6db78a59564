"""Run an evaluation: problems, prompts, completions, verdicts, results. A killed run resumes."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...grading.grader import grade_many
from ...support.errors import UserError
from ...support.imports import install_line
from .code.judge import CodeJudge, check_code
from .generate import TransformersBackend
from .models import EncodedPrompts, ModelFacts, check_context, check_model, encode_prompts, fingerprint, read_model
from .problems import Problem, choose, data_digest, load_benchmark
from .samples import key_of, open_samples
from .settings import EvaluationSettings, default_folder, fit_settings
from .summary import VERDICTS, summarize, write_summary
from .units import draw, judge_again, list_units, pending_batches
from .vllm_backend import VllmBackend

REFUSED_IN_A_STUDY = {
    "thinking_token_budget": "a study's table does not mark forced completions; use `trl-ces eval`",
    "model": "a study measures its own models; remove it",
    "output_dir": "a study keeps each model's completions apart; remove it",
}


def choose_backend(settings: EvaluationSettings) -> EvaluationSettings:
    """The settings with `"auto"` resolved."""
    backend, there = settings.backend, find_spec("vllm") is not None
    if backend == "auto":
        backend = "vllm" if there else "transformers"
    if backend == "vllm" and not there:
        raise UserError(f"vLLM is not installed: {install_line('vllm')}, or give `--backend transformers`.")
    for name in ("tensor_parallel_size", "data_parallel_size"):
        if backend == "transformers" and getattr(settings, name) > 1:
            raise UserError(
                f"`{name}` is {getattr(settings, name)}, but transformers generates on one device: remove it, or use "
                "vLLM."
            )
    if backend == "transformers" and settings.thinking_token_budget is not None:
        raise UserError("`thinking_token_budget` needs vLLM, and the backend is transformers: remove it, or use vLLM.")
    return dataclasses.replace(settings, backend=backend)


def _prepare(settings: EvaluationSettings) -> tuple[EvaluationSettings, list[Problem]]:
    """Checks all that does not depend on the model; the settings with their backend, and the problems."""
    settings = choose_backend(settings)
    check_code(settings.code_benchmarks(), settings.allow_code_execution)
    sets = [choose(load_benchmark(name, settings.data_dir), settings.max_problems) for name in settings.benchmarks]
    try:
        grade_many(["\\boxed{\\sqrt{8}}"], ["2\\sqrt{2}"])  # needs the algebra of the second verdict
    except RuntimeError as error:
        raise UserError(str(error)) from None
    return settings, [problem for problems in sets for problem in problems]


def _encode(settings: EvaluationSettings, problems: Sequence[Problem]) -> tuple[ModelFacts, EncodedPrompts]:
    """The model without its weights, and the prompts as its tokens; refuses what does not fit."""
    facts = read_model(settings)
    prompts = encode_prompts(facts.tokenizer, problems, settings.system_prompt)
    check_context(facts, prompts, settings)
    return facts, prompts


def run_evaluation(
    settings: EvaluationSettings,
    output_dir: Path,
    *,
    say: Callable[[str], None] = print,
    progress: bool = True,
    wait: bool = False,
) -> dict[str, Any]:
    """Evaluates a model, or finishes what a killed run has begun; returns the summary."""
    check_model(settings.model)
    settings, problems = _prepare(settings)
    facts, prompts = _encode(settings, problems)
    units = list_units(settings, problems, prompts)
    recorded, judge = record(settings, facts, problems), CodeJudge(settings.code_time_limit)
    with open_samples(output_dir, recorded, wait) as file:
        done = {key_of(sample) for sample in file.samples}
        say(f"{len(problems)} problems x {settings.num_samples} completions in {output_dir}: {len(done)} are there.")
        if settings.judge_again and done:
            file.replace(judge_again(units, file.samples, judge))
            say(f"{len(done)} completions judged again.")
        wanted, tokens = sum(len(unit.keys) for unit in units), 0
        if len(done) < wanted:
            backend = load_backend(facts, settings, max(map(len, prompts.ids)) + settings.max_new_tokens)
            bar = tqdm(total=wanted, initial=len(done), unit="completion", disable=not progress, smoothing=0.05)
            with bar, contextlib.closing(backend):
                batches = pending_batches(units, done, backend.batch_size)
                for samples in draw(backend, batches, facts.tokenizer, done, judge):
                    file.append(samples)
                    tokens += sum(sample["tokens"] for sample in samples)
                    bar.set_postfix_str(f"{tokens / (bar.format_dict['elapsed'] or 1):.0f} tokens/s", refresh=False)
                    bar.update(len(samples))
        summary = summarize(recorded, file.samples)
        write_summary(output_dir, summary)
    return summary


def record(settings: EvaluationSettings, facts: ModelFacts, problems: Sequence[Problem]) -> dict[str, Any]:
    """The content of settings.json: all that decides which samples are drawn."""
    data = {}
    for name in settings.benchmarks:
        own = [problem for problem in problems if problem.benchmark == name]
        data[name] = {"problems": len(own), "digest": data_digest(own)}
    chosen = settings.sampling()
    if settings.backend == "vllm":
        del chosen["batch_size"]  # vLLM does not use it
    return {**chosen, "fingerprint": facts.fingerprint, "data": data}


def load_backend(facts: ModelFacts, settings: EvaluationSettings, longest: int) -> TransformersBackend | VllmBackend:
    """Loads the weights. `longest`: most tokens of a prompt with its completion."""
    if settings.backend == "vllm":
        return VllmBackend(facts, settings, longest)
    return TransformersBackend.load(facts, settings)


def evaluate(
    model_dir: str | Path, benchmarks: str | Sequence[str] = "math12", verdict: str = "correct", **knobs: Any
) -> dict[str, dict[str, float]]:
    """Accuracy and length on benchmarks, as an `evaluation.function` of `trl-ces study`."""
    settings, folder = choose_backend(_study_settings(str(model_dir), benchmarks, verdict, knobs)), Path(model_dir)
    chosen, place = settings.sampling(), default_folder(settings.model)
    if folder.is_dir():
        chosen["model"], place = fingerprint(folder), folder / "evaluation"
    digest = hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]
    summary = run_evaluation(settings, place / digest, progress=False, wait=True)
    return {
        name: {
            "accuracy": found[verdict]["accuracy"],
            "length_tokens": found["length_tokens"]["mean"],
            "area": found["budgets"][verdict]["area"]["mean"],
        }
        for name, found in summary["benchmarks"].items()
    }


def check_evaluate(
    benchmarks: str | Sequence[str] = "math12", verdict: str = "correct", model_dir: str | None = None, **knobs: Any
) -> None:
    """Refuses what [`evaluate`] would refuse of models like `model_dir`; `trl-ces study` asks before its first run."""
    settings, problems = _prepare(_study_settings(model_dir or "of the study", benchmarks, verdict, knobs))
    if model_dir is not None:
        _encode(settings, problems)


def _study_settings(model: str, benchmarks: Any, verdict: str, knobs: dict[str, Any]) -> EvaluationSettings:
    if verdict not in VERDICTS:
        raise UserError(f"`verdict` is {verdict!r}: it must be one of {', '.join(VERDICTS)}.")
    for name, why in REFUSED_IN_A_STUDY.items():
        if knobs.get(name) is not None:
            raise UserError(f"`{name}`: {why}.")
    knobs = {name: str(value) if isinstance(value, Path) else value for name, value in knobs.items()}
    return EvaluationSettings(**fit_settings({"benchmarks": benchmarks, **knobs, "model": model}, "`evaluation`"))
