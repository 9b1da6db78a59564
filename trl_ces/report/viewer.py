"""Answers as they are shown: every token with its class of entropy, the shaped ones with what CES adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .shaped_forks import Fork, Later, follows, most_shaped, turned_into
from .tokens import Shaped, TokenAnswer, TokenFile

# Bits from which a token is in class 1, 2, ...; below the first it is in class 0 and shown plain.
LEVELS = (0.05, 0.25, 0.5, 1.0, 2.0)
LONGEST = 600  # tokens of an answer that are shown
PAIRS = 2  # questions shown for each step
FORKS = 8  # pairs of tokens in a table


@dataclass(frozen=True)
class TokenView:
    """A piece of text: its class of entropy; `tip`, said when pointed at; of a shaped one `value`, its shaping."""

    text: str
    level: int
    tip: str = ""
    value: str = ""
    kind: str = ""  # "down" or "up" for a shaped one


@dataclass(frozen=True)
class AnswerView:
    """An answer, ready to be shown; `rest` tells of what is cut off."""

    question: str
    correct: bool
    facts: str
    tokens: list[TokenView]
    rest: str
    shaped: list[list[str]]


@dataclass(frozen=True)
class StepView:
    """The model of one step: pairs of a right and a wrong answer (one may be missing), and its most shaped forks."""

    title: str
    facts: str
    pairs: list[tuple[AnswerView | None, AnswerView | None]]


@dataclass(frozen=True)
class RunView:
    """A run's steps, its most shaped tokens, and what those of the first step turn into."""

    title: str
    note: str
    steps: list[StepView]
    forks: list[tuple[str, list[list[str]]]]
    later_steps: list[str]
    later: list[list[str]]


def visible(text: str) -> str:
    """White space that can be seen, for a token that stands alone."""
    return text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")


def level(bits: float) -> int:
    """The class of an entropy."""
    return sum(bits >= start for start in LEVELS)


def signed(value: float) -> str:
    """`+0.31`, `−0.22`."""
    return f"{value:+.2f}".replace("-", "−")


def view_answer(answer: TokenAnswer, question: str) -> AnswerView:
    """One answer; its shaped tokens as rows of a table too."""
    shaped = {entry.place: entry for entry in answer.shaped}
    views: list[TokenView] = []
    for place in range(min(len(answer.tokens), LONGEST)):
        text = answer.tokens[place].replace("\n", "↵\n")
        bits = answer.entropies[place]
        if place in shaped:
            views.append(_mark(text.replace("↵\n", "↵"), shaped[place]))
            if "\n" in text:  # the line ends behind the mark, which is one block
                views.append(TokenView("\n", 0))
        elif level(bits) == 0 and views and views[-1].level == 0 and not views[-1].kind:
            views[-1] = TokenView(views[-1].text + text, 0)
        else:
            views.append(TokenView(text, level(bits), f"{bits:.2f} bits" if level(bits) else ""))
    hidden = len(answer.tokens) - LONGEST
    rest = ""
    if hidden > 0:
        count = sum(place >= LONGEST for place in shaped)
        rest = f"{hidden} more tokens, {count} of them shaped, are not shown."
    facts = f"{len(answer.tokens)} tokens, {len(shaped)} shaped"
    if not answer.ended:
        facts += ", cut off"
    rows = [
        [
            visible(answer.tokens[entry.place]),
            str(entry.place + 1),
            f"{entry.entropy:.2f}",
            signed(entry.shaping),
            " or ".join(
                f"“{visible(token)}” {100 * share:.0f} %"
                for token, share in zip(entry.pair, entry.probabilities, strict=True)
            ),
        ]
        for entry in answer.shaped
    ]
    return AnswerView(question, answer.correct is True, facts, views, rest, rows)


def _mark(text: str, entry: Shaped) -> TokenView:
    pair = " or ".join(
        f"“{visible(token)}” ({share:.2f})" for token, share in zip(entry.pair, entry.probabilities, strict=True)
    )
    tip = f"{entry.entropy:.2f} bits between {pair}; advantage {signed(entry.shaping)}"
    return TokenView(text, level(entry.entropy), tip, signed(entry.shaping), "down" if entry.shaping < 0 else "up")


def choose_pairs(content: TokenFile, count: int = PAIRS) -> list[tuple[AnswerView | None, AnswerView | None]]:
    """
    A right and a wrong answer to one question, side by side: of the questions with both, those with most is shaped.

    Where no question has both, the right and the wrong answer with most shaped tokens, to different questions.
    """

    def richest(prompt: int | None, correct: bool) -> TokenAnswer | None:
        fitting = [a for a in content.answers if a.correct is correct and prompt in (None, a.prompt)]
        return max(fitting, key=lambda answer: len(answer.shaped), default=None)

    def view(answer: TokenAnswer | None) -> AnswerView | None:
        return None if answer is None else view_answer(answer, content.questions[answer.prompt])

    pairs = [(richest(prompt, True), richest(prompt, False)) for prompt in range(len(content.questions))]
    whole = [(right, wrong) for right, wrong in pairs if right is not None and wrong is not None]
    whole.sort(key=lambda pair: -min(len(pair[0].shaped), len(pair[1].shaped)))
    if whole:
        return [(view(right), view(wrong)) for right, wrong in whole[:count]]
    right, wrong = richest(None, True), richest(None, False)
    return [(view(right), view(wrong))] if right or wrong else []


def fork_rows(content: TokenFile, count: int = FORKS) -> list[list[str]]:
    """The most shaped forks as rows: tokens, places in right and in wrong answers, entropy, |A' - A|."""
    return [
        [
            _pair(fork),
            str(fork.in_correct),
            str(fork.in_wrong),
            f"{fork.entropy:.2f}",
            f"{fork.shaping:.2f}",
        ]
        for fork in most_shaped(content)[:count]
    ]


def _pair(fork: Fork) -> str:
    return f"“{visible(fork.pair[0])}” or “{visible(fork.pair[1])}”"


def later_rows(files: Sequence[TokenFile], count: int = FORKS) -> tuple[list[str], list[list[str]]]:
    """The forks of the first step and what is at the same places later: the steps, and a row for each fork."""
    reference, later = files[0], [content for content in files[1:] if follows(content, files[0])]
    if not later:
        return [], []
    steps = [reference.step, *(content.step for content in later)]
    rows = []
    for fork in most_shaped(reference)[:count]:
        rows.append([_pair(fork), str(len(fork.places)), *map(_at, turned_into(fork, reference, later))])
    return [f"step {step}" for step in steps], rows


def _at(found: Later) -> str:
    """`0.31 bits, 92 %`, and how many places have turned to which token: `, 4 to “9”`."""
    tokens = [f"“{visible(token)}”" for token in found.turned]
    listed = f"{', '.join(tokens[:2])} and others" if len(tokens) > 2 else " and ".join(tokens)
    turned = f", {sum(found.turned.values())} to {listed}" if tokens else ""
    return f"{found.entropy:.2f} bits, {100 * found.probability:.0f} %{turned}"


def view_run(method: str, seed: int | None, files: Sequence[TokenFile]) -> RunView:
    """All that is shown of a run's token files, at least one."""
    trained_with = files[0].settings.get("trained_with", "ces")
    note = ""
    if trained_with != "ces":
        note = "This run was trained without CES: the marks show what CES would have done to these answers."
    reasons = [content.settings["not_judged"] for content in files if "not_judged" in content.settings]
    if reasons:
        note += f" Nothing is shaped, because the answers were not judged: {reasons[0]}"
    steps = []
    for content in files:
        judged = [answer.correct for answer in content.answers if answer.correct is not None]
        tokens = [bits for answer in content.answers for bits in answer.entropies]
        facts = [
            f"{len(content.answers)} answers to {len(content.questions)} problems",
            f"{100 * sum(judged) / len(judged):.1f} % right" if judged else "not judged",
            f"{len(tokens) / len(content.answers):.1f} tokens",
            f"{sum(tokens) / len(tokens):.3f} bits per token",
        ]
        title = "Before training" if content.step == 0 else f"After step {content.step}"
        steps.append(StepView(title, ", ".join(facts), choose_pairs(content)))
    forks = [(step.title, fork_rows(content)) for step, content in zip(steps, files, strict=True)]
    forks = [entry for entry in (forks[:1] if len(forks) == 1 else [forks[0], forks[-1]]) if entry[1]]
    later_steps, later = later_rows(files)
    name = method if seed is None else f"{method}, seed {seed}"
    return RunView(name, note.strip(), steps, forks, later_steps, later)
