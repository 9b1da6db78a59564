"""Simple and hard questions, as section 5.2 of the paper parts them: by how often a reference model is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.comparison import SIMPLE_ABOVE
from ..evaluation.statistics import Interval, interval
from .tokens import TokenFile


@dataclass(frozen=True)
class Part:
    """The simple or the hard questions of a set: how many, and each run's length in tokens and accuracy there."""

    questions: int
    length: dict[str, Interval]
    accuracy: dict[str, Interval]


@dataclass(frozen=True)
class Split:
    """One set of questions, parted by `reference`, the name of a run."""

    title: str
    reference: str
    simple: Part
    hard: Part


def splits_of_comparison(compared: Mapping[str, Any]) -> list[Split]:
    """The sets of a comparison of evaluations; its first run is the reference.

    Args:
        compared (`Mapping`): What [`~trl_ces.evaluation.comparison.compare`] returned.
    """

    def part(entry: dict[str, Any]) -> Part:
        def of(measure: str) -> dict[str, Interval]:
            return {
                run: Interval(**values) if entry["problems"] > 1 else Interval(values["mean"], None, None)
                for run, values in zip(compared["runs"], entry[measure], strict=True)
            }

        return Part(entry["problems"], of("length"), of("accuracy"))

    return [
        Split(BENCHMARKS[name].title, compared["runs"][0], part(parts["simple"]), part(parts["hard"]))
        for name, parts in compared["split"].items()
    ]


def split_of_tokens(title: str, reference: str, files: Mapping[str, TokenFile]) -> Split | None:
    """
    The prompts of token files, which all runs have answered; `None` where there is no verdict.

    Args:
        title (`str`): What the prompts are.
        reference (`str`): The run, one of `files`, that says what is simple.
        files (`Mapping[str, TokenFile]`): Run -> its file. Those with other prompts than the reference are left out.
    """
    asked = _questions(files[reference])
    same = {run: content for run, content in files.items() if _questions(content) == asked}
    measured = {run: _by_prompt(content) for run, content in same.items()}
    judged = [prompt for prompt in asked if all(prompt in accuracy for accuracy, _ in measured.values())]
    if not judged:
        return None
    simple = [prompt for prompt in judged if measured[reference][0][prompt] > SIMPLE_ABOVE]
    hard = [prompt for prompt in judged if prompt not in simple]

    def part(prompts: Sequence[int]) -> Part:
        return Part(
            len(prompts),
            length={run: _interval([lengths[prompt] for prompt in prompts]) for run, (_, lengths) in measured.items()},
            accuracy={run: _interval([shares[prompt] for prompt in prompts]) for run, (shares, _) in measured.items()},
        )

    return Split(title, reference, part(simple), part(hard))


def _interval(values: Sequence[float]) -> Interval:
    """Without bounds for a single question: resampling it gives itself."""
    return interval(values) if len(values) != 1 else Interval(values[0], None, None)


def _questions(content: TokenFile) -> dict[int, str]:
    return dict(enumerate(content.questions))


def _by_prompt(content: TokenFile) -> tuple[dict[int, float], dict[int, float]]:
    """Prompt -> share of right answers, of those with a verdict; prompt -> mean tokens, the end token included."""
    accuracy, lengths = {}, {}
    for prompt in _questions(content):
        answers = [answer for answer in content.answers if answer.prompt == prompt]
        verdicts = [answer.correct for answer in answers if answer.correct is not None]
        if verdicts:
            accuracy[prompt] = sum(verdicts) / len(verdicts)
        lengths[prompt] = sum(len(answer.tokens) for answer in answers) / len(answers)
    return accuracy, lengths
