"""What a model's forking tokens come to: counted by the pair of tokens between which it hesitates.

CES lowers the entropy of correct answers at their most uncertain tokens, which sharpens a fork towards the branch that
is already likelier. So it matters which branch that is: the one that comes to an end, or the one that goes on.
inspection.py finds the forking tokens in sampled answers; here is what can be said of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..methods.ces import selection_size

# Branches whose probabilities differ by less count as close to a tie. Ours; it decides only what is said.
CLOSE = 0.2


@dataclass(frozen=True)
class ForkingToken:
    """
    One of an answer's tokens of highest entropy.

    Args:
        place (`int`): Its number in the answer, from 0.
        pair (`tuple[int, int]`): The two likeliest tokens there, the likelier one first.
        probabilities (`tuple[float, float]`): Theirs.
        entropy (`float`): Bits.
        sampled (`int`): The token that was drawn.
    """

    place: int
    pair: tuple[int, int]
    probabilities: tuple[float, float]
    entropy: float
    sampled: int


@dataclass(frozen=True)
class Answer:
    """
    One sampled completion.

    Args:
        prompt (`int`): Number of its prompt.
        tokens (`list[int]`): Its tokens, the end token included.
        ended (`bool`): Whether it has an end token; if not, it was cut off.
        entropies (`list[float]`): Bits, one for each token.
        forks (`list[ForkingToken]`): Its tokens of highest entropy, in the order of their places.
    """

    prompt: int
    tokens: list[int]
    ended: bool
    entropies: list[float]
    forks: list[ForkingToken]


@dataclass(frozen=True)
class Branch:
    """
    One side of a fork. A mean of nothing is NaN.

    Args:
        token (`int`): The token that begins it.
        probability (`float`): Mean over the fork's places.
        sampled (`float`): Share of the places at which it was drawn.
        tokens_left (`float`):
            Mean tokens from there to the end, this one and the end token included, where it was drawn and the answer
            ended.
        correct (`float`): Share of correct answers where it was drawn and the answer could be scored.
    """

    token: int
    probability: float
    sampled: float
    tokens_left: float
    correct: float


@dataclass(frozen=True)
class Fork:
    """
    All places at which the same two tokens were the likeliest, in either order.

    Args:
        count (`int`): Places.
        share (`float`): Of all forking tokens.
        entropy (`float`): Mean, bits.
        leads (`float`): Share of that entropy at places where the likelier branch is the likelier one there, too.
        close (`float`): Share of that entropy at places where the two are less than `CLOSE` apart.
        likelier, other (`Branch`): The likelier one by its mean probability.
    """

    count: int
    share: float
    entropy: float
    leads: float
    close: float
    likelier: Branch
    other: Branch

    @property
    def weight(self) -> float:
        """Bits of entropy at all of its places together."""
        return self.count * self.entropy


@dataclass(frozen=True)
class Direction:
    """
    Where the likelier branch of each place leads, over all places, weighted by entropy. A mean of nothing is NaN.

    Args:
        comparable (`float`): Share of the places whose fork had both branches drawn in answers that ended.
        shorter, longer (`float`): Share of those at which the likelier branch has fewer, or more, tokens left.
        difference (`float`): Mean over those of tokens left, likelier minus other branch.
        close (`float`):
            Share of all places at which the two probabilities are less than `CLOSE` apart. There the entropy is near
            its maximum over the two, so its slope is small and other parts of the gradient decide.
    """

    comparable: float
    shorter: float
    longer: float
    difference: float
    close: float


def group_forks(answers: Sequence[Answer], correct: Sequence[bool | None] | None = None) -> list[Fork]:
    """
    The forking tokens by the pair of their two likeliest tokens.

    Args:
        answers (`Sequence[Answer]`): From [`sample_answers`].
        correct (`Sequence[bool | None]`, *optional*):
            Whether each answer is right, `None` where that could not be told.

    Returns:
        `list[Fork]`: The one of the greatest weight first.
    """
    places: dict[tuple[int, int], list[tuple[ForkingToken, Answer, bool | None]]] = {}
    verdicts = [None] * len(answers) if correct is None else correct
    for answer, verdict in zip(answers, verdicts, strict=True):
        for fork in answer.forks:
            low, high = sorted(fork.pair)
            places.setdefault((low, high), []).append((fork, answer, verdict))
    total = sum(map(len, places.values()))
    forks = []
    for pair, found in places.items():
        branches = sorted((_branch(token, found) for token in pair), key=lambda branch: -branch.probability)
        bits = sum(fork.entropy for fork, _, _ in found)
        first = branches[0].token
        leads = sum(fork.entropy for fork, _, _ in found if fork.pair[0] == first)
        close = sum(fork.entropy for fork, _, _ in found if fork.probabilities[0] - fork.probabilities[1] < CLOSE)
        forks.append(
            Fork(
                count=len(found),
                share=len(found) / total,
                entropy=bits / len(found),
                leads=leads / bits if bits else math.nan,
                close=close / bits if bits else math.nan,
                likelier=branches[0],
                other=branches[1],
            )
        )
    return sorted(forks, key=lambda fork: -fork.weight)


def _branch(token: int, found: list[tuple[ForkingToken, Answer, bool | None]]) -> Branch:
    drawn = [(fork, answer, verdict) for fork, answer, verdict in found if fork.sampled == token]
    return Branch(
        token=token,
        probability=_mean([fork.probabilities[fork.pair.index(token)] for fork, _, _ in found]),
        sampled=len(drawn) / len(found),
        tokens_left=_mean([len(answer.tokens) - fork.place for fork, answer, _ in drawn if answer.ended]),
        correct=_mean([float(verdict) for _, _, verdict in drawn if verdict is not None]),
    )


def direction(forks: Sequence[Fork]) -> Direction:
    """Where the likelier branches of `forks` lead; see [`Direction`]."""
    unsure = [fork for fork in forks if fork.weight > 0]
    total = sum(fork.weight for fork in unsure)
    close = sum(fork.weight * fork.close for fork in unsure) / total if total else math.nan
    comparable = shorter = longer = difference = 0.0
    for fork in unsure:
        gap = fork.likelier.tokens_left - fork.other.tokens_left
        if math.isnan(gap):
            continue
        comparable += fork.weight
        # At the places where the other branch is the likelier one, the gap is the same with the other sign.
        shorter += fork.weight * (fork.leads if gap < 0 else 1 - fork.leads if gap > 0 else 0.0)
        longer += fork.weight * (fork.leads if gap > 0 else 1 - fork.leads if gap < 0 else 0.0)
        difference += fork.weight * gap * (2 * fork.leads - 1)
    if comparable == 0:
        return Direction(0.0, math.nan, math.nan, math.nan, close)
    return Direction(comparable / total, shorter / comparable, longer / comparable, difference / comparable, close)


def summarize(answers: Sequence[Answer], tau: float, correct: Sequence[bool | None] | None = None) -> dict[str, float]:
    """
    What the answers are like as a whole.

    Returns:
        `dict`: `answers`; `mean_length` (tokens, the end token counts); `truncated` (share); `entropy` and
        `fork_entropy` (bits: mean over all tokens, over the forking tokens); `too_short` (share of answers with
        floor(length * tau) = 0, in which CES would choose no token); `accuracy` (share, of the answers that could be
        scored; NaN without any).
    """
    lengths = [len(answer.tokens) for answer in answers]
    sizes = selection_size(torch.tensor(lengths), tau)
    return {
        "answers": len(answers),
        "mean_length": _mean(lengths),
        "truncated": _mean([not answer.ended for answer in answers]),
        "entropy": _mean([bits for answer in answers for bits in answer.entropies]),
        "fork_entropy": _mean([fork.entropy for answer in answers for fork in answer.forks]),
        "too_short": _mean((sizes == 0).tolist()),
        "accuracy": _mean([verdict for verdict in correct or [] if verdict is not None]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
