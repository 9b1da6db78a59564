"""The shaped places of token files, counted by the two tokens between which the model hesitates there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .tokens import Shaped, TokenFile, digest


@dataclass(frozen=True)
class Fork:
    """
    All shaped places with the same two likeliest tokens.

    Args:
        pair (`tuple[str, str]`): The tokens, the one that is more often the likelier first.
        in_correct, in_wrong (`int`): Places in right and in wrong answers.
        entropy (`float`): Mean, bits.
        shaping (`float`): Mean of |A' - A|.
        places (`list[tuple[int, int]]`): Number of the answer, and the place in it.
    """

    pair: tuple[str, str]
    in_correct: int
    in_wrong: int
    entropy: float
    shaping: float
    places: list[tuple[int, int]]


def most_shaped(content: TokenFile) -> list[Fork]:
    """The forks of a file, the one with the greatest sum of |A' - A| first."""
    groups: dict[frozenset[str], list[tuple[int, Shaped, bool]]] = {}
    for number, answer in enumerate(content.answers):
        for entry in answer.shaped:
            groups.setdefault(frozenset(entry.pair), []).append((number, entry, answer.correct is True))
    forks = []
    for found in groups.values():
        firsts = [entry.pair[0] for _, entry, _ in found]
        first = max(firsts, key=firsts.count)
        other = next(entry.pair[entry.pair[0] == first] for _, entry, _ in found)
        forks.append(
            Fork(
                pair=(first, other),
                in_correct=sum(right for _, _, right in found),
                in_wrong=sum(not right for _, _, right in found),
                entropy=sum(entry.entropy for _, entry, _ in found) / len(found),
                shaping=sum(abs(entry.shaping) for _, entry, _ in found) / len(found),
                places=[(number, entry.place) for number, entry, _ in found],
            )
        )
    return sorted(forks, key=lambda fork: -fork.shaping * len(fork.places))


@dataclass(frozen=True)
class Later:
    """
    What a fork of the reference is at a later step, over its places.

    Args:
        step (`int`): The step.
        entropy (`float`): Mean, bits.
        probability (`float`): Mean of the token that was the likelier one there in the reference; 0 where it is no
            longer among the two likeliest.
        turned (`dict[str, int]`): Another token that is the likeliest now -> at how many places.
        places (`int`): All of them.
    """

    step: int
    entropy: float
    probability: float
    turned: dict[str, int]
    places: int


def turned_into(fork: Fork, reference: TokenFile, later: Sequence[TokenFile]) -> list[Later]:
    """
    A fork of the reference at its own step and at the later ones, always at the same places.

    Args:
        fork ([`Fork`]): From [`most_shaped`] of the reference.
        reference (`TokenFile`): The file of the first step.
        later (`Sequence[TokenFile]`): Files whose places are the reference's.
    """
    own = {(number, entry.place): entry for number, answer in enumerate(reference.answers) for entry in answer.shaped}
    steps: list[tuple[int, dict[tuple[int, int], Any]]] = [(reference.step, own)]
    steps += [(content.step, {(place.answer, place.place): place for place in content.places}) for content in later]
    found = []
    for step, at in steps:
        pairs = [(own[where].pair[0], at[where]) for where in fork.places]
        chances = [dict(zip(entry.pair, entry.probabilities, strict=True)).get(first, 0.0) for first, entry in pairs]
        turned = Counter(entry.pair[0] for first, entry in pairs if entry.pair[0] != first)
        entropy = sum(entry.entropy for _, entry in pairs) / len(pairs)
        found.append(Later(step, entropy, sum(chances) / len(pairs), dict(turned.most_common()), len(pairs)))
    return found


def follows(content: TokenFile, reference: TokenFile) -> bool:
    """Whether a file's places are those of the reference."""
    return bool(content.places) and content.settings.get("reference") == digest(reference.settings)
