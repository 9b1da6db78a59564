"""`tokens-STEP.jsonl` in a run's folder: completions of one step's model, token by token, and what CES does to them.

The file of the first step, mostly the model before training, is the reference: the later ones also hold what their
model thinks at the tokens that CES shapes in the reference's completions. So a fork can be followed over training,
also after the model has stopped hesitating there.

Lines are JSON: a `kind` "settings", then "completion" and "place". Entropies are in bits, `shaping` is A' - A, Eq. 7.
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

from ...support.errors import UserError
from ...support.files import write_text

if TYPE_CHECKING:
    from ..inspect.answers import SampledAnswer

VERSION = 2
DIGITS = 4  # of entropies, probabilities and shaping in the file


@dataclass(frozen=True)
class ShapedToken:
    """A token whose advantage CES changes."""

    place: int  # in the completion, from 0
    entropy: float  # bits
    shaping: float  # A' - A: -beta_1 H in a correct completion, beta_2 H in a wrong one
    pair: list[str]  # the two likeliest tokens there, the likelier first
    probabilities: list[float]  # theirs


@dataclass(frozen=True)
class TokenAnswer:
    """One completion, token by token."""

    prompt: int  # index of its prompt
    ids: list[int]  # the end token included
    tokens: list[str]  # their texts
    entropies: list[float]  # bits, one per token
    ended: bool  # whether it came to an end token
    correct: bool | None  # `None` if unknown
    shaped: list[ShapedToken]  # by place


@dataclass(frozen=True)
class FollowedToken:
    """What a later model thinks at a shaped token of the reference."""

    completion: int  # index among the reference's
    place: int
    entropy: float
    pair: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class TokenFile:
    """One `tokens-STEP.jsonl`."""

    # `step`, `model`, how the completions were drawn and are shaped, and `reference`: the digest of the settings of
    # the file whose tokens are followed, `None` in that file itself.
    settings: dict[str, Any]
    questions: list[str]  # the prompts as texts
    prompts: list[list[int]]  # and as token ids
    answers: list[TokenAnswer]  # the first prompt's first
    places: list[FollowedToken] = field(default_factory=list)

    @property
    def step(self) -> int:
        return self.settings["step"]

    def follows(self, reference: TokenFile) -> bool:
        """Whether `places` are those of `reference`."""
        return bool(self.places) and self.settings.get("reference") == digest(reference.settings)


def digest(settings: dict[str, Any]) -> str:
    """Names a file's reference."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def write_tokens(folder: Path, content: TokenFile) -> None:
    """Writes the file of a step, whole or not at all."""
    asked = {"questions": content.questions, "prompts": content.prompts}
    lines = [{"kind": "settings", "version": VERSION, "settings": content.settings, **asked}]
    lines += [{"kind": "completion", **asdict(answer)} for answer in content.answers]
    lines += [{"kind": "place", **asdict(place)} for place in content.places]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_text(folder / f"tokens-{content.step}.jsonl", text)


def read_tokens(folder: Path) -> list[TokenFile]:
    """The files of a run, by step."""
    files = [file for file in folder.glob("tokens-*.jsonl") if re.fullmatch(r"tokens-\d+\.jsonl", file.name)]
    return sorted(map(_read, files), key=lambda content: content.step)


def _read(file: Path) -> TokenFile:
    try:
        # Not splitlines, which also splits at U+2028, and a token may be one.
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        first = lines[0]
        if first["version"] != VERSION or "step" not in first["settings"]:
            raise ValueError("another version")
        answers, places = [], []
        for line in lines[1:]:
            if line.pop("kind") == "completion":
                answers.append(TokenAnswer(**{**line, "shaped": [ShapedToken(**entry) for entry in line["shaped"]]}))
            else:
                places.append(FollowedToken(**line))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{file} is damaged ({error}): remove it; `--tokens N` writes it again.") from None
    return TokenFile(first["settings"], first["questions"], first["prompts"], answers, places)


def token_answers(
    answers: Sequence[SampledAnswer],
    correct: Sequence[bool | None] | None,
    tokenizer: Any,
    *,
    num_samples: int,
    shaping: dict[str, Any],
) -> list[TokenAnswer]:
    """Sampled completions with what CES does to their tokens, by the function that training uses."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from ...methods.ces import conditional_entropy_shaping
    from ...methods.groups import group_counts
    from ..inspect.facts import advantage_of_incorrect
    from ..inspect.tokens import piece

    verdicts = list(correct or [None] * len(answers))
    right = torch.tensor([verdict is True for verdict in verdicts])
    scored = torch.tensor([verdict is not None for verdict in verdicts])
    group_correct, group_scored = group_counts(right, scored, num_samples)
    entropies = pad_sequence([torch.tensor(answer.entropies, dtype=torch.float64) for answer in answers], True)
    shaping = dict(shaping)
    cut_count = not shaping.pop("mask_truncated", False)
    mask = pad_sequence([torch.full((len(a.tokens),), float(a.ended or cut_count)) for a in answers], True)
    counts = zip(group_correct.tolist(), group_scored.tolist(), right.tolist(), strict=True)
    # Only the cap reads A, and only of wrong completions.
    advantages = torch.tensor([0.0 if true else advantage_of_incorrect(c, n) for c, n, true in counts])
    batch = {
        "advantages": advantages,
        "correct": right,
        "scored": scored,
        "group_correct": group_correct,
        "group_scored": group_scored,
    }
    shaped = conditional_entropy_shaping(batch, entropies * math.log(2), mask, **shaping)
    found = []
    for row, (answer, verdict) in enumerate(zip(answers, verdicts, strict=True)):
        forks = {fork.place: fork for fork in answer.forks}
        chosen = [
            ShapedToken(
                place=place,
                entropy=round(answer.entropies[place], DIGITS),
                shaping=round((shaped.advantages[row, place] - advantages[row]).item(), DIGITS),
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
