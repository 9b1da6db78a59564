"""Compare the throughput of the trl_ces and TRL accuracy rewards on the same easy answers.

    python benchmarks/grading.py

Final answers are numbers, fractions, powers and short polynomials. Half of the answers are incorrect, as is typical of
a partially trained model. The two rewards run alternately, and only the trl_ces reward uses all cores. Ratios compare
wall-clock times, so do not run other programs at the same time.

The second part times answers that need symbolic algebra, with and without additional hostile answers.
"""

import argparse
import os
import random
import statistics
import time
from operator import ne

import psutil
from trl.rewards import accuracy_reward as trl_reward

from trl_ces.grading.pool import shared_pool
from trl_ces.rewards import accuracy_reward as ces_reward


def easy_answers(count: int, seed: int) -> tuple[list[list[dict[str, str]]], list[str]]:
    """Generate chat completions with boxed answers, and golds between dollar signs, as TRL's reward requires."""
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


def algebra_answers(count: int, seed: int) -> tuple[list[str], list[str], list[float]]:
    """Generate completions that only symbolic algebra can grade, with golds and expected rewards."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        n = draw.randint(2, 10**6)
        rows.append(
            draw.choice(
                [
                    (rf"\sqrt{{{2 * n * n}}}", rf"{n}\sqrt{{2}}", 1.0),
                    (rf"\frac{{x^2-{n * n}}}{{x-{n}}}", f"x+{n}", 1.0),
                    (f"(x+{n})^2", f"x^2+{n * n}", 0.0),
                ]
            )
        )
    answers, golds, rewards = map(list, zip(*rows, strict=True))
    return [rf"So it is \boxed{{{answer}}}." for answer in answers], golds, rewards


def hostile_answers(count: int, seed: int) -> list[str]:
    """Generate distinct completions for which symbolic comparison would exceed any time limit."""
    draw = random.Random(seed)
    forms = [
        lambda n: f"9^{{9^{{9^{{{n}}}}}}}",
        lambda n: f"(x+y+z+1)^{{{n}}}",
        lambda n: f"({n}!)!",
        lambda n: "(" * 40 + f"{n}" + ")" * 40,
        lambda n: "x_{" * 40 + f"{n}" + "}" * 40,
        lambda n: rf"\int_0^\infty {n} e^{{-x^{{x}}}} dx",
        lambda n: "+".join(f"x^{{{power}}}" for power in range(900)) + f"+{n}",
    ]
    numbers = draw.sample(range(10**6, 10**7), count)
    return [rf"So it is \boxed{{{forms[index % len(forms)](n)}}}." for index, n in enumerate(numbers)]


def processor_seconds() -> float:
    """Return the total CPU seconds of this process and its grading workers."""
    processes = [psutil.Process(worker.process.pid) for worker in shared_pool().workers if worker.process]
    processes += [child for supervisor in processes for child in supervisor.children()]
    # A supervisor's times include its terminated children.
    return time.process_time() + sum(sum(process.cpu_times()[:4]) for process in processes)


def time_with_hostile_answers(options: argparse.Namespace) -> None:
    """Time the reward on answers that need symbolic algebra, with and without additional hostile answers."""
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    cpu_seconds: dict[str, float] = dict.fromkeys(seconds, 0.0)
    hostile_rewards: list[float | None] = []
    for turn in range(options.repeats):
        for name, measurements in seconds.items():
            seed = options.seed + 2 * turn + (name == "with")
            completions, golds, expected = algebra_answers(options.answers, seed)
            positions = []
            if name == "with":
                hostile = hostile_answers(options.hostile, seed)
                positions = [number * (options.answers // len(hostile) + 1) for number in range(len(hostile))]
                for position, text in zip(positions, hostile, strict=True):
                    completions.insert(position, text)
                    golds.insert(position, r"42\pi+x")
            start, cpu_start = time.perf_counter(), processor_seconds()
            rewards = ces_reward(completions=completions, solution=golds)
            measurements.append(time.perf_counter() - start)
            cpu_seconds[name] += processor_seconds() - cpu_start
            hostile_rewards += [rewards[position] for position in positions]
            ordinary = [reward for position, reward in enumerate(rewards) if position not in positions]
            if ordinary != expected:
                raise SystemExit(
                    f"{sum(map(ne, ordinary, expected))} of {len(ordinary)} answers have incorrect rewards."
                )
    ratios = [slow / fast for slow, fast in zip(seconds["with"], seconds["without"], strict=True)]
    medians = ", ".join(f"{name} {statistics.median(measurements):.2f} s" for name, measurements in seconds.items())
    print(
        f"\n{options.answers} answers that need symbolic algebra, with and without {options.hostile} hostile answers: "
        f"{medians}; with / without: {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}], in CPU "
        f"time {cpu_seconds['with'] / cpu_seconds['without']:.2f}\n"
        f"hostile answers: {hostile_rewards.count(0.0)} rewards of 0, {hostile_rewards.count(None)} unscored, "
        f"{hostile_rewards.count(1.0)} rewards of 1; all other rewards are as expected"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=1000, help="number of answers per turn")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hostile", type=int, default=20, help="number of hostile answers in the second part")
    options = parser.parse_args(argv)
    rewards: dict[str, list] = {}
    seconds: dict[str, list[float]] = {"trl_ces": [], "TRL": []}
    for turn in range(options.repeats + 1):  # the first turn starts the workers and is not timed
        completions, golds = easy_answers(options.answers, options.seed + turn)  # new answers are not cached
        for name, reward in (("trl_ces", ces_reward), ("TRL", trl_reward)):
            start = time.perf_counter()
            rewards[name] = reward(completions=completions, solution=golds)
            if turn > 0:
                seconds[name].append(time.perf_counter() - start)
    ratios = [trl / ces for ces, trl in zip(seconds["trl_ces"], seconds["TRL"], strict=True)]
    num_equal = sum(ces == trl for ces, trl in zip(rewards["trl_ces"], rewards["TRL"], strict=True))
    print(f"{options.answers} answers, {os.cpu_count()} cores; the rewards of {num_equal} answers are equal\n")
    for name, measurements in seconds.items():
        print(f"{name:>7}: {options.answers / statistics.median(measurements):.0f} grades/s")
    print(f"trl_ces / TRL: {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]")
    time_with_hostile_answers(options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
