"""Runs an evaluation: problems, prompts, answers, verdicts, results. Goes on where a killed run was."""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..grading import grade_many
from ..strict import RecipeError
from .benchmarks import BENCHMARKS
from .code import CodeJudge, check_code
from .generate import Backend, Completion, TransformersBackend
from .models import EncodedPrompts, ModelFacts, check_context, encode_prompts, fingerprint, read_model
from .problems import Problem, choose, data_digest, load_benchmark
from .progress import Progress
from .samples import Key, Sample, SampleFile, key_of
from .settings import EvaluationSettings
from .summary import summarize, write_results
from .vllm_backend import VllmBackend, check_vllm

Summary = dict[str, Any]


@dataclass(frozen=True)
class Unit:
    """
    One answer to be drawn: its problem, its number among the problem's samples, its prompt, its seed; and the same
    problem of a set with more tests, for which it is judged too.
    """

    problem: Problem
    sample: int
    prompt: list[int]
    thinking_prefilled: bool
    seed: int
    stricter: Problem | None = None

    @property
    def problems(self) -> list[Problem]:
        """Those that it answers, the one with the most tests last."""
        return [self.problem] if self.stricter is None else [self.problem, self.stricter]

    @property
    def keys(self) -> list[Key]:
        """As in samples.jsonl."""
        return [(problem.benchmark, problem.id, self.sample) for problem in self.problems]


def load_problems(settings: EvaluationSettings) -> list[Problem]:
    """
    The problems of all benchmarks, in their order.

    Raises:
        RecipeError: if one is not there, naming what to do.
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
        RecipeError: if vLLM is asked for and not installed, or its options are given without it.
    """
    backend = settings.backend
    if backend == "auto":
        backend = "transformers" if find_spec("vllm") is None else "vllm"
    if backend == "vllm":
        check_vllm()
    for name in ("tensor_parallel_size", "data_parallel_size"):
        if backend == "transformers" and getattr(settings, name) > 1:
            raise RecipeError(
                f"`{name}` is {getattr(settings, name)} and transformers generates here, on one device: remove it, or "
                "use vLLM."
            )
    return dataclasses.replace(settings, backend=backend)


def sample_seed(seed: int, benchmark: str, problem: int, sample: int) -> int:
    """A seed of 31 bits for one answer; no two answers of a run share a random stream but by accident."""
    text = f"{seed}/{benchmark}/{problem}/{sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def check_grading() -> None:
    """Refuses where the second verdict cannot be given here, which would show only after the first answers.

    Raises:
        RecipeError: saying what is missing.
    """
    try:
        grade_many(["\\boxed{\\sqrt{8}}"], ["2\\sqrt{2}"])  # needs the algebra
    except RuntimeError as error:
        raise RecipeError(str(error)) from None


def plan(settings: EvaluationSettings, problems: Sequence[Problem], prompts: EncodedPrompts) -> list[Unit]:
    """All answers to be drawn, by benchmark; within one the shortest prompts first, so that batches pad little."""
    rank = {name: place for place, name in enumerate(settings.benchmarks)}
    bases = {problem: BENCHMARKS[problem.benchmark].base for problem in problems}
    stricter = {(base, problem.id): problem for problem, base in bases.items() if base in rank}
    entries = zip(problems, prompts.ids, prompts.thinking_prefilled, strict=True)
    asked = sorted(
        (entry for entry in entries if bases[entry[0]] not in rank),
        key=lambda entry: (rank[entry[0].benchmark], len(entry[1]), entry[0].id),
    )
    return [
        Unit(
            problem,
            sample,
            ids,
            prefilled,
            sample_seed(settings.seed, problem.benchmark, problem.id, sample),
            stricter.get((problem.benchmark, problem.id)),
        )
        for problem, ids, prefilled in asked
        for sample in range(settings.num_samples)
    ]


def pending_batches(units: Sequence[Unit], done: set[Key], batch_size: int | None) -> list[list[Unit]]:
    """
    The batches in which an answer is missing, whole.

    An answer's last bits can depend on its neighbours in the batch, so a batch is drawn again as it was first. Without
    a batch size only what is missing is.
    """
    if batch_size is None:
        missing = [unit for unit in units if not done.issuperset(unit.keys)]
        return [missing] if missing else []
    batches = [list(units[start : start + batch_size]) for start in range(0, len(units), batch_size)]
    return [batch for batch in batches if any(not done.issuperset(unit.keys) for unit in batch)]


def judge(
    units: Sequence[Unit], completions: Sequence[Completion], texts: Sequence[str], programs: CodeJudge
) -> list[Sample]:
    """The samples of answers, with both verdicts. A program has one, which stands for both."""
    answers = list(zip(units, completions, texts, strict=True))
    plain = [answer for answer in answers if answer[0].problem.code is None]
    verdicts = grade_many(
        [text for _, _, text in plain],
        [unit.problem.gold for unit, _, _ in plain],
        [unit.problem.benchmark for unit, _, _ in plain],
        thinking_prefilled=[unit.thinking_prefilled for unit, _, _ in plain],
    )
    samples = [
        _sample(answer, answer[0].problem, verdict.answer, verdict.correct, verdict.correct_qwen)
        for answer, verdict in zip(plain, verdicts, strict=True)
    ]
    coded = [(task, answer) for answer in answers if (task := answer[0].problems[-1].code) is not None]
    found = programs.judge(
        [task for task, _ in coded],
        [text for _, (_, _, text) in coded],
        [unit.thinking_prefilled for _, (unit, _, _) in coded],
    )
    for (_, answer), verdict in zip(coded, found, strict=True):
        # The base set's verdict is on the first group of tests, the stricter set's on both.
        for problem, correct in zip(answer[0].problems, verdict.passed[-len(answer[0].problems) :], strict=True):
            samples.append(_sample(answer, problem, verdict.program, correct, correct is True))
    return samples


def _sample(
    drawn: tuple[Unit, Completion, str],
    problem: Problem,
    answer: str | None,
    correct: bool | None,
    by_script: bool | None,
) -> Sample:
    unit, completion, text = drawn
    return {
        "benchmark": problem.benchmark,
        "problem": problem.id,
        "sample": unit.sample,
        "seed": unit.seed,
        "gold": problem.gold,
        "answer": answer,
        "correct": correct,
        "correct_qwen": by_script,
        "tokens": len(completion.tokens),
        "finish_reason": completion.finish_reason,
        "text": text,
    }


def draw(
    backend: Backend, batches: Sequence[Sequence[Unit]], tokenizer: Any, done: set[Key], programs: CodeJudge
) -> Iterator[list[Sample]]:
    """The missing samples of the batches, as they are finished."""
    for batch in batches:
        for finished in backend.generate([unit.prompt for unit in batch], [unit.seed for unit in batch]):
            new = [completion for completion in finished if not done.issuperset(batch[completion.index].keys)]
            texts = tokenizer.batch_decode([completion.tokens for completion in new], skip_special_tokens=True)
            samples = judge([batch[completion.index] for completion in new], new, texts, programs)
            yield [sample for sample in samples if key_of(sample) not in done]


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
        RecipeError: if something is refused; all that can be is refused before the weights are loaded.
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
        if len(done) < len(keys):
            longest = max(map(len, prompts.ids)) + settings.max_new_tokens
            backend = load_backend(facts, settings, longest)
            try:
                batches = pending_batches(units, done, backend.batch_size)
                programs = CodeJudge(settings.code_time_limit)
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
        RecipeError: if something is refused.
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
        RecipeError: if a setting is wrong, or a benchmark's data are not there.
    """
    settings = choose_backend(_study_settings("of the study", benchmarks, verdict, knobs))
    check_code(settings.code_benchmarks(), settings.allow_code_execution)
    load_problems(settings)
    check_grading()


def _study_settings(
    model: str, benchmarks: str | Sequence[str], verdict: str, knobs: dict[str, Any]
) -> EvaluationSettings:
    if verdict not in ("correct", "correct_qwen"):
        raise RecipeError(f"`verdict` is {verdict!r}: it is one of correct, correct_qwen.")
    names = benchmarks.split(",") if isinstance(benchmarks, str) else list(benchmarks)
    unknown = set(knobs) - {knob.name for knob in dataclasses.fields(EvaluationSettings)}
    if unknown:
        raise RecipeError(f"`evaluation`: the key `{min(unknown)}` is not known; docs/evaluation.md lists them.")
    return EvaluationSettings(model=model, benchmarks=[name.strip() for name in names], **knobs)
