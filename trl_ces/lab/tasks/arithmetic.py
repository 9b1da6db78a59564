"""Toy task: addition problems with intermediate steps, for training with CES on a laptop.

The model adds column by column, starting with the units, may re-check its steps, and gives a final answer:

    37+48:                      the prompt
    7+8=15,3+4+1=8              a pass: 7+8 is 15, so write 5 and carry 1; 3+4+1 is 8
    ?7+8=15,3+4+1=8             "?" starts a re-check, which repeats the pass
    #85                         "#" starts the final answer, which ends the text

Tokens are single characters. Two choices in the base model's training texts are random. These choices become the
model's high-entropy tokens, where reinforcement learning can improve the model:

- **Arithmetic errors.** With probability `slip_probability`, one column of the first pass is off by one. The error
  propagates to the carry and the final answer: `7+8=16,3+4+1=8#86`.
- **Re-checks.** After every pass, the text continues with `?` with probability `check_probability`, else with `#`. A
  re-check repeats a correct pass, and corrects an incorrect pass with probability `mend_probability`.

If `sums` is above 1, a problem contains several sums, which are labeled with letters and solved in order:

    a37+48b21+30:               the prompt
    a7+8=15,3+4+1=8#85b1+0=1,2+3=5#51
"""

from __future__ import annotations

import random
import re
import string
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset

CHARACTERS = "0123456789+=,?#:"
LETTERS = string.ascii_lowercase  # labels of the sums of a problem with several sums
SPLITS = ("train", "held_out")


@dataclass(frozen=True)
class ToyTask:
    """Distribution of the problems and of the base model's training texts."""

    digits: int = 2  # digits of each number
    min_terms: int = 2  # the number of terms is drawn uniformly from `min_terms` to `max_terms`
    max_terms: int = 2
    slip_probability: float = 0.2  # probability of an arithmetic error in the first pass
    check_probability: float = 0.3  # probability of a re-check after each pass; must be below 1, so that texts end
    mend_probability: float = 0.7  # probability that a re-check corrects an incorrect pass
    forget_probability: float = 0.0  # probability that the first pass drops the carry from the units
    guess_first: bool = False  # whether the first pass consists only of its result, without intermediate steps
    sums: int = 1  # sums per problem, at most 26; a correct completion solves all of them

    def __post_init__(self):
        probabilities = (self.slip_probability, self.check_probability, self.mend_probability, self.forget_probability)
        if not all(0 <= probability <= 1 for probability in probabilities) or self.check_probability == 1:
            raise ValueError(f"Expected probabilities in [0, 1] and check_probability below 1, got {self}.")
        if self.digits < 1 or not 2 <= self.min_terms <= self.max_terms or not 1 <= self.sums <= len(LETTERS):
            raise ValueError(f"Expected digits >= 1, 2 <= min_terms <= max_terms and 1 to 26 sums, got {self}.")


def split_of(terms: list[int]) -> str:
    """Return `"held_out"` for about a tenth of all sums, else `"train"`; the order of the terms does not matter."""
    return SPLITS[zlib.crc32("+".join(map(str, sorted(terms))).encode()) % 10 == 0]


def draw_terms(task: ToyTask, split: str, rng: random.Random) -> list[int]:
    """Draw the terms of a sum uniformly from `split`."""
    smallest = 0 if task.digits == 1 else 10 ** (task.digits - 1)
    while True:
        count = rng.randint(task.min_terms, task.max_terms)
        terms = [rng.randrange(smallest, 10**task.digits) for _ in range(count)]
        if split_of(terms) == split:
            return terms


def write_prompt(problem: list[list[int]]) -> str:
    """Write `[[37, 48]]` as `37+48:`, and `[[37, 48], [21, 30]]` as `a37+48b21+30:`."""
    return "".join(_with_letters(["+".join(map(str, terms)) for terms in problem])) + ":"


def read_prompt(prompt: str) -> list[list[int]]:
    """Parse `37+48:` into `[[37, 48]]`."""
    return [[int(term) for term in terms.split("+")] for terms in re.findall(r"[\d+]+", prompt)]


def write_solution(problem: list[list[int]]) -> str:
    """Write the solution of `[[37, 48]]` as `85`, and of `[[37, 48], [21, 30]]` as `85,51`."""
    return ",".join(str(sum(terms)) for terms in problem)


def _with_letters(texts: list[str]) -> list[str]:
    """Prefix each text with its letter if there are several texts."""
    return texts if len(texts) == 1 else [letter + text for letter, text in zip(LETTERS, texts, strict=False)]


def carries(terms: list[int]) -> bool:
    """Return whether the sum of the units is at least ten."""
    return sum(term % 10 for term in terms) >= 10


def write_pass(
    terms: list[int], error_column: int | None = None, error: int = 0, forget: bool = False
) -> tuple[str, str]:
    """Write one pass and its result: `("7+8=15,3+4+1=8", "85")` for `[37, 48]`.

    The sum in `error_column` (0: the units) is off by `error`. If `forget` is set, drop the carry from the units.
    """
    columns, result, carry = [], "", 0
    digits = len(str(terms[0]))
    for column in range(digits):
        summands = [term // 10**column % 10 for term in terms] + ([carry] if carry else [])
        total = sum(summands)
        if column == error_column:
            total = total + error if total + error >= 0 else total + 1
        columns.append("+".join(map(str, summands)) + f"={total}")
        carry, digit = divmod(total, 10)
        carry = 0 if forget and column == 0 else carry
        result = f"{total if column == digits - 1 else digit}{result}"
    return ",".join(columns), result


def write_completion(terms: list[int], task: ToyTask, rng: random.Random) -> str:
    """Write the base model's training text for one sum: a pass, re-checks and a final answer."""
    current = correct = write_pass(terms)
    if task.forget_probability and carries(terms) and rng.random() < task.forget_probability:
        current = write_pass(terms, forget=True)
    elif rng.random() < task.slip_probability:
        current = write_pass(terms, error_column=rng.randrange(task.digits), error=rng.choice((-1, 1)))
    text = current[1] if task.guess_first else current[0]
    while rng.random() < task.check_probability:
        if rng.random() < task.mend_probability:
            current = correct
        text += "?" + current[0]
    return f"{text}#{current[1]}"


def write_text(problem: list[list[int]], task: ToyTask, rng: random.Random) -> str:
    """Write the base model's training text for a whole problem, without its prompt."""
    return "".join(_with_letters([write_completion(terms, task, rng) for terms in problem]))


def make_datasets(
    count: int, held_out: int, seed: int, system_prompt: str | None, **task_fields: Any
) -> tuple[Dataset, Dataset | None]:
    """Build the training and held-out problems; a `dataset_builder` for recipes. `system_prompt` is ignored."""
    held_out_problems = load_problems("held_out", held_out, seed, **task_fields) if held_out else None
    return load_problems("train", count, seed, **task_fields), held_out_problems


def load_problems(split: str = "train", num_problems: int = 2000, seed: int = 0, **task_fields: Any) -> Dataset:
    """Draw distinct problems with columns `prompt` and `solution`; raise `ValueError` if the split has fewer."""
    from datasets import Dataset

    task, rng = ToyTask(**task_fields), random.Random(seed)
    solutions: dict[str, str] = {}
    for _ in range(100 * num_problems):
        if len(solutions) == num_problems:
            break
        problem = [draw_terms(task, split, rng) for _ in range(task.sums)]
        solutions[write_prompt(problem)] = write_solution(problem)
    if len(solutions) < num_problems:
        raise ValueError(
            f"num_problems is {num_problems}, but the {split!r} split has about {len(solutions)} problems: decrease "
            "num_problems, or increase digits or max_terms."
        )
    return Dataset.from_dict({"prompt": list(solutions), "solution": list(solutions.values())})


def arithmetic_accuracy_reward(completions: list[str], solution: list[str], **kwargs: Any) -> list[float]:
    """Return 1.0 if the numbers after each `#` are correct and nothing follows the last number, else 0.0."""
    rewards = []
    for completion, reference in zip(completions, solution, strict=True):
        pieces = completion.split("#")[1:]
        numbers = [re.match(r"\d*", piece)[0] for piece in pieces]  # type: ignore[index]  # the pattern matches any text
        rewards.append(1.0 if pieces[-1:] == numbers[-1:] and ",".join(numbers) == reference else 0.0)
    return rewards
