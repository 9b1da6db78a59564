"""Simple and hard questions, as section 5.2 of the paper splits them: by how often a reference model is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame, Index

from ..evaluation.benchmarks import BENCHMARKS
from ..evaluation.comparison import SIMPLE_ABOVE
from ..evaluation.proportions import Shares, accuracy_interval
from ..evaluation.statistics import Interval, interval
from .tokens import TokenFile
from .trainings import Training

UNTRAINED = "Before training"  # what the model of step 0 is called


@dataclass(frozen=True)
class Part:
    """The simple or the hard questions of a set: how many, and per run its mean tokens and accuracy there."""

    questions: int
    length: dict[str, Interval]
    accuracy: dict[str, Interval]


@dataclass(frozen=True)
class Split:
    """One set of questions, split by the run `reference`."""

    title: str
    reference: str
    simple: Part
    hard: Part


def splits_of_comparison(compared: Mapping[str, Any]) -> list[Split]:
    """The sets of a comparison of evaluations; its first run is the reference."""

    def part(entry: dict[str, Any]) -> Part:
        found = {
            measure: {run: Interval(**values) for run, values in zip(compared["runs"], entry[measure], strict=True)}
            for measure in ("length", "accuracy")
        }
        if entry["problems"] == 1:
            found["length"] = {run: _without_bounds(length) for run, length in found["length"].items()}
        return Part(entry["problems"], **found)

    return [
        Split(BENCHMARKS[name].title, compared["runs"][0], part(parts["simple"]), part(parts["hard"]))
        for name, parts in compared["split"].items()
    ]


def splits_of_runs(runs: Sequence[tuple[Training, Sequence[TokenFile]]]) -> list[Split]:
    """The prompts of the runs' token files, per variant and seed; the reference is the model before training."""
    groups: dict[tuple[str, int | None], dict[str, Sequence[TokenFile]]] = {}
    for training, files in runs:
        if len(files) > 1 and files[0].step == 0:
            groups.setdefault((training.variant, training.seed), {})[training.method] = files
    splits = []
    for (variant, seed), methods in groups.items():
        first = next(iter(methods.values()))[0]
        title = f"{len(first.questions)} training problems" + (f", {variant}" if variant else "")
        title += "" if seed is None else f", seed {seed}"
        last = {method: files[-1] for method, files in methods.items()}
        split = split_of_tokens(title, UNTRAINED, {UNTRAINED: first, **last})
        if split is not None:
            splits.append(split)
    return splits


def split_of_tokens(title: str, reference: str, files: Mapping[str, TokenFile]) -> Split | None:
    """The prompts of token files that all runs have answered; `None` without verdicts."""
    same = {run: _by_prompt(file) for run, file in files.items() if file.questions == files[reference].questions}
    accuracy = DataFrame({run: table["correct"] for run, table in same.items()}).dropna()
    answers = DataFrame({run: table["judged"] for run, table in same.items()})
    length = DataFrame({run: table["tokens"] for run, table in same.items()})
    if accuracy.empty:
        return None
    simple = accuracy[reference] > SIMPLE_ABOVE

    def part(prompts: Index) -> Part:
        return Part(
            len(prompts),
            length={run: _interval(length.loc[prompts, run]) for run in same},
            accuracy={
                run: accuracy_interval(
                    [Shares(accuracy.loc[prompts, run].to_numpy(), answers.loc[prompts, run].to_numpy())]
                )
                for run in same
            },
        )

    return Split(title, reference, part(accuracy.index[simple]), part(accuracy.index[~simple]))


def _interval(values: Sequence[float]) -> Interval:
    found = interval(values, least=0)
    return _without_bounds(found) if len(values) == 1 else found


def _without_bounds(found: Interval) -> Interval:
    """For a single question: resampling it gives itself."""
    return Interval(found.mean, None, None)


def _by_prompt(content: TokenFile) -> DataFrame:
    """Per prompt the share of correct answers, of those `judged`, and the mean tokens, end token included."""
    rows = [(a.prompt, None if a.correct is None else float(a.correct), len(a.tokens)) for a in content.answers]
    table = DataFrame(rows, columns=["prompt", "correct", "tokens"]).astype({"correct": float})
    found = table.groupby("prompt")
    return found.mean().assign(judged=found["correct"].count())
