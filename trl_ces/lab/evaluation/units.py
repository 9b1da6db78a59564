"""The completions of a run as units: listed, drawn in batches that survive a kill, judged."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...grading.grader import grade_many
from .benchmarks import BENCHMARKS
from .code.judge import CodeJudge
from .models import EncodedPrompts
from .problems import Problem
from .samples import DRAWN, FIELDS, Key, Sample, key_of
from .settings import EvaluationSettings


@dataclass(frozen=True)
class Unit:
    problems: list[Problem]  # what is asked; of a code set and its stricter set both, the one with the most tests last
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


def list_units(settings: EvaluationSettings, problems: Sequence[Problem], prompts: EncodedPrompts) -> list[Unit]:
    """All completions to draw, by benchmark and prompt length, so that batches pad little."""
    rank = {name: place for place, name in enumerate(settings.benchmarks)}
    bases = {name: base for name in rank if (base := BENCHMARKS[name].base) in rank}
    stricter = {(bases[problem.benchmark], problem.id): problem for problem in problems if problem.benchmark in bases}
    entries = zip(problems, prompts.ids, prompts.thinking_prefilled, strict=True)
    asked = [entry for entry in entries if entry[0].benchmark not in bases]
    asked.sort(key=lambda entry: (rank[entry[0].benchmark], len(entry[1]), entry[0].id))
    units = []
    for problem, ids, prefilled in asked:
        place = problem.benchmark, problem.id
        own = [problem, stricter[place]] if place in stricter else [problem]
        for sample in range(settings.num_samples):
            units.append(Unit(own, sample, ids, prefilled, sample_seed(settings.seed, *place, sample)))
    return units


def pending_batches(units: Sequence[Unit], done: set[Key], batch_size: int | None) -> list[list[Unit]]:
    """
    The batches that lack a completion.

    A completion's last bits can depend on its neighbours in the batch, so a batch is drawn again whole. Without a
    batch size, only the missing completions are.
    """
    if batch_size is None:
        missing = [unit for unit in units if not done.issuperset(unit.keys)]
        return [missing] if missing else []
    batches = [list(units[start : start + batch_size]) for start in range(0, len(units), batch_size)]
    return [batch for batch in batches if any(not done.issuperset(unit.keys) for unit in batch)]


def judge_answers(answers: Sequence[tuple[Unit, Sample]], code_judge: CodeJudge) -> list[Sample]:
    """
    Samples with both verdicts, from units and what the model wrote: `tokens`, `finish_reason` and `text`.

    A program has a single verdict, which stands for both.
    """
    plain = [(unit, unit.problems[0], drawn) for unit, drawn in answers if unit.problems[0].code is None]
    grades = grade_many(
        [drawn["text"] for *_, drawn in plain],
        [problem.gold for _, problem, _ in plain],
        [problem.benchmark for _, problem, _ in plain],
        questions=[problem.question for _, problem, _ in plain],
        thinking_prefilled=[unit.thinking_prefilled for unit, *_ in plain],
    )
    samples = [
        _sample(unit, problem, (grade.answer, grade.correct, grade.correct_qwen), drawn)
        for (unit, problem, drawn), grade in zip(plain, grades, strict=True)
    ]
    coded = [(unit, task, drawn) for unit, drawn in answers if (task := unit.problems[-1].code) is not None]
    verdicts = code_judge.verdicts([(task, drawn["text"], unit.thinking_prefilled) for unit, task, drawn in coded])
    for (unit, _, drawn), verdict in zip(coded, verdicts, strict=True):
        # The base set's verdict is on the first group of tests, the stricter set's on both.
        for problem, correct in zip(unit.problems, verdict.passed[-len(unit.problems) :], strict=True):
            samples.append(_sample(unit, problem, (verdict.program, correct, correct), drawn))
    return samples


def _sample(unit: Unit, problem: Problem, judged: tuple[Any, ...], drawn: Sample) -> Sample:
    """A line of samples.jsonl."""
    asked = (problem.benchmark, problem.id, unit.sample, unit.seed, problem.gold)
    return dict(zip(FIELDS, (*asked, *judged, *(drawn[name] for name in DRAWN)), strict=True))


def draw(
    backend: Any, batches: Sequence[Sequence[Unit]], tokenizer: Any, done: set[Key], code_judge: CodeJudge
) -> Iterator[list[Sample]]:
    """Yields the missing samples of the batches as they finish."""
    for batch in batches:
        for finished in backend.generate([unit.prompt for unit in batch], [unit.seed for unit in batch]):
            new = [answer for answer in finished if not done.issuperset(batch[answer.index].keys)]
            if not new:  # drawn only because a neighbour in the batch is missing
                continue
            texts = tokenizer.batch_decode([answer.tokens for answer in new], skip_special_tokens=True)
            answers = [
                (batch[answer.index], dict(zip(DRAWN, (len(answer.tokens), answer.finish_reason, text), strict=True)))
                for answer, text in zip(new, texts, strict=True)
            ]
            yield [sample for sample in judge_answers(answers, code_judge) if key_of(sample) not in done]


def judge_again(units: Sequence[Unit], samples: Sequence[Sample], code_judge: CodeJudge) -> list[Sample]:
    """The same completions in the same order, with this version's verdicts."""
    drawn = {key_of(sample): sample for sample in samples}
    answers = [(unit, drawn[key]) for unit in units if (key := next((k for k in unit.keys if k in drawn), None))]
    judged = {key_of(sample): sample for sample in judge_answers(answers, code_judge)}
    return [judged[key] for key in drawn]
