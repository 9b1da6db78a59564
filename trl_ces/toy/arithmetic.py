"""A small world in which reinforcement learning with CES can be watched on a laptop.

The problems are additions, and the model writes its working before it answers. It works column by column, the units
first, checks its work if it likes, and answers:

    37+48:                      the prompt
    7+8=15,3+4+1=8              a pass: 7+8 is 15, write 5 and carry 1; then 3+4+1 is 8
    ?7+8=15,3+4+1=8             "?" checks: the pass is written again
    #85                         "#" answers: 8, then the 5 written down before. Then the text ends

There are no line breaks in the model's text; the tokens are single characters. Two things in it are left to chance,
and so they are the forking tokens on which a policy can improve:

- **slips.** The first pass has a wrong column with probability `slip_probability`: its sum is off by one, and what
  follows (the carry, the answer) follows from the wrong sum. `7+8=16,3+4+1=8#86` is such a text.
- **checks.** After every pass the text goes on with `?` with probability `check_probability`, and with `#` otherwise.
  A check rewrites a right pass as it was, and a wrong one rightly with probability `mend_probability`.

A model trained on such texts (arithmetic_model.py) answers about four problems in five, and hesitates where the texts
do. What it does with its hesitation is what `trl-ces quickstart` compares between training methods.
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset

CHARACTERS = "0123456789+=,?#:"
SPLITS = ("train", "held_out")


@dataclass(frozen=True)
class World:
    """What the problems look like, and how the texts behave from which the base model learns.

    Args:
        digits (`int`, *optional*, defaults to `2`):
            Digits of every number.
        min_terms (`int`, *optional*, defaults to `2`):
            Fewest numbers that a problem adds.
        max_terms (`int`, *optional*, defaults to `2`):
            Most numbers that a problem adds; the count is drawn evenly between the two.
        slip_probability (`float`, *optional*, defaults to `0.2`):
            Probability that the first pass has a wrong column.
        check_probability (`float`, *optional*, defaults to `0.3`):
            Probability of a check after each pass. Below 1, or no text would end.
        mend_probability (`float`, *optional*, defaults to `0.7`):
            Probability that a check puts a wrong pass right.
        forget_probability (`float`, *optional*, defaults to `0.0`):
            Probability that the first pass of a problem with a carry out of the units forgets it. Above a half the
            wrong way is the likelier one: such problems are hard, and those without a carry easy.
    """

    digits: int = 2
    min_terms: int = 2
    max_terms: int = 2
    slip_probability: float = 0.2
    check_probability: float = 0.3
    mend_probability: float = 0.7
    forget_probability: float = 0.0

    def __post_init__(self):
        for name in ("slip_probability", "check_probability", "mend_probability", "forget_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"World.{name} is a probability in [0, 1], got {getattr(self, name)}.")
        if self.check_probability == 1:
            raise ValueError("World.check_probability must be below 1: at 1 no text would ever end.")
        if self.digits < 1:
            raise ValueError(f"World.digits must be at least 1, got {self.digits}.")
        if not 2 <= self.min_terms <= self.max_terms:
            raise ValueError(
                f"World.min_terms and max_terms must satisfy 2 <= min_terms <= max_terms, got {self.min_terms} and "
                f"{self.max_terms}."
            )


def split_of(terms: list[int]) -> str:
    """`"held_out"` for about a tenth of all problems, else `"train"`: a fact of the problem that no seed can change.

    The order of the terms does not matter, so 37+48 and 48+37 never stand on two sides.
    """
    return SPLITS[zlib.crc32("+".join(map(str, sorted(terms))).encode()) % 10 == 0]


def draw_terms(world: World, split: str, rng: random.Random) -> list[int]:
    """The numbers of one problem of `split`, drawn evenly."""
    if split not in SPLITS:
        raise ValueError(f"split is one of {', '.join(SPLITS)}, got {split!r}.")
    smallest = 0 if world.digits == 1 else 10 ** (world.digits - 1)
    while True:
        count = rng.randint(world.min_terms, world.max_terms)
        terms = [rng.randrange(smallest, 10**world.digits) for _ in range(count)]
        if split_of(terms) == split:
            return terms


def write_prompt(terms: list[int]) -> str:
    """`37+48:` for `[37, 48]`."""
    return "+".join(map(str, terms)) + ":"


def read_prompt(prompt: str) -> list[int]:
    """`[37, 48]` for `37+48:`."""
    return [int(term) for term in prompt.removesuffix(":").split("+")]


def carries(terms: list[int]) -> bool:
    """Whether the units sum to ten or more."""
    return sum(term % 10 for term in terms) >= 10


def write_pass(
    terms: list[int], slip_column: int | None = None, slip: int = 0, forget: bool = False
) -> tuple[str, str]:
    """One pass of working, and the answer that follows from it.

    Args:
        terms (`list[int]`):
            The numbers to add, all with as many digits.
        slip_column (`int`, *optional*):
            The column (0: the units) whose sum is written wrong. `None`: all are right.
        slip (`int`, *optional*, defaults to `0`):
            What is added to that sum by mistake: +1 or -1.
        forget (`bool`, *optional*, defaults to `False`):
            Whether the carry out of the units is forgotten.

    Returns:
        `tuple[str, str]`: for `[37, 48]` the pair `("7+8=15,3+4+1=8", "85")`.
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
    """What the base model learns to write after the prompt of `terms`: passes, checks and an answer."""
    right = write_pass(terms)
    current = right
    if world.forget_probability and carries(terms) and rng.random() < world.forget_probability:
        current = write_pass(terms, forget=True)
    elif rng.random() < world.slip_probability:
        current = write_pass(terms, slip_column=rng.randrange(world.digits), slip=rng.choice((-1, 1)))
    text = current[0]
    while rng.random() < world.check_probability:
        if rng.random() < world.mend_probability:
            current = right
        text += "?" + current[0]
    return f"{text}#{current[1]}"


def load_problems(split: str = "train", num_problems: int = 2000, seed: int = 0, **world_fields: Any) -> Dataset:
    """Distinct problems to train or to measure on.

    Args:
        split (`str`, *optional*, defaults to `"train"`):
            `"train"` or `"held_out"`; no problem is in both, whatever the seeds.
        num_problems (`int`, *optional*, defaults to `2000`):
            How many. Two-digit sums of two numbers give 8,100 in all.
        seed (`int`, *optional*, defaults to `0`):
            Which ones, and in which order.
        world_fields:
            Fields of [`World`] that differ from its defaults.

    Returns:
        `Dataset` with the string columns `prompt` (`"37+48:"`) and `solution` (`"85"`).

    Raises:
        ValueError: if the split is unknown or the world has not that many problems.
    """
    from datasets import Dataset

    world, rng = World(**world_fields), random.Random(seed)
    solutions: dict[str, str] = {}
    for _ in range(100 * num_problems):
        if len(solutions) == num_problems:
            break
        terms = draw_terms(world, split, rng)
        solutions[write_prompt(terms)] = str(sum(terms))
    if len(solutions) < num_problems:
        raise ValueError(
            f"num_problems {num_problems} is more than this world's split {split!r} has (about {len(solutions)}). "
            "Ask for fewer, or raise World.digits or World.max_terms."
        )
    return Dataset.from_dict({"prompt": list(solutions), "solution": list(solutions.values())})


def arithmetic_accuracy_reward(completions: list[str], solution: list[str], **kwargs: Any) -> list[float]:
    """1.0 where the completion ends in one `#` and exactly the right number, else 0.0. The working is not judged."""
    rewards = []
    for completion, answer in zip(completions, solution, strict=True):
        given = re.fullmatch(r"[^#]*#(\d+)", completion)
        rewards.append(1.0 if given and given[1] == answer else 0.0)
    return rewards
