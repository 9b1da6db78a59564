"""How much an optimizer step weighs under TRL's `dapo` loss, against Eq. 1.

TRL divides every step by the rollout's mean tokens of a step, Eq. 1 by the step's own. So a step of n tokens weighs
n / mean(n) times what Eq. 1 gives it. Nothing is trained: lengths are drawn like those of R1-Distill models
(rollouts.py), rows fall into steps as TRL shuffles them. `normalize_each_step: true` makes the weight 1.
"""

import argparse
import random
import statistics
import sys

from rollouts import r1_lengths


def weights(rollouts: int, rows: int, rows_of_a_step: int, seed: int) -> list[float]:
    """n / mean(n) of every step of `rollouts` rollouts."""
    found = []
    for number in range(rollouts):
        lengths = r1_lengths(rows, 12_000, seed + number)
        random.Random(seed + number).shuffle(lengths)
        steps = [sum(lengths[start : start + rows_of_a_step]) for start in range(0, rows, rows_of_a_step)]
        found += [tokens / statistics.mean(steps) for tokens in steps]
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rollouts", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=48, help="completions in a rollout")
    parser.add_argument("--rows_of_a_step", type=int, default=4, help="completions in an optimizer step")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    found = sorted(weights(options.rollouts, options.rows, options.rows_of_a_step, options.seed))
    low, high = (found[int(share * len(found))] for share in (0.05, 0.95))
    print(
        f"A step of {options.rows_of_a_step} of {options.rows} completions weighs {low:.2f} to {high:.2f} of Eq. 1 "
        f"(5 to 95 % of {len(found)} steps; least {found[0]:.2f}, most {found[-1]:.2f})."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
