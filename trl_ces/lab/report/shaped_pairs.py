"""The shaped tokens of token files, counted by the two tokens between which the model hesitates there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from .tokens import FollowedToken, ShapedToken, TokenFile


@dataclass(frozen=True)
class ShapedPair:
    """All shaped places with the same two likeliest tokens."""

    pair: tuple[str, str]  # the one that is more often the likelier first
    in_correct: int  # places in correct completions
    in_wrong: int  # and in wrong ones
    entropy: float  # mean, bits
    shaping: float  # mean of |A' - A|
    places: list[tuple[int, int]]  # index of the completion, and the place in it


def most_shaped(content: TokenFile) -> list[ShapedPair]:
    """The pairs of a file, the one with the largest sum of |A' - A| first."""
    groups: dict[frozenset[str], list[tuple[int, ShapedToken]]] = {}
    for number, answer in enumerate(content.answers):
        for token in answer.shaped:
            groups.setdefault(frozenset(token.pair), []).append((number, token))
    pairs = []
    for key, found in groups.items():
        first = Counter(token.pair[0] for _, token in found).most_common(1)[0][0]
        (other,) = key - {first} or key
        in_correct = sum(content.answers[number].correct is True for number, _ in found)
        pairs.append(
            ShapedPair(
                pair=(first, other),
                in_correct=in_correct,
                in_wrong=len(found) - in_correct,
                entropy=fmean(token.entropy for _, token in found),
                shaping=fmean(abs(token.shaping) for _, token in found),
                places=[(number, token.place) for number, token in found],
            )
        )
    return sorted(pairs, key=lambda pair: -pair.shaping * len(pair.places))


@dataclass(frozen=True)
class Later:
    """What a pair of the reference has become at a later step: means over its places."""

    step: int
    entropy: float  # bits
    probability: float  # of the token that was the likelier one there; 0 if it is no longer among the two likeliest
    turned: dict[str, int]  # another token that is the likeliest now -> at how many places
    places: int


def turned_into(pair: ShapedPair, reference: TokenFile, later: Sequence[TokenFile]) -> list[Later]:
    """A pair of the reference at its own step and at the later ones, always at the same places."""
    own, found = _tokens(reference, reference), []
    for content in (reference, *later):
        at = _tokens(content, reference)
        firsts = [(own[where].pair[0], at[where]) for where in pair.places]
        chances = [dict(zip(token.pair, token.probabilities, strict=True)).get(first, 0.0) for first, token in firsts]
        turned = Counter(token.pair[0] for first, token in firsts if token.pair[0] != first)
        entropy = fmean(token.entropy for _, token in firsts)
        found.append(Later(content.step, entropy, fmean(chances), dict(turned.most_common()), len(firsts)))
    return found


def _tokens(content: TokenFile, reference: TokenFile) -> Mapping[tuple[int, int], ShapedToken | FollowedToken]:
    """(completion, place) of the reference -> what the model of a file thinks there."""
    if content is reference:
        return {
            (number, token.place): token for number, answer in enumerate(content.answers) for token in answer.shaped
        }
    return {(token.completion, token.place): token for token in content.places}
