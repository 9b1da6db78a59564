"""The answers of a run, one unit each: planned, drawn in batches which a kill does not change, judged."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..grading import grade_many
from .benchmarks import BENCHMARKS
from .code.judge import CodeJudge
from .generate import Backend
from .models import EncodedPrompts
from .problems import Problem
from .samples import Key, Sample, key_of
from .settings import EvaluationSettings


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


@dataclass(frozen=True)
class Answer:
    """What a model wrote for a unit: the number of its tokens, `"stop"` or `"length"`, its text."""

    unit: Unit
    tokens: int
    finish_reason: str
    text: str


def sample_seed(seed: int, benchmark: str, problem: int, sample: int) -> int:
    """A seed of 31 bits for one answer; no two answers of a run share a random stream but by accident."""
    text = f"{seed}/{benchmark}/{problem}/{sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


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


def judge(answers: Sequence[Answer], programs: CodeJudge) -> list[Sample]:
    """The samples of answers, with both verdicts. A program has one, which stands for both."""
    plain = [answer for answer in answers if answer.unit.problem.code is None]
    verdicts = grade_many(
        [answer.text for answer in plain],
        [answer.unit.problem.gold for answer in plain],
        [answer.unit.problem.benchmark for answer in plain],
        thinking_prefilled=[answer.unit.thinking_prefilled for answer in plain],
    )
    samples = [
        _sample(answer, answer.unit.problem, verdict.answer, verdict.correct, verdict.correct_qwen)
        for answer, verdict in zip(plain, verdicts, strict=True)
    ]
    coded = [(task, answer) for answer in answers if (task := answer.unit.problems[-1].code) is not None]
    found = programs.judge(
        [task for task, _ in coded],
        [answer.text for _, answer in coded],
        [answer.unit.thinking_prefilled for _, answer in coded],
    )
    for (_, answer), verdict in zip(coded, found, strict=True):
        # The base set's verdict is on the first group of tests, the stricter set's on both.
        problems = answer.unit.problems
        for problem, correct in zip(problems, verdict.passed[-len(problems) :], strict=True):
            samples.append(_sample(answer, problem, verdict.program, correct, correct is True))
    return samples


def _sample(
    answer: Answer, problem: Problem, stated: str | None, correct: bool | None, by_script: bool | None
) -> Sample:
    return {
        "benchmark": problem.benchmark,
        "problem": problem.id,
        "sample": answer.unit.sample,
        "seed": answer.unit.seed,
        "gold": problem.gold,
        "answer": stated,
        "correct": correct,
        "correct_qwen": by_script,
        "tokens": answer.tokens,
        "finish_reason": answer.finish_reason,
        "text": answer.text,
    }


def draw(
    backend: Backend, batches: Sequence[Sequence[Unit]], tokenizer: Any, done: set[Key], programs: CodeJudge
) -> Iterator[list[Sample]]:
    """The missing samples of the batches, as they are finished."""
    for batch in batches:
        for finished in backend.generate([unit.prompt for unit in batch], [unit.seed for unit in batch]):
            new = [completion for completion in finished if not done.issuperset(batch[completion.index].keys)]
            if not new:  # its neighbours of the batch are missing
                continue
            texts = tokenizer.batch_decode([completion.tokens for completion in new], skip_special_tokens=True)
            answers = [
                Answer(batch[completion.index], len(completion.tokens), completion.finish_reason, text)
                for completion, text in zip(new, texts, strict=True)
            ]
            yield [sample for sample in judge(answers, programs) if key_of(sample) not in done]


def judge_again(units: Sequence[Unit], samples: Sequence[Sample], programs: CodeJudge) -> list[Sample]:
    """The same answers in the same order, with this version's verdicts."""
    drawn = {key_of(sample): sample for sample in samples}
    answers = [
        Answer(unit, sample["tokens"], sample["finish_reason"], sample["text"])
        for unit in units
        if (sample := next((drawn[key] for key in unit.keys if key in drawn), None)) is not None
    ]
    judged = {key_of(sample): sample for sample in judge(answers, programs)}
    return [judged[key] for key in drawn]
