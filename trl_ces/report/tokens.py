"""The tokens that CES shapes: `tokens-STEP.jsonl` in a run's folder, and what can be said of several of them.

The file of a step holds answers that the model of that step wrote, each token with its entropy, and which of them CES
shapes by how much. The file of the first step, mostly the model before training, is the reference: the later ones
also say what their model thinks at the places that CES shapes in the reference's answers. So a fork can be followed
over training, also after the model has stopped hesitating there.

Lines are JSON: one of `kind` "settings", then "answer" and "place". Entropies are in bits, `shaping` is A' - A, Eq. 7.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.errors import UserError
from ..support.files import write_text

if TYPE_CHECKING:
    from ..forks.answers import SampledAnswer

VERSION = 1
DIGITS = 4  # of entropies, probabilities and shaping in the file


@dataclass(frozen=True)
class Shaped:
    """
    A token whose advantage CES changes.

    Args:
        place (`int`): Its number in the answer, from 0.
        entropy (`float`): Bits.
        shaping (`float`): A' - A: -beta_1 H in a correct answer, beta_2 H in a wrong one.
        pair (`list[str]`): The two likeliest tokens there, the likelier one first.
        probabilities (`list[float]`): Theirs.
    """

    place: int
    entropy: float
    shaping: float
    pair: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class TokenAnswer:
    """
    One answer, token by token.

    Args:
        prompt (`int`): Number of its prompt.
        ids (`list[int]`): Its tokens, the end token included.
        tokens (`list[str]`): Their texts.
        entropies (`list[float]`): Bits, one for each token.
        ended (`bool`): Whether it came to an end token.
        correct (`bool`, *optional*): `None` where that could not be told.
        shaped (`list[Shaped]`): In the order of their places.
    """

    prompt: int
    ids: list[int]
    tokens: list[str]
    entropies: list[float]
    ended: bool
    correct: bool | None
    shaped: list[Shaped]


@dataclass(frozen=True)
class Place:
    """What a later model thinks at a place of the reference: number of the answer, the place, and as in [`Shaped`]."""

    answer: int
    place: int
    entropy: float
    pair: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class TokenFile:
    """
    One `tokens-STEP.jsonl`.

    Args:
        settings (`dict`): How it was made: `step`, `model`, what the answers were drawn with, how they are shaped, and
            `reference`, the digest of the settings of the file whose places are followed (`None` in that file itself).
        questions (`list[str]`): The prompts' texts.
        prompts (`list[list[int]]`): The prompts' tokens.
        answers (`list[TokenAnswer]`): The first prompt's first.
        places (`list[Place]`): Of the reference.
    """

    settings: dict[str, Any]
    questions: list[str]
    prompts: list[list[int]]
    answers: list[TokenAnswer]
    places: list[Place] = field(default_factory=list)

    @property
    def step(self) -> int:
        return self.settings["step"]


def file_name(step: int) -> str:
    """Name of the file of a step."""
    return f"tokens-{step}.jsonl"


def write_tokens(folder: Path, content: TokenFile) -> Path:
    """Writes the file of a step, whole or not at all."""
    asked = {"questions": content.questions, "prompts": content.prompts}
    lines = [{"kind": "settings", "version": VERSION, "settings": content.settings, **asked}]
    lines += [{"kind": "answer", **asdict(answer)} for answer in content.answers]
    lines += [{"kind": "place", **asdict(place)} for place in content.places]
    file = folder / file_name(content.step)
    write_text(file, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return file


def read_tokens(folder: Path) -> list[TokenFile]:
    """
    The files of a run, by step.

    Raises:
        UserError: if one is damaged, or of another version.
    """
    found = []
    for file in folder.glob("tokens-*.jsonl"):
        if re.fullmatch(r"tokens-\d+\.jsonl", file.name):
            found.append(_read(file))
    return sorted(found, key=lambda content: content.step)


def _read(file: Path) -> TokenFile:
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]
        first = lines[0]
        if first["version"] != VERSION or "step" not in first["settings"]:
            raise ValueError("of another version")
        answers, places = [], []
        for line in lines[1:]:
            kind = line.pop("kind")
            if kind == "answer":
                answers.append(TokenAnswer(**{**line, "shaped": [Shaped(**entry) for entry in line["shaped"]]}))
            else:
                places.append(Place(**line))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{file} is damaged ({error}): remove it; `--tokens N` makes it anew.") from None
    return TokenFile(first["settings"], first["questions"], first["prompts"], answers, places)


def digest(settings: dict[str, Any]) -> str:
    """By which a file names its reference."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def token_answers(
    answers: Sequence[SampledAnswer],
    correct: Sequence[bool | None] | None,
    tokenizer: Any,
    *,
    num_samples: int,
    shaping: dict[str, Any],
) -> list[TokenAnswer]:
    """
    Sampled answers with what CES does to their tokens, by the very function that training uses.

    Args:
        answers (`Sequence[SampledAnswer]`): Their forks include all that CES may choose.
        correct (`Sequence[bool | None]`, *optional*): Whether each is right; nothing is shaped where it is unknown.
        tokenizer (`PreTrainedTokenizerBase`): Writes the tokens.
        num_samples (`int`): Answers of each prompt: the group of Eq. 2.
        shaping (`dict`): Keyword arguments of [`conditional_entropy_shaping`].
    """
    import torch

    from ..forks.tokens import piece
    from ..methods.ces import conditional_entropy_shaping
    from ..methods.groups import group_counts

    verdicts = list(correct or [None] * len(answers))
    right = torch.tensor([verdict is True for verdict in verdicts])
    scorable = torch.tensor([verdict is not None for verdict in verdicts])
    group_correct, group_scorable = group_counts(right, scorable, num_samples)
    entropies = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(answer.entropies, dtype=torch.float64) for answer in answers], True
    )
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(answer.tokens)) for answer in answers], True)
    batch = {
        "advantages": torch.zeros(len(answers)),  # so that what comes back is A' - A
        "correct": right,
        "scorable": scorable,
        "group_correct": group_correct,
        "group_scorable": group_scorable,
    }
    shaped = conditional_entropy_shaping(batch, entropies * math.log(2), mask, **shaping)
    found = []
    for row, (answer, verdict) in enumerate(zip(answers, verdicts, strict=True)):
        forks = {fork.place: fork for fork in answer.forks}
        chosen = [
            Shaped(
                place=place,
                entropy=round(answer.entropies[place], DIGITS),
                shaping=round(shaped.advantages[row, place].item(), DIGITS),
                pair=[piece(tokenizer, token) for token in forks[place].pair],
                probabilities=[round(value, DIGITS) for value in forks[place].probabilities],
            )
            for place in shaped.selected[row].nonzero().flatten().tolist()
        ]
        found.append(
            TokenAnswer(
                prompt=answer.prompt,
                ids=answer.tokens,
                tokens=[piece(tokenizer, token) for token in answer.tokens],
                entropies=[round(bits, DIGITS) for bits in answer.entropies],
                ended=answer.ended,
                correct=verdict,
                shaped=chosen,
            )
        )
    return found
