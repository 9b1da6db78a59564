"""A small world in which reinforcement learning with CES can be watched on a laptop.

The problems are additions. The model writes its working column by column, units first, may check it, and answers:

    37+48:                      the prompt
    7+8=15,3+4+1=8              a pass: 7+8 is 15, write 5 and carry 1; then 3+4+1 is 8
    ?7+8=15,3+4+1=8             "?" checks: the pass is written again
    #85                         "#" answers: 8, then the 5 written before. The text ends

There are no line breaks in the model's text; the tokens are single characters. Two things are left to chance, which
makes them the forking tokens on which a policy can improve:

- **slips.** With probability `slip_probability` one column of the first pass is off by one, and what follows from it
  (the carry, the answer) is wrong too: `7+8=16,3+4+1=8#86`.
- **checks.** After every pass the text goes on with `?` with probability `check_probability`, else with `#`. A check
  repeats a correct pass and mends a wrong one with probability `mend_probability`.

With `sums` above 1 a problem has several additions, named by letters, and the text works and answers them in turn:

    a37+48b21+30:               the prompt
    a7+8=15,3+4+1=8#85b1+0=1,2+3=5#51

A model trained on such texts (arithmetic_model.py) answers about four problems in five, and hesitates where the texts
do. `trl-ces quickstart` compares what training methods make of its hesitation.
"""

from __future__ import annotations

import random
import re
import string
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset

CHARACTERS = "0123456789+=,?#:"
LETTERS = string.ascii_lowercase  # where a problem has several sums, they name them
SPLITS = ("train", "held_out")


@dataclass(frozen=True)
class World:
    """The problems, and the texts from which the base model learns."""

    digits: int = 2  # of each number
    min_terms: int = 2  # numbers to add; the count is uniform between the two
    max_terms: int = 2
    slip_probability: float = 0.2  # of a wrong column in the first pass
    check_probability: float = 0.3  # of a check after each pass; below 1, or no text would end
    mend_probability: float = 0.7  # that a check corrects a wrong pass
    # That the first pass forgets a carry out of the units. Above a half, problems with a carry are hard, others easy.
    forget_probability: float = 0.0
    guess_first: bool = False  # whether the first pass is its answer alone, without the working behind it
    sums: int = 1  # additions in one problem, at most 26; a completion is correct if all its sums are

    def __post_init__(self):
        for name in ("slip_probability", "check_probability", "mend_probability", "forget_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"World.{name} is a probability in [0, 1], got {getattr(self, name)}.")
        if self.check_probability == 1:
            raise ValueError("World.check_probability must be below 1: at 1 no text would ever end.")
        if self.digits < 1 or not 2 <= self.min_terms <= self.max_terms or not 1 <= self.sums <= len(LETTERS):
            raise ValueError(f"A World needs digits >= 1, 2 <= min_terms <= max_terms and 1 to 26 sums, got {self}.")


def split_of(terms: list[int]) -> str:
    """`"held_out"` for about a tenth of all problems, else `"train"`, whatever the seed and the order of the terms."""
    return SPLITS[zlib.crc32("+".join(map(str, sorted(terms))).encode()) % 10 == 0]


def draw_terms(world: World, split: str, rng: random.Random) -> list[int]:
    """The numbers of one sum of `split`, drawn uniformly."""
    if split not in SPLITS:
        raise ValueError(f"split is one of {', '.join(SPLITS)}, got {split!r}.")
    smallest = 0 if world.digits == 1 else 10 ** (world.digits - 1)
    while True:
        count = rng.randint(world.min_terms, world.max_terms)
        terms = [rng.randrange(smallest, 10**world.digits) for _ in range(count)]
        if split_of(terms) == split:
            return terms


def write_prompt(problem: list[list[int]]) -> str:
    """`37+48:` for `[[37, 48]]`, `a37+48b21+30:` for `[[37, 48], [21, 30]]`."""
    return "".join(_named("+".join(map(str, terms)) for terms in problem)) + ":"


def read_prompt(prompt: str) -> list[list[int]]:
    """`[[37, 48]]` for `37+48:`."""
    return [[int(term) for term in terms.split("+")] for terms in re.findall(r"[\d+]+", prompt)]


def write_solution(problem: list[list[int]]) -> str:
    """`85` for `[[37, 48]]`, `85,51` for `[[37, 48], [21, 30]]`."""
    return ",".join(str(sum(terms)) for terms in problem)


def _named(texts: Iterable[str]) -> list[str]:
    """The texts, each behind its letter if there are several."""
    texts = list(texts)
    return texts if len(texts) == 1 else [letter + text for letter, text in zip(LETTERS, texts, strict=False)]


def carries(terms: list[int]) -> bool:
    """Whether the units sum to ten or more."""
    return sum(term % 10 for term in terms) >= 10


def write_pass(
    terms: list[int], slip_column: int | None = None, slip: int = 0, forget: bool = False
) -> tuple[str, str]:
    """One pass of working and the answer that follows: `("7+8=15,3+4+1=8", "85")` for `[37, 48]`.

    The sum of `slip_column` (0: the units) is off by `slip`; `forget`: the carry out of the units is forgotten.
    """
    columns, written, carry = [], "", 0
    digits = len(str(terms[0]))
    for column in range(digits):
        summands = [term // 10**column % 10 for term in terms] + ([carry] if carry else [])
        total = sum(summands)
        if column == slip_column:
            total = total + slip if total + slip >= 0 else total + 1
        columns.append("+".join(map(str, summands)) + f"={total}")
        carry, digit = divmod(total, 10)
        carry = 0 if forget and column == 0 else carry
        written = f"{total if column == digits - 1 else digit}{written}"
    return ",".join(columns), written


def write_completion(terms: list[int], world: World, rng: random.Random) -> str:
    """What the base model learns to write for one sum: passes, checks and an answer."""
    current = right = write_pass(terms)
    if world.forget_probability and carries(terms) and rng.random() < world.forget_probability:
        current = write_pass(terms, forget=True)
    elif rng.random() < world.slip_probability:
        current = write_pass(terms, slip_column=rng.randrange(world.digits), slip=rng.choice((-1, 1)))
    text = current[1] if world.guess_first else current[0]  # a guess is wrong as the working would have been
    while rng.random() < world.check_probability:
        if rng.random() < world.mend_probability:
            current = right
        text += "?" + current[0]
    return f"{text}#{current[1]}"


def write_text(problem: list[list[int]], world: World, rng: random.Random) -> str:
    """What the base model learns to write after the prompt of `problem`."""
    return "".join(_named(write_completion(terms, world, rng) for terms in problem))


def make_datasets(
    count: int, held_out: int, seed: int, system_prompt: str | None, **world_fields: Any
) -> tuple[Dataset, Dataset | None]:
    """A recipe's `dataset_builder`; the model knows no system prompt, so it is left out."""
    held = load_problems("held_out", held_out, seed, **world_fields) if held_out else None
    return load_problems("train", count, seed, **world_fields), held


def load_problems(split: str = "train", num_problems: int = 2000, seed: int = 0, **world_fields: Any) -> Dataset:
    """Distinct problems as columns `prompt` (`"37+48:"`) and `solution` (`"85"`); no problem is in both splits."""
    from datasets import Dataset

    world, rng = World(**world_fields), random.Random(seed)
    solutions: dict[str, str] = {}
    for _ in range(100 * num_problems):
        if len(solutions) == num_problems:
            break
        problem = [draw_terms(world, split, rng) for _ in range(world.sums)]
        solutions[write_prompt(problem)] = write_solution(problem)
    if len(solutions) < num_problems:
        raise ValueError(
            f"num_problems {num_problems} is more than this world's split {split!r} has (about {len(solutions)}): "
            "ask for fewer, or raise World.digits or World.max_terms."
        )
    return Dataset.from_dict({"prompt": list(solutions), "solution": list(solutions.values())})


def arithmetic_accuracy_reward(completions: list[str], solution: list[str], **kwargs: Any) -> list[float]:
    """1.0 if the numbers behind `#` are correct, in order, and the last ends the text. The working is not graded."""
    rewards = []
    for completion, answer in zip(completions, solution, strict=True):
        pieces = completion.split("#")[1:]
        given = [re.match(r"\d*", piece)[0] for piece in pieces]  # type: ignore[index]  # matches every text
        rewards.append(1.0 if pieces[-1:] == given[-1:] and ",".join(given) == answer else 0.0)
    return rewards
