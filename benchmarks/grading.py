"""Verdicts per second: trl_ces' accuracy reward on all cores against TRL's, on the same easy answers.

    python benchmarks/grading.py

Answers are numbers, fractions, powers and short polynomials, half of them wrong, like those of a partly trained model.
The two take turns and ratios are of wall time, so run nothing else on the machine.

Then grading that overlaps with forwards, as in the trainer (`accuracy_reward.start_early`), against grading after
them.
"""

import argparse
import os
import random
import statistics
import sys
import time
from pathlib import Path

import torch
from trl.rewards import accuracy_reward as trls

from trl_ces.rewards import accuracy_reward as ours

sys.path.insert(0, str(Path(__file__).parent))
from rollouts import make_model


def easy_answers(count: int, seed: int) -> tuple[list[list[dict[str, str]]], list[str]]:
    """Conversational completions with a boxed answer, and golds between dollar signs, as TRL's reward expects them."""
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


def beside_forwards(options: argparse.Namespace) -> None:
    """The forwards for the old log-probs and the grading of a rollout: overlapped, and one after the other."""
    model = make_model("small", "sdpa", torch.float32, 1024)
    rows = torch.randint(2, 2000, (4, 750))
    seconds: dict[str, list[float]] = {"beside": [], "after": []}
    for turn in range(options.repeats + 1):
        for number, (name, spent) in enumerate(seconds.items()):
            completions, golds = easy_answers(options.answers, options.seed + 1000 + 2 * turn + number)
            asked = {"solution": golds, "thinking_prefilled": [False] * len(golds)}
            asked["last_turns"] = [completion[-1]["content"] for completion in completions]
            start = time.perf_counter()
            if name == "beside":
                ours.start_early(**asked)
            with torch.no_grad():
                for _ in range(options.forwards):
                    model(rows)
            ours(completions=completions, **asked)
            if turn > 0:
                spent.append(time.perf_counter() - start)
    ratios = [one / other for one, other in zip(seconds["beside"], seconds["after"], strict=True)]
    medians = ", ".join(f"{name} {statistics.median(spent):.2f} s" for name, spent in seconds.items())
    print(
        f"\n{options.forwards} forwards of 3,000 tokens and {options.answers} verdicts, seconds: {medians}; "
        f"beside / after: {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--forwards", type=int, default=10, help="forwards that grading overlaps with")
    options = parser.parse_args(argv)
    verdicts: dict[str, list] = {}
    seconds: dict[str, list[float]] = {"ours": [], "TRL's": []}
    for turn in range(options.repeats + 1):  # the first turn starts our workers and is not timed
        completions, golds = easy_answers(
            options.answers, options.seed + turn
        )  # new ones, so that no verdict is cached
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
    beside_forwards(options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
