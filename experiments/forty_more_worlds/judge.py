"""
Check expectations 1 to 4 of README.md against results.csv: `python experiments/forty_more_worlds/judge.py`.

By default, the script counts tasks that diverged in their mean over seeds; `--diverged runs` counts diverged runs.
"""

import argparse
from pathlib import Path

import pandas
from scipy import stats

RULE, BASELINE, PAPER, BEFORE = "CES and MAI, correct answers only", "DAPO", "CES", "Before training"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("results", nargs="?", default=Path(__file__).with_name("results.csv"))
    parser.add_argument(
        "--diverged",
        choices=["runs", "tasks"],
        default="tasks",
        help="count diverged runs, or tasks that diverged in their mean over seeds",
    )
    args = parser.parse_args()
    rows = pandas.read_csv(args.results)
    base = rows[rows["method"] == BEFORE].set_index("variant")["accuracy"]
    runs = rows[rows["method"] != BEFORE]
    final = runs
    if args.diverged == "tasks":
        final = runs.groupby(["variant", "method"], as_index=False)["accuracy"].mean()
    diverged = final["accuracy"] < final["variant"].map(base) / 2
    diverged_tasks = final[diverged].groupby("method")["variant"].agg(["nunique", "unique"])
    tasks = runs.groupby(["variant", "method"])[["accuracy", "length_tokens"]].mean().unstack("method").dropna()
    accuracy, length = 100 * tasks["accuracy"], tasks["length_tokens"]
    print(f"{len(tasks)} complete tasks, {len(runs)} runs; each method minus {BASELINE}, mean ± 95 %:")
    for method in accuracy:
        points, tokens = accuracy[method] - accuracy[BASELINE], length[method] - length[BASELINE]
        count = diverged_tasks["nunique"].get(method, 0)
        print(
            f"{method:36} {points.mean():+6.2f} ± {half_width(points):5.2f} points, worst {points.min():+6.1f}; "
            f"{tokens.mean():+6.2f} ± {half_width(tokens):5.2f} tokens, longest {tokens.max():+6.1f}; "
            f"shorter in {(tokens < 0).sum()}, diverged {count}"
        )
    base_accuracy = 100 * base[accuracy.index]
    for low, high in ((0, 40), (40, 60), (60, 101)):
        group = accuracy.index[(base_accuracy >= low) & (base_accuracy < high)]
        counts = final[diverged & final["variant"].isin(group)].groupby("method").size()
        print(f"base accuracy of {low} to {min(high, 100)} %: {len(group)} tasks")
        for method in (RULE, PAPER):
            points, tokens = (table.loc[group, method] - table.loc[group, BASELINE] for table in (accuracy, length))
            print(
                f"  {method:34} {points.mean():+6.1f} ± {half_width(points):4.1f} points, {tokens.mean():+5.1f} ± "
                f"{half_width(tokens):4.1f} tokens, diverged {counts.get(method, 0)}"
            )
    points, tokens = accuracy[RULE] - accuracy[BASELINE], length[RULE] - length[BASELINE]
    lower_end = points.mean() - half_width(points)
    only_rule = set(diverged_tasks["unique"].get(RULE, [])) - set(diverged_tasks["unique"].get(BASELINE, []))
    above = accuracy[PAPER] > accuracy[BASELINE]
    change = (accuracy[RULE] - accuracy[PAPER])[above].mean()
    expectations = {
        f"1 lower end of the interval: {lower_end:+.2f} points (required: above -1.5)": lower_end > -1.5,
        f"2 diverged with {RULE} but not with {BASELINE}: {sorted(only_rule) or 'no task'}": not only_rule,
        f"3 {change:+.2f} points from {PAPER} in the {above.sum()} tasks where {PAPER} beats {BASELINE}": change
        >= -1.5,
        f"4 {tokens.mean():+.2f} tokens, shorter in {(tokens < 0).sum()} of {len(tasks)}": tokens.mean() <= 0
        and (tokens < 0).sum() >= 0.75 * len(tasks),
    }
    for text, holds in expectations.items():
        print("holds" if holds else "FAILS", text)


def half_width(values: pandas.Series) -> float:
    """Return the half-width of Student's 95 % interval of the mean."""
    return float(stats.t.ppf(0.975, len(values) - 1) * values.sem())


if __name__ == "__main__":
    main()
