"""Run an evaluation: problems, prompts, answers, verdicts, results. A killed run resumes."""

import contextlib
import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...grading import grade_many
from ...support.errors import UserError
from .code.judge import CodeJudge, check_code
from .generate import Backend, TransformersBackend
from .models import EncodedPrompts, ModelFacts, check_context, check_model, encode_prompts, fingerprint, read_model
from .problems import Problem, choose, data_digest, load_benchmark
from .samples import Key, SampleFile, key_of
from .settings import EvaluationSettings, fit_settings
from .summary import VERDICTS, summarize, write_summary
from .units import Unit, draw, judge_again, list_units, pending_batches
from .vllm_backend import VllmBackend, check_vllm

Summary = dict[str, Any]


def benchmark_problems(settings: EvaluationSettings) -> list[Problem]:
    """The problems of all benchmarks, in order."""
    return [
        problem
        for name in settings.benchmarks
        for problem in choose(load_benchmark(name, settings.data_dir), settings.max_problems)
    ]


def choose_backend(settings: EvaluationSettings) -> EvaluationSettings:
    """The settings with `"auto"` resolved."""
    backend = settings.backend
    if backend == "auto":
        backend = "transformers" if find_spec("vllm") is None else "vllm"
    if backend == "vllm":
        check_vllm()
    for name in ("tensor_parallel_size", "data_parallel_size"):
        if backend == "transformers" and getattr(settings, name) > 1:
            raise UserError(
                f"`{name}` is {getattr(settings, name)}, but transformers generates on one device: remove it, or use "
                "vLLM."
            )
    return dataclasses.replace(settings, backend=backend)


def _prepare(settings: EvaluationSettings) -> tuple[EvaluationSettings, list[Problem]]:
    """Checks all that does not depend on the model; the settings with their backend, and the problems."""
    settings = choose_backend(settings)
    check_code(settings.code_benchmarks(), settings.allow_code_execution)
    problems = benchmark_problems(settings)
    try:
        grade_many(["\\boxed{\\sqrt{8}}"], ["2\\sqrt{2}"])  # needs the algebra of the second verdict
    except RuntimeError as error:
        raise UserError(str(error)) from None
    return settings, problems


def run_evaluation(
    settings: EvaluationSettings,
    output_dir: Path,
    *,
    say: Callable[[str], None] = print,
    progress: bool = True,
    wait: bool = False,
) -> Summary:
    """Evaluates a model, or finishes what a killed run has begun."""
    check_model(settings.model)
    settings, problems = _prepare(settings)
    facts = read_model(settings)
    prompts = encode_prompts(facts.tokenizer, problems, settings.system_prompt)
    check_context(facts, prompts, settings)
    units = list_units(settings, problems, prompts)
    recorded = record(settings, facts, problems)
    wanted = sum(len(unit.keys) for unit in units)
    with SampleFile(output_dir, recorded, wait) as file:
        done = {key_of(sample) for sample in file.samples}
        say(f"{len(problems)} problems x {settings.num_samples} answers in {output_dir}: {len(done)} are there.")
        code_judge = CodeJudge(settings.code_time_limit)
        if settings.judge_again and done:
            file.replace(judge_again(units, file.samples, code_judge))
            say(f"{len(done)} answers judged again.")
        if len(done) < wanted:
            _draw_missing(settings, facts, prompts, units, file, done, code_judge, progress)
        summary = summarize(recorded, file.samples)
        write_summary(output_dir, summary)
    return summary


def _draw_missing(
    settings: EvaluationSettings,
    facts: ModelFacts,
    prompts: EncodedPrompts,
    units: list[Unit],
    file: SampleFile,
    done: set[Key],
    code_judge: CodeJudge,
    progress: bool,
) -> None:
    """Samples and judges the answers that are not yet in `file`, batch by batch."""
    longest = max(map(len, prompts.ids)) + settings.max_new_tokens
    backend = load_backend(facts, settings, longest)
    wanted, tokens = sum(len(unit.keys) for unit in units), 0
    bar = tqdm(total=wanted, initial=len(done), unit="answer", disable=not progress, smoothing=0.05)
    with bar, contextlib.closing(backend):
        batches = pending_batches(units, done, backend.batch_size)
        for samples in draw(backend, batches, facts.tokenizer, done, code_judge):
            file.append(samples)
            tokens += sum(sample["tokens"] for sample in samples)
            bar.set_postfix_str(f"{tokens / (bar.format_dict['elapsed'] or 1):.0f} tokens/s", refresh=False)
            bar.update(len(samples))


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


def load_backend(facts: ModelFacts, settings: EvaluationSettings, longest: int) -> Backend:
    """Loads the weights. `longest`: most tokens of a prompt with its answer."""
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
    """Accuracy and length on benchmarks, as an `evaluation.function` of `trl-ces study`."""
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
        name: {
            "accuracy": found[verdict]["accuracy"],
            "length_tokens": found["length_tokens"]["mean"],
            "area": found["budgets"][verdict]["area"]["mean"],
        }
        for name, found in summary["benchmarks"].items()
    }


def check_evaluate(
    benchmarks: str | Sequence[str] = "math12",
    output_dir: str | Path | None = None,
    verdict: str = "correct",
    **knobs: Any,
) -> None:
    """Refuses what [`evaluate`] would refuse for any model; `trl-ces study` asks before its first run."""
    _prepare(_study_settings("of the study", benchmarks, verdict, knobs))


def _study_settings(
    model: str, benchmarks: str | Sequence[str], verdict: str, knobs: dict[str, Any]
) -> EvaluationSettings:
    if verdict not in VERDICTS:
        raise UserError(f"`verdict` is {verdict!r}: it must be one of {', '.join(VERDICTS)}.")
    names = benchmarks if isinstance(benchmarks, str) else list(benchmarks)
    knobs = {name: str(value) if isinstance(value, Path) else value for name, value in knobs.items()}
    given = {"benchmarks": names, **knobs, "model": model}
    return EvaluationSettings(**fit_settings(given, "`evaluation`"))
