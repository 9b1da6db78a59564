"""Verdicts a second: trl_ces' accuracy reward with all cores against TRL's on the same easy answers.

    python benchmarks/grading.py

Answers are numbers, fractions, powers and short polynomials, half of them wrong, as a model after some training writes
them. Both take turns; ratios are of wall seconds, so let nothing else run.
"""

import argparse
import os
import random
import statistics
import time

from trl.rewards import accuracy_reward as trls

from trl_ces.rewards import accuracy_reward as ours


def easy_answers(count: int, seed: int) -> tuple[list[list[dict[str, str]]], list[str]]:
    """Conversational completions with a boxed answer, and golds between dollar signs, as TRL's reward wants them."""
    draw = random.Random(seed)
    completions, golds = [], []
    for _ in range(count):
        a, b, c = draw.randint(2, 99), draw.randint(2, 99), draw.randint(2, 9)
        gold = draw.choice(
            [f"{a}", f"-{a}.{b}", rf"\frac{{{a}}}{{{b}}}", rf"{c}\sqrt{{{b}}}", f"{a}^{{{c}}}", f"{c}x+{a}"]
        )
        answer = gold if draw.random() < 0.5 else gold.replace(gold[-2:], f"{draw.randint(2, 9)}" + gold[-1:])
        text = f"We add both sides and simplify.\n\nThe answer is \\boxed{{{answer}}}."
        completions.append([{"role": "assistant", "content": text}])
        golds.append(f"${gold}$")
    return completions, golds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    verdicts: dict[str, list] = {}
    seconds: dict[str, list[float]] = {"ours": [], "TRL's": []}
    for turn in range(options.repeats + 1):  # the first turn starts our workers
        completions, golds = easy_answers(options.answers, options.seed + turn)  # new ones: nothing is remembered
        for name, reward in (("ours", ours), ("TRL's", trls)):
            start = time.perf_counter()
            verdicts[name] = reward(completions=completions, solution=golds)
            if turn > 0:
                seconds[name].append(time.perf_counter() - start)
    ratios = [theirs / mine for mine, theirs in zip(seconds["ours"], seconds["TRL's"], strict=True)]
    agreed = sum(mine == theirs for mine, theirs in zip(verdicts["ours"], verdicts["TRL's"], strict=True))
    print(f"{options.answers} answers, {os.cpu_count()} cores; both agree on {agreed}\n")
    for name, spent in seconds.items():
        print(f"{name:>6}: {options.answers / statistics.median(spent):.0f} verdicts/s")
    print(f"ours / TRL's: {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
