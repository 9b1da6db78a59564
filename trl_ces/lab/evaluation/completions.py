"""The completions of a run: which to request, in which batches after a kill, and how they are graded."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...grading.grader import grade_many
from .benchmarks import BENCHMARKS
from .code.grader import CodeGrader
from .models import EncodedPrompts
from .problems import Problem
from .samples import FIELDS, GENERATED, Key, Sample, key_of
from .settings import EvaluationSettings


@dataclass(frozen=True)
class Request:
    """One completion to generate."""

    problems: list[Problem]  # one; for a code set and its stricter set both, the one with the most tests last
    sample: int  # number of the completion among the problem's completions
    prompt: list[int]  # token ids
    thinking_prefilled: bool  # whether the prompt has opened `<think>`
    seed: int  # of the sampling, below 2^31

    @property
    def keys(self) -> list[Key]:
        """Its lines in samples.jsonl."""
        return [(problem.benchmark, problem.id, self.sample) for problem in self.problems]


def sample_seed(seed: int, benchmark: str, problem: int, sample: int) -> int:
    """A 31-bit seed for one completion, so that no two completions of a run share a random stream."""
    text = f"{seed}/{benchmark}/{problem}/{sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def list_requests(settings: EvaluationSettings, problems: Sequence[Problem], prompts: EncodedPrompts) -> list[Request]:
    """All completions to generate, by benchmark and prompt length, so that batches pad little."""
    rank = {name: place for place, name in enumerate(settings.benchmarks)}
    bases = {name: base for name in rank if (base := BENCHMARKS[name].base) in rank}
    stricter = {(bases[problem.benchmark], problem.id): problem for problem in problems if problem.benchmark in bases}
    entries = zip(problems, prompts.ids, prompts.thinking_prefilled, strict=True)
    prompted = [entry for entry in entries if entry[0].benchmark not in bases]
    prompted.sort(key=lambda entry: (rank[entry[0].benchmark], len(entry[1]), entry[0].id))
    requests = []
    for problem, ids, prefilled in prompted:
        place = problem.benchmark, problem.id
        own = [problem, stricter[place]] if place in stricter else [problem]
        for sample in range(settings.num_samples):
            requests.append(Request(own, sample, ids, prefilled, sample_seed(settings.seed, *place, sample)))
    return requests


def pending_batches(requests: Sequence[Request], done: set[Key], batch_size: int | None) -> list[list[Request]]:
    """
    The batches that lack a completion.

    A completion's last bits can depend on its neighbours in the batch, so a batch is generated again as a whole.
    Without a batch size, only the missing completions are.
    """
    if batch_size is None:
        missing = [request for request in requests if not done.issuperset(request.keys)]
        return [missing] if missing else []
    batches = [list(requests[start : start + batch_size]) for start in range(0, len(requests), batch_size)]
    return [batch for batch in batches if any(not done.issuperset(request.keys) for request in batch)]


def grade_completions(completions: Sequence[tuple[Request, Sample]], code_grader: CodeGrader) -> list[Sample]:
    """
    Samples with the correctness by both graders, from requests and their `tokens`, `finish_reason` and `text`.

    A program has a single correctness, which is stored for both.
    """
    texts = [(request, request.problems[0], made) for request, made in completions if request.problems[0].code is None]
    grades = grade_many(
        [made["text"] for *_, made in texts],
        [problem.gold for _, problem, _ in texts],
        [problem.benchmark for _, problem, _ in texts],
        questions=[problem.question for _, problem, _ in texts],
        thinking_prefilled=[request.thinking_prefilled for request, *_ in texts],
    )
    samples = [
        _sample(request, problem, (grade.answer, grade.correct, grade.correct_qwen), made)
        for (request, problem, made), grade in zip(texts, grades, strict=True)
    ]
    coded = [(request, task, made) for request, made in completions if (task := request.problems[-1].code) is not None]
    results = code_grader.grade([(task, made["text"], request.thinking_prefilled) for request, task, made in coded])
    for (request, _, made), result in zip(coded, results, strict=True):
        # The base set counts the first group of tests, the stricter set both.
        for problem, correct in zip(request.problems, result.passed[-len(request.problems) :], strict=True):
            samples.append(_sample(request, problem, (result.program, correct, correct), made))
    return samples


def _sample(request: Request, problem: Problem, graded: tuple[Any, ...], made: Sample) -> Sample:
    """A line of samples.jsonl."""
    requested = (problem.benchmark, problem.id, request.sample, request.seed, problem.gold)
    return dict(zip(FIELDS, (*requested, *graded, *(made[name] for name in GENERATED)), strict=True))


def draw(
    backend: Any, batches: Sequence[Sequence[Request]], tokenizer: Any, done: set[Key], code_grader: CodeGrader
) -> Iterator[list[Sample]]:
    """Yield the missing samples of the batches as they finish."""
    for batch in batches:
        for finished in backend.generate([one.prompt for one in batch], [one.seed for one in batch]):
            new = [one for one in finished if not done.issuperset(batch[one.index].keys)]
            if not new:  # generated only because a neighbour in the batch is missing
                continue
            texts = tokenizer.batch_decode([one.tokens for one in new], skip_special_tokens=True)
            made = [
                (batch[one.index], dict(zip(GENERATED, (len(one.tokens), one.finish_reason, text), strict=True)))
                for one, text in zip(new, texts, strict=True)
            ]
            yield [sample for sample in grade_completions(made, code_grader) if key_of(sample) not in done]
