"""Draw random toy tasks: addition problems with different numbers of digits, terms and errors."""

import random
from typing import Any

CHECK, SLIP, FORGET = (0.10, 0.65), (0.05, 0.40), (0.30, 0.90)  # ranges of uniform distributions
EASY_SLIP = (0.0, 0.03)  # with this range and no forgotten carries, the base accuracy is above 70 %
# Digits -> range of the number of terms, chosen so that there are enough problems.
TERMS = {1: (4, 5), 2: (2, 4), 3: (2, 3)}


def draw_worlds(count: int, seed: int, easy: int = 0) -> list[dict[str, Any]]:
    """Draw the fields of [`ToyTask`] and the base model's `seed` (1, 2, ...) for each of `count` tasks.

    The number of digits cycles through 2, 3 and 1. Tasks with an odd seed and several digits have forgotten carries.
    The last `easy` tasks have few arithmetic errors and no forgotten carries. Other tasks do not depend on `count`.
    """
    rng, tasks = random.Random(seed), []
    for number in range(1, count + 1):
        digits = sorted(TERMS)[number % len(TERMS)]
        terms = sorted(rng.randint(*TERMS[digits]) for _ in range(2))
        forget = round(rng.uniform(*FORGET), 2)
        is_easy = number > count - easy
        tasks.append(
            {
                "seed": number,
                "digits": digits,
                "min_terms": terms[0],
                "max_terms": terms[1],
                "check_probability": round(rng.uniform(*CHECK), 2),
                "slip_probability": round(rng.uniform(*(EASY_SLIP if is_easy else SLIP)), 2),
                # One-digit numbers have no second column for a carry.
                "forget_probability": forget if number % 2 and digits > 1 and not is_easy else 0.0,
            }
        )
    return tasks
