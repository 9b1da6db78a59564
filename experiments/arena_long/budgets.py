"""
Accuracy within every token budget, of some methods: `python experiments/arena_long/budgets.py RUNS`.

`RUNS` is the study's `output_dir`; its models answer once more, with the evaluation's seed. Writes budgets.csv and
budgets.png beside itself; without `RUNS`, the picture alone.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas

HERE = Path(__file__).parent
SHOWN = [
    "Before training",
    "DAPO",
    "CES",
    "CES, correct answers only",
    "on-policy SFT",
    "Arora",
    "SmartThinker",
    "GFPO",
]
BUDGETS = range(80, 181, 4)


def curve(model: Path) -> list[float]:
    """Share of completions that are correct and at most so long, for each of BUDGETS."""
    from trl_ces.lab.tasks.arithmetic import arithmetic_accuracy_reward, load_problems
    from trl_ces.lab.tasks.arithmetic_evaluation import measure

    problems = load_problems("held_out", 200, 0, sums=5)
    found = measure(model, problems, num_samples=4, max_new_tokens=200).completions
    rows = [
        (len(text) + 1, arithmetic_accuracy_reward([text], [solution])[0])  # a token a character, and the end
        for solution, texts in zip(problems["solution"], found, strict=True)
        for text in texts
    ]
    return [sum(right for length, right in rows if length <= budget) / len(rows) for budget in BUDGETS]


def main() -> None:
    if sys.argv[1:]:
        from trl_ces.lab.study.cells import load_study

        rows = []
        for cell in load_study(HERE / "study.yaml", Path(sys.argv[1])).cells:
            if cell.method in SHOWN:
                model = cell.folder if cell.trained else Path(sys.argv[1]) / "base" / f"seed-{cell.seed}"
                shares = zip(BUDGETS, curve(model), strict=True)
                rows += [(cell.method, cell.seed, budget, share) for budget, share in shares]
        pandas.DataFrame(rows, columns=["method", "seed", "budget", "accuracy"]).to_csv(
            HERE / "budgets.csv", index=False
        )
    means = pandas.read_csv(HERE / "budgets.csv").groupby(["method", "budget"])["accuracy"].mean().unstack("budget")
    figure, axis = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
    for name in SHOWN:
        style = {"Before training": "k:", "DAPO": "k--"}.get(name, "-")
        axis.plot(means.columns, 100 * means.loc[name], style, label=name)
    axis.set(xlabel="token budget", ylabel="correct within it, %", title="Mean of five seeds")
    axis.legend(frameon=False)
    figure.savefig(HERE / "budgets.png", dpi=110)


if __name__ == "__main__":
    main()
