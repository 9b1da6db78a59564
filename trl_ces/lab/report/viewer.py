"""Completions as they are shown: every token with its class of entropy, the shaped ones with what CES adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .shaped_pairs import Later, ShapedPair, most_shaped, turned_into
from .tokens import ShapedToken, TokenAnswer, TokenFile

# Bits at which classes 1, 2, ... begin; below the first a token is in class 0 and shown plain.
LEVELS = (0.05, 0.25, 0.5, 1.0, 2.0)
LONGEST = 600  # tokens shown per completion
QUESTIONS = 2  # shown per step
PAIRS = 8  # rows of a table


@dataclass(frozen=True)
class TokenView:
    text: str
    level: int  # class of entropy
    tip: str = ""  # shown on hover
    value: str = ""  # of a shaped one, its shaping
    kind: str = ""  # of a shaped one, "down" or "up"


@dataclass(frozen=True)
class AnswerView:
    """A completion, ready to be shown."""

    question: str
    correct: bool
    facts: str
    tokens: list[TokenView]
    rest: str  # on what is cut off
    shaped: list[list[str]]  # the shaped tokens as rows of a table


@dataclass(frozen=True)
class StepView:
    title: str
    facts: str
    pairs: list[tuple[AnswerView | None, AnswerView | None]]  # a correct and a wrong completion; one may be missing


@dataclass(frozen=True)
class RunView:
    """A run's steps, its most shaped pairs of tokens, and what those of the first step turn into."""

    title: str
    note: str
    steps: list[StepView]
    forks: list[tuple[str, list[list[str]]]]
    later_steps: list[str]
    later: list[list[str]]


def visible(text: str) -> str:
    """A single token with its white space visible."""
    return text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")


def quoted(text: str) -> str:
    return f"“{visible(text)}”"


def level(bits: float) -> int:
    return sum(bits >= start for start in LEVELS)


def signed(value: float) -> str:
    """`+0.31`, `−0.22`."""
    return f"{value:+.2f}".replace("-", "−")


def view_answer(answer: TokenAnswer, question: str) -> AnswerView:
    """One completion; its shaped tokens as rows of a table too."""
    shaped = {entry.place: entry for entry in answer.shaped}
    views: list[TokenView] = []
    for place in range(min(len(answer.tokens), LONGEST)):
        text = answer.tokens[place].replace("\n", "↵\n")
        bits = answer.entropies[place]
        if place in shaped:
            views.append(_mark(text.replace("↵\n", "↵"), shaped[place]))
            if "\n" in text:  # the line breaks after the mark, which is one block
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
    facts = f"{len(answer.tokens)} tokens, {len(shaped)} shaped{'' if answer.ended else ', cut off'}"
    rows = [
        [
            visible(answer.tokens[token.place]),
            str(token.place + 1),
            f"{token.entropy:.2f}",
            signed(token.shaping),
            _likeliest(token, "{} {:.0f} %", 100),
        ]
        for token in answer.shaped
    ]
    return AnswerView(question, answer.correct is True, facts, views, rest, rows)


def _likeliest(token: ShapedToken, form: str, factor: float = 1) -> str:
    """The two likeliest tokens with their probabilities."""
    pairs = zip(token.pair, token.probabilities, strict=True)
    return " or ".join(form.format(quoted(text), factor * probability) for text, probability in pairs)


def _mark(text: str, token: ShapedToken) -> TokenView:
    tip = f"{token.entropy:.2f} bits between {_likeliest(token, '{} ({:.2f})')}; advantage {signed(token.shaping)}"
    return TokenView(text, level(token.entropy), tip, signed(token.shaping), "down" if token.shaping < 0 else "up")


def choose_pairs(content: TokenFile, count: int = QUESTIONS) -> list[tuple[AnswerView | None, AnswerView | None]]:
    """
    A correct and a wrong completion for one question, side by side; of the questions with both, the most shaped ones.

    If no question has both, the most shaped correct and the most shaped wrong completion, for different questions.
    """

    def most(prompt: int | None, correct: bool) -> TokenAnswer | None:
        fitting = [a for a in content.answers if a.correct is correct and prompt in (None, a.prompt)]
        return max(fitting, key=lambda answer: len(answer.shaped), default=None)

    def view(answer: TokenAnswer | None) -> AnswerView | None:
        return None if answer is None else view_answer(answer, content.questions[answer.prompt])

    pairs = [(most(prompt, True), most(prompt, False)) for prompt in range(len(content.questions))]
    whole = [(right, wrong) for right, wrong in pairs if right is not None and wrong is not None]
    whole.sort(key=lambda pair: -min(len(pair[0].shaped), len(pair[1].shaped)))
    if whole:
        return [(view(right), view(wrong)) for right, wrong in whole[:count]]
    right, wrong = most(None, True), most(None, False)
    return [(view(right), view(wrong))] if right or wrong else []


def pair_rows(content: TokenFile) -> list[list[str]]:
    """The most shaped pairs as rows: tokens, places in correct and in wrong completions, entropy, |A' - A|."""
    return [
        [_both(pair), str(pair.in_correct), str(pair.in_wrong), f"{pair.entropy:.2f}", f"{pair.shaping:.2f}"]
        for pair in most_shaped(content)[:PAIRS]
    ]


def _both(pair: ShapedPair) -> str:
    return " or ".join(map(quoted, pair.pair))


def later_rows(files: Sequence[TokenFile]) -> tuple[list[str], list[list[str]]]:
    """The pairs of the first step and what is at the same places later: the steps, and one row per pair."""
    reference, later = files[0], [content for content in files[1:] if content.follows(files[0])]
    if not later:
        return [], []
    rows = [
        [_both(pair), str(len(pair.places)), *map(_at, turned_into(pair, reference, later))]
        for pair in most_shaped(reference)[:PAIRS]
    ]
    return [f"step {content.step}" for content in (reference, *later)], rows


def _at(found: Later) -> str:
    """`0.31 bits, 92 %`, and how many places have turned to which token: `, 4 to “9”`."""
    tokens = [*map(quoted, found.turned)]
    listed = f"{', '.join(tokens[:2])} and others" if len(tokens) > 2 else " and ".join(tokens)
    turned = f", {sum(found.turned.values())} to {listed}" if tokens else ""
    return f"{found.entropy:.2f} bits, {100 * found.probability:.0f} %{turned}"


def view_run(method: str, seed: int | None, files: Sequence[TokenFile]) -> RunView:
    """What is shown of a run's token files, at least one."""
    trained_with = files[0].settings.get("trained_with", "ces")
    note = ""
    if trained_with != "ces":
        note = "This run was trained without CES: the marks show what CES would have done to these completions."
    reasons = [content.settings["not_judged"] for content in files if "not_judged" in content.settings]
    if reasons:
        note += f" Nothing is shaped, because the completions were not judged: {reasons[0]}"
    steps = []
    for content in files:
        judged = [answer.correct for answer in content.answers if answer.correct is not None]
        tokens = [bits for answer in content.answers for bits in answer.entropies]
        facts = [
            f"{len(content.answers)} completions for {len(content.questions)} problems",
            f"{100 * sum(judged) / len(judged):.1f} % correct" if judged else "not judged",
            f"{len(tokens) / len(content.answers):.1f} tokens",
            f"{sum(tokens) / len(tokens):.3f} bits per token",
        ]
        title = "Before training" if content.step == 0 else f"After step {content.step}"
        steps.append(StepView(title, ", ".join(facts), choose_pairs(content)))
    forks = [(step.title, pair_rows(content)) for step, content in zip(steps, files, strict=True)]
    forks = [entry for entry in (forks[:1] if len(forks) == 1 else [forks[0], forks[-1]]) if entry[1]]
    later_steps, later = later_rows(files)
    name = method if seed is None else f"{method}, seed {seed}"
    return RunView(name, note.strip(), steps, forks, later_steps, later)
