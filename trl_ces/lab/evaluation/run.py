"""Run or resume an evaluation: load problems, encode prompts, generate completions in batches, grade and summarize."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...grading.grader import grade_many
from ...support.errors import UserError
from ...support.files import write_json, write_text
from ...support.imports import install_line
from .benchmarks import SETS, Benchmark, Problem, choose, data_digest, load_benchmark, load_own
from .code.grader import CodeGrader, check_code
from .generate import TransformersBackend, VllmBackend
from .measures import CORRECTNESS
from .models import EncodedPrompts, ModelFacts, check_context, check_model, encode_prompts, fingerprint, read_model
from .results import SUMMARY, TABLE, results_table, summarize
from .samples import FIELDS, GENERATED, Key, Sample, key_of, open_samples
from .settings import EvaluationSettings, default_folder, make_settings
from .tables import percent


def choose_backend(settings: EvaluationSettings) -> EvaluationSettings:
    """Resolve the `"auto"` backend, and check that this machine has the required software."""
    check_code(settings.code_benchmarks(), settings.allow_code_execution)
    backend, installed = settings.backend, find_spec("vllm") is not None
    if backend == "auto":
        backend = "vllm" if installed else "transformers"
    if backend == "vllm" and not installed:
        raise UserError(f"vLLM is not installed: {install_line('vllm')}, or use `--backend transformers`.")
    return dataclasses.replace(settings, backend=backend)


def _load_problems(settings: EvaluationSettings) -> list[Problem]:
    """Load the problems, and check that the grader works."""
    names, folder = settings.benchmarks, settings.data_dir
    sets = [load_own(settings.data)] if settings.data else [load_benchmark(name, folder) for name in names]
    try:
        # This call raises an error if the algebra package for `correct_qwen` is missing.
        grade_many(["\\boxed{\\sqrt{8}}"], ["2\\sqrt{2}"], with_qwen=True)
    except RuntimeError as error:
        raise UserError(str(error)) from None
    return [problem for problems in sets for problem in choose(problems, settings.max_problems)]


def _encode(settings: EvaluationSettings, facts: ModelFacts, problems: Sequence[Problem]) -> EncodedPrompts:
    """Encode the prompts, and check that they fit the model's context."""
    prompts = encode_prompts(facts.tokenizer, problems, settings.system_prompt, settings.prompt_template)
    check_context(facts, prompts, settings)
    return prompts


@dataclasses.dataclass(frozen=True)
class Request:
    """One completion to generate."""

    problems: list[Problem]  # one problem, or a code problem and its counterpart in the stricter set
    sample: int  # index among the problem's completions
    prompt: list[int]  # token ids
    thinking_prefilled: bool  # whether the prompt ends with `<think>`
    seed: int  # sampling seed, below 2^31

    @property
    def keys(self) -> list[Key]:
        """Keys of the completion's lines in samples.jsonl."""
        return [(problem.benchmark, problem.id, self.sample) for problem in self.problems]


def sample_seed(seed: int, benchmark: str, problem: int, sample: int) -> int:
    """Derive a 31-bit seed for one completion, so that the completions of a run use different random streams."""
    text = f"{seed}/{benchmark}/{problem}/{sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def list_requests(settings: EvaluationSettings, problems: Sequence[Problem], prompts: EncodedPrompts) -> list[Request]:
    """List all completions to generate, sorted by benchmark and prompt length to reduce padding."""
    rank = {name: index for index, name in enumerate(settings.benchmarks)}
    bases = {name: base for name in rank if (base := SETS[name].base) in rank}
    stricter_problems = {
        (bases[problem.benchmark], problem.id): problem for problem in problems if problem.benchmark in bases
    }
    entries = zip(problems, prompts.ids, prompts.thinking_prefilled, strict=True)
    prompted_entries = [entry for entry in entries if entry[0].benchmark not in bases]
    prompted_entries.sort(key=lambda entry: (rank[entry[0].benchmark], len(entry[1]), entry[0].id))
    requests = []
    for problem, ids, prefilled in prompted_entries:
        key = problem.benchmark, problem.id
        problems_of_request = [problem, stricter_problems[key]] if key in stricter_problems else [problem]
        for sample in range(settings.num_samples):
            requests.append(
                Request(problems_of_request, sample, ids, prefilled, sample_seed(settings.seed, *key, sample))
            )
    return requests


def pending_batches(requests: Sequence[Request], done: set[Key], batch_size: int | None) -> list[list[Request]]:
    """
    Return all batches with a missing completion. Batches are not split, because floating-point rounding depends on the
    batch. Without a batch size, return one batch of all missing completions.
    """
    if batch_size is None:
        missing = [request for request in requests if not done.issuperset(request.keys)]
        return [missing] if missing else []
    batches = [list(requests[start : start + batch_size]) for start in range(0, len(requests), batch_size)]
    return [batch for batch in batches if any(not done.issuperset(request.keys) for request in batch)]


def grade_completions(completions: Sequence[tuple[Request, Sample]], code_grader: CodeGrader) -> list[Sample]:
    """Grade completions, given as pairs of a request and the `GENERATED` fields, and return the samples."""
    texts = [
        (request, request.problems[0], output) for request, output in completions if request.problems[0].code is None
    ]
    grades = grade_many(
        [output["text"] for *_, output in texts],
        [problem.gold for _, problem, _ in texts],
        [problem.text for _, problem, _ in texts],
        benchmarks=[problem.benchmark for _, problem, _ in texts],
        with_qwen=True,
        thinking_prefilled=[request.thinking_prefilled for request, *_ in texts],
    )
    samples = [
        _sample(request, problem, (grade.answer, grade.correct, grade.correct_qwen), output)
        for (request, problem, output), grade in zip(texts, grades, strict=True)
    ]
    code_completions = [
        (request, task, output) for request, output in completions if (task := request.problems[-1].code) is not None
    ]
    results = code_grader.grade(
        [(task, output["text"], request.thinking_prefilled) for request, task, output in code_completions]
    )
    for (request, _, output), result in zip(code_completions, results, strict=True):
        # The base set uses the first group of tests; the stricter set uses both groups.
        for problem, correct in zip(request.problems, result.passed[-len(request.problems) :], strict=True):
            samples.append(_sample(request, problem, (result.program, correct, correct), output))
    return samples


def _sample(request: Request, problem: Problem, graded: tuple[Any, ...], output: Sample) -> Sample:
    """Build a line of samples.jsonl."""
    requested = (problem.benchmark, problem.id, request.sample, request.seed, problem.gold)
    return dict(zip(FIELDS, (*requested, *graded, *(output[name] for name in GENERATED)), strict=True))


def draw(
    backend: Any, batches: Sequence[Sequence[Request]], tokenizer: Any, done: set[Key], code_grader: CodeGrader
) -> Iterator[list[Sample]]:
    """Generate and grade the batches; yield the missing samples as their completions finish."""
    for batch in batches:
        for finished in backend.generate([request.prompt for request in batch], [request.seed for request in batch]):
            new = [completion for completion in finished if not done.issuperset(batch[completion.index].keys)]
            if not new:  # generated only because another completion of the batch is missing
                continue
            texts = tokenizer.batch_decode([completion.tokens for completion in new], skip_special_tokens=True)
            outputs = [
                (
                    batch[completion.index],
                    dict(zip(GENERATED, (len(completion.tokens), completion.finish_reason, text), strict=True)),
                )
                for completion, text in zip(new, texts, strict=True)
            ]
            yield [sample for sample in grade_completions(outputs, code_grader) if key_of(sample) not in done]


def load_backend(facts: ModelFacts, settings: EvaluationSettings, longest: int) -> TransformersBackend | VllmBackend:
    """Load the weights. `longest`: maximum number of tokens in a prompt and its completion."""
    if settings.backend == "vllm":
        return VllmBackend(facts, settings, longest)
    return TransformersBackend.load(facts, settings)


def run_evaluation(
    settings: EvaluationSettings,
    output_dir: Path,
    *,
    report: Callable[[str], None] = print,
    progress: bool = True,
    wait: bool = False,
) -> dict[str, Any]:
    """
    Evaluate a model, or resume an interrupted evaluation in `output_dir`; return the summary.

    If another process uses `output_dir`, wait for that process if `wait` is set; otherwise raise `UserError`.
    """
    check_model(settings.model)
    settings = choose_backend(settings)
    facts = read_model(settings)  # first, so that an invalid model fails before any download
    problems = _load_problems(settings)
    prompts = _encode(settings, facts, problems)
    requests = list_requests(settings, problems, prompts)
    run_settings, code_grader = collect_settings(settings, facts, problems), CodeGrader(settings.code_time_limit)
    with open_samples(output_dir, run_settings, wait) as file:
        done, total = {key_of(sample) for sample in file.samples}, sum(len(request.keys) for request in requests)
        report(
            f"{len(problems)} problems x {settings.num_samples} completions in {output_dir}: {len(done)} already done."
        )
        if len(done) < total:
            backend = load_backend(facts, settings, max(map(len, prompts.ids)) + settings.max_new_tokens)
            bar = tqdm(total=total, initial=len(done), unit="completion", disable=not progress, smoothing=0.05)
            with bar, contextlib.closing(backend):
                batches = pending_batches(requests, done, backend.batch_size)
                for samples in draw(backend, batches, facts.tokenizer, done, code_grader):
                    file.append(samples)
                    bar.update(len(samples))
        summary = summarize(run_settings, file.samples)
        write_json(output_dir / SUMMARY, summary)
        write_text(output_dir / TABLE, results_table(summary))
    for name in settings.benchmarks:
        report_missing_answers(SETS[name], [sample for sample in file.samples if sample["benchmark"] == name], report)
    return summary


def report_missing_answers(benchmark: Benchmark, samples: Sequence[Sample], report: Callable[[str], None]) -> None:
    """Report if the grader found no final answer in any completion of a benchmark without code."""
    if benchmark.kind != "code" and samples and all(sample["final_answer"] is None for sample in samples):
        truncated = sum(sample["finish_reason"] == "length" for sample in samples) / len(samples)
        report(
            f"Note: the grader found no final answer in any of the {len(samples)} completions of {benchmark.title} "
            f"({percent(truncated)} % truncated), for example in {samples[0]['text'][-80:]!r}. docs/grading.md lists "
            "the accepted forms, such as \\boxed{}."
        )


def collect_settings(settings: EvaluationSettings, facts: ModelFacts, problems: Sequence[Problem]) -> dict[str, Any]:
    """Collect the content of settings.json: everything that determines which samples are drawn."""
    data = {}
    for name in settings.benchmarks:
        subset = [problem for problem in problems if problem.benchmark == name]
        data[name] = {"problems": len(subset), "digest": data_digest(subset)}
    sampling = settings.sampling()
    if settings.backend == "vllm":
        del sampling["batch_size"]  # not used by vLLM
    return {**sampling, "fingerprint": facts.fingerprint, "data": data}


def evaluate(
    model_dir: str | Path, benchmarks: str | Sequence[str] | None = None, correctness: str = "correct", **options: Any
) -> dict[str, dict[str, float]]:
    """
    Measure accuracy and length on benchmarks. Studies can use this as their `evaluation` function.

    Args:
        model_dir (`str` or `Path`): Hub id, or directory of a saved model, where the completions are also stored.
        benchmarks (`str` or `Sequence[str]`, *optional*): Benchmarks and groups. Defaults to `"math12"` if `data` is
            not set.
        correctness (`str`): `"correct"`, or `"correct_qwen"` for the rules of the Qwen2.5-Math script.
        **options: Other fields of [`EvaluationSettings`].

    Returns:
        `dict`: For each benchmark, `accuracy`, mean `length_tokens`, and `area` (mean accuracy over token budgets).
    """
    settings = choose_backend(_study_settings(str(model_dir), benchmarks, correctness, options))
    folder, sampling, parent = Path(model_dir), settings.sampling(), default_folder(settings.model)
    if folder.is_dir():
        sampling["model"], parent = fingerprint(folder), folder / "evaluation"
    digest = hashlib.sha256(json.dumps(sampling, sort_keys=True).encode()).hexdigest()[:8]
    summary = run_evaluation(settings, parent / digest, progress=False, wait=True)
    return {
        name: {
            "accuracy": measures[correctness]["accuracy"]["mean"],
            "length_tokens": measures["length_tokens"]["mean"],
            "area": measures[correctness]["area"]["mean"],
        }
        for name, measures in summary["benchmarks"].items()
    }


def check_evaluate(
    benchmarks: str | Sequence[str] | None = None,
    correctness: str = "correct",
    model_dir: str | None = None,
    **options: Any,
) -> None:
    """Raise `UserError` if [`evaluate`] would reject these settings. `trl-ces study` calls this before training."""
    settings = choose_backend(_study_settings(model_dir or "unused", benchmarks, correctness, options))
    facts = None if model_dir is None else read_model(settings)
    problems = _load_problems(settings)
    if facts is not None:
        _encode(settings, facts, problems)


def _study_settings(model: str, benchmarks: Any, correctness: str, options: dict[str, Any]) -> EvaluationSettings:
    if correctness not in CORRECTNESS:
        raise UserError(f"`correctness` is {correctness!r}: it must be one of {', '.join(CORRECTNESS)}.")
    if benchmarks is None:
        benchmarks = [] if options.get("data") else "math12"
    return make_settings({"benchmarks": benchmarks, **options, "model": model}, "`evaluation`")
