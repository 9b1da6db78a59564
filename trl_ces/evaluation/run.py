"""Runs an evaluation: problems, prompts, answers, verdicts, results. Goes on where a killed run was."""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..grading import grade_many
from ..support.errors import UserError
from .benchmarks import BENCHMARKS
from .code.judge import CodeJudge, check_code
from .generate import Backend, TransformersBackend
from .models import ModelFacts, check_context, encode_prompts, fingerprint, read_model
from .problems import Problem, choose, data_digest, load_benchmark
from .progress import Progress
from .samples import SampleFile, key_of
from .settings import EvaluationSettings
from .summary import summarize, write_results
from .units import draw, judge_again, pending_batches, plan
from .vllm_backend import VllmBackend, check_vllm

Summary = dict[str, Any]


def load_problems(settings: EvaluationSettings) -> list[Problem]:
    """
    The problems of all benchmarks, in their order.

    Raises:
        UserError: if one is not there, naming what to do.
    """
    return [
        problem
        for name in settings.benchmarks
        for problem in choose(load_benchmark(name, settings.data_dir), settings.max_problems)
    ]


def choose_backend(settings: EvaluationSettings) -> EvaluationSettings:
    """
    The settings with `"auto"` decided.

    Raises:
        UserError: if vLLM is asked for and not installed, or its options are given without it.
    """
    backend = settings.backend
    if backend == "auto":
        backend = "transformers" if find_spec("vllm") is None else "vllm"
    if backend == "vllm":
        check_vllm()
    for name in ("tensor_parallel_size", "data_parallel_size"):
        if backend == "transformers" and getattr(settings, name) > 1:
            raise UserError(
                f"`{name}` is {getattr(settings, name)} and transformers generates here, on one device: remove it, or "
                "use vLLM."
            )
    return dataclasses.replace(settings, backend=backend)


def check_grading() -> None:
    """Refuses where the second verdict cannot be given here, which would show only after the first answers.

    Raises:
        UserError: saying what is missing.
    """
    try:
        grade_many(["\\boxed{\\sqrt{8}}"], ["2\\sqrt{2}"])  # needs the algebra
    except RuntimeError as error:
        raise UserError(str(error)) from None


def run_evaluation(
    settings: EvaluationSettings,
    output_dir: Path,
    *,
    say: Callable[[str], None] = print,
    progress: bool = True,
    wait: bool = False,
) -> Summary:
    """
    Evaluates a model, or finishes what a killed run had begun.

    Args:
        settings ([`EvaluationSettings`]): What to do.
        output_dir (`Path`): Where `settings.json`, `samples.jsonl`, `summary.json` and `table.md` go.
        say (`Callable`): Told what is done.
        progress (`bool`): Whether to show a line with throughput and time left.
        wait (`bool`): Wait for another process that is at work in `output_dir`, instead of refusing.

    Returns:
        `dict`: The content of `summary.json`, see [`summarize`].

    Raises:
        UserError: if something is refused; all that can be is refused before the weights are loaded.
    """
    settings = choose_backend(settings)
    check_code(settings.code_benchmarks(), settings.allow_code_execution)
    problems = load_problems(settings)
    check_grading()
    facts = read_model(settings)
    prompts = encode_prompts(facts.tokenizer, problems, settings.system_prompt)
    check_context(facts, prompts, settings)
    units = plan(settings, problems, prompts)
    recorded = record(settings, facts, problems)
    keys = [key for unit in units for key in unit.keys]
    with SampleFile(output_dir, recorded, keys, wait) as file:
        done = {key_of(sample) for sample in file.samples}
        excluded = [f"{name} row {row} ({why})" for name in settings.benchmarks for row, why in _excluded(name)]
        say(f"{len(problems)} problems x {settings.num_samples} answers in {output_dir}: {len(done)} are there.")
        if excluded:
            say(f"Left out, {len(excluded)}: {'; '.join(excluded)}.")
        programs = CodeJudge(settings.code_time_limit)
        if settings.judge_again and done:
            file.replace(judge_again(units, file.samples, programs))
            say(f"{len(done)} answers judged again.")
        if len(done) < len(keys):
            longest = max(map(len, prompts.ids)) + settings.max_new_tokens
            backend = load_backend(facts, settings, longest)
            try:
                batches = pending_batches(units, done, backend.batch_size)
                with Progress(len(keys), len(done), progress) as line:
                    for samples in draw(backend, batches, facts.tokenizer, done, programs):
                        file.append(samples)
                        line.add(samples)
            finally:
                backend.close()
        summary = summarize(recorded, file.samples)
        write_results(output_dir, summary)
    return summary


def _excluded(name: str) -> list[tuple[int, str]]:
    return list(BENCHMARKS[name].excluded.items())


def record(settings: EvaluationSettings, facts: ModelFacts, problems: Sequence[Problem]) -> dict[str, Any]:
    """What settings.json holds: all that decides which samples are drawn."""
    data = {}
    for name in settings.benchmarks:
        own = [problem for problem in problems if problem.benchmark == name]
        data[name] = {"problems": len(own), "digest": data_digest(own)}
    chosen = settings.sampling()
    if settings.backend == "vllm":
        del chosen["batch_size"]  # vLLM does not use it
    return {**chosen, "fingerprint": facts.fingerprint, "data": data}


def load_backend(facts: ModelFacts, settings: EvaluationSettings, longest: int) -> Backend:
    """The weights, loaded. `longest`: tokens that a prompt and its answer may have."""
    if settings.backend == "vllm":
        return VllmBackend(facts, settings, longest)
    return TransformersBackend.load(facts, settings)


def evaluate(
    model_dir: str | Path,
    benchmarks: str | Sequence[str] = "math12",
    output_dir: str | Path | None = None,
    verdict: str = "correct",
    **knobs: Any,
) -> dict[str, dict[str, float]]:
    """
    The `evaluation.function` of `trl-ces study`: what a model does on benchmarks.

    Args:
        model_dir (`str` or `Path`):
            A saved model, an adapter, or a Hub id.
        benchmarks (`str` or `Sequence[str]`, *optional*, defaults to `"math12"`):
            Sets and groups.
        output_dir (`str` or `Path`, *optional*):
            Where the samples go. By default into `evaluation/` in the model's directory, one folder for each choice of
            settings, so that a stopped study goes on there; for a model of the Hub they are not kept.
        verdict (`str`, *optional*, defaults to `"correct"`):
            `"correct"`, or `"correct_qwen"` for the Qwen2.5-Math script's.
        knobs:
            Fields of [`EvaluationSettings`] that differ from its defaults.

    Returns:
        `dict`: benchmark -> `accuracy` in [0, 1] and `length_tokens`.

    Raises:
        UserError: if something is refused.
    """
    settings = _study_settings(str(model_dir), benchmarks, verdict, knobs)
    with tempfile.TemporaryDirectory() as unkept:
        if output_dir is not None:
            folder = Path(output_dir)
        elif Path(model_dir).is_dir():
            chosen = json.dumps({**settings.sampling(), "model": fingerprint(Path(model_dir))}, sort_keys=True)
            folder = Path(model_dir) / "evaluation" / hashlib.sha256(chosen.encode()).hexdigest()[:8]
        else:
            folder = Path(unkept)
        summary = run_evaluation(settings, folder, progress=False, wait=True)
    return {
        name: {"accuracy": found[verdict]["accuracy"], "length_tokens": found["length_tokens"]["mean"]}
        for name, found in summary["benchmarks"].items()
    }


def check_evaluate(
    benchmarks: str | Sequence[str] = "math12",
    output_dir: str | Path | None = None,
    verdict: str = "correct",
    **knobs: Any,
) -> None:
    """What [`evaluate`] would refuse whatever the model: `trl-ces study` asks before its first run.

    Raises:
        UserError: if a setting is wrong, or a benchmark's data are not there.
    """
    settings = choose_backend(_study_settings("of the study", benchmarks, verdict, knobs))
    check_code(settings.code_benchmarks(), settings.allow_code_execution)
    load_problems(settings)
    check_grading()


def _study_settings(
    model: str, benchmarks: str | Sequence[str], verdict: str, knobs: dict[str, Any]
) -> EvaluationSettings:
    if verdict not in ("correct", "correct_qwen"):
        raise UserError(f"`verdict` is {verdict!r}: it is one of correct, correct_qwen.")
    names = benchmarks.split(",") if isinstance(benchmarks, str) else list(benchmarks)
    unknown = set(knobs) - {knob.name for knob in dataclasses.fields(EvaluationSettings)}
    if unknown:
        raise UserError(f"`evaluation`: the key `{min(unknown)}` is not known; docs/evaluation.md lists them.")
    return EvaluationSettings(model=model, benchmarks=[name.strip() for name in names], **knobs)
