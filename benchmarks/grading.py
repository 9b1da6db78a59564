"""Graded answers per second: trl_ces' accuracy reward on all cores against TRL's, on the same easy answers.

    python benchmarks/grading.py

Answers are numbers, fractions, powers and short polynomials, half of them wrong, like those of a partly trained model.
The two take turns and ratios are of wall time, so run nothing else on the machine.

Then answers that need the algebra, with and without distinct hostile ones among them: what bounds a step.
"""

import argparse
import os
import random
import statistics
import time
from operator import ne

import psutil
from trl.rewards import accuracy_reward as trls

from trl_ces.grading.pool import shared_pool
from trl_ces.rewards import accuracy_reward as ours


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


def algebra_answers(count: int, seed: int) -> tuple[list[str], list[str], list[float]]:
    """Completions that no rule but the algebra decides, golds and rewards."""
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
    """Distinct completions that keep the algebra busy for longer than any limit."""
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
    """Of this process and its grading workers so far."""
    processes = [psutil.Process(worker.process.pid) for worker in shared_pool().workers if worker.process]
    processes += [child for supervisor in processes for child in supervisor.children()]
    # A supervisor's children that were ended count in its own times.
    return time.process_time() + sum(sum(process.cpu_times()[:4]) for process in processes)


def among_hostile(options: argparse.Namespace) -> None:
    """A reward's time for answers that need the algebra, with and without hostile ones spread among them."""
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    processor: dict[str, float] = dict.fromkeys(seconds, 0.0)
    hostile_rewards: list[float | None] = []
    for turn in range(options.repeats):
        for name, spent in seconds.items():
            seed = options.seed + 2 * turn + (name == "with")
            completions, golds, expected = algebra_answers(options.answers, seed)
            places = []
            if name == "with":
                bad = hostile_answers(options.hostile, seed)
                places = [number * (options.answers // len(bad) + 1) for number in range(len(bad))]
                for place, text in zip(places, bad, strict=True):
                    completions.insert(place, text)
                    golds.insert(place, r"42\pi+x")
            start, used = time.perf_counter(), processor_seconds()
            found = ours(completions=completions, solution=golds)
            spent.append(time.perf_counter() - start)
            processor[name] += processor_seconds() - used
            hostile_rewards += [found[place] for place in places]
            honest = [reward for place, reward in enumerate(found) if place not in places]
            if honest != expected:
                raise SystemExit(f"{sum(map(ne, honest, expected))} of {len(honest)} answers lost their rewards.")
    ratios = [one / other for one, other in zip(seconds["with"], seconds["without"], strict=True)]
    medians = ", ".join(f"{name} {statistics.median(spent):.2f} s" for name, spent in seconds.items())
    print(
        f"\n{options.answers} answers that need the algebra, {options.hostile} hostile ones among them: {medians}; "
        f"with / without: {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}], in processor time "
        f"{processor['with'] / processor['without']:.2f}\n"
        f"hostile: {hostile_rewards.count(0.0)} rewards of 0, {hostile_rewards.count(None)} without a verdict, "
        f"{hostile_rewards.count(1.0)} of 1; all others as without them"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hostile", type=int, default=20, help="hostile answers among the others")
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
    among_hostile(options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
