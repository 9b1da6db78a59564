"""
Print the arena's table as Markdown: `python experiments/arena/judge.py [RESULTS.csv]`.

The table contains only the methods in study.yaml. Differences from DAPO are paired by task and seed; intervals are
over seeds.
"""

import sys
from pathlib import Path

import pandas
import yaml
from scipy import stats

RESULTS = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("results.csv")
BEFORE, BASELINE = "Before training", "DAPO"
TASKS = ["mostly wrong", "tokens buy accuracy", "mostly right"]
NOTES = {"DLER": "DLER, with token whitening"}


def main() -> None:
    study = yaml.safe_load(Path(__file__).with_name("study.yaml").read_text(encoding="utf-8"))
    rows = pandas.read_csv(RESULTS)
    methods = [name for name in rows["method"].unique() if name in study["methods"]]
    wide = rows.pivot(index=["variant", "seed"], columns="method", values=["accuracy", "length_tokens", "area"])
    accuracy, length, area = 100 * wide["accuracy"], wide["length_tokens"], 100 * wide["area"]
    diverged = accuracy[methods].lt(accuracy[BEFORE] / 2, axis=0)
    points, tokens = (table.sub(table[BASELINE], axis=0) for table in (accuracy, length))
    print("| method | " + " | ".join(f"{task}: Acc, Len" for task in TASKS), end=" | ")
    print("Δ Acc, points | Δ Len, tokens | area | diverged | worst run - DAPO, points |")
    print("|---|" + "--:|" * 8)
    for method in [BEFORE, *sorted(methods, key=lambda name: -area[name].mean())]:
        cells = [NOTES.get(method, method)]
        cells += [f"{accuracy[method][task].mean():.1f}, {length[method][task].mean():.1f}" for task in TASKS]
        is_compared = method not in (BEFORE, BASELINE)
        cells += [mean_over_seeds(points[method]), mean_over_seeds(tokens[method])] if is_compared else ["", ""]
        cells += [f"{area[method].mean():.1f}"]
        cells += [str(diverged[method].sum())] if method in diverged else [""]
        cells += [f"{points[method].min():+.1f}"] if is_compared else [""]
        print(f"| {' | '.join(cells)} |")


def mean_over_seeds(differences: pandas.Series) -> str:
    """Average over tasks; format the mean over seeds with the half-width of Student's 95 % interval."""
    values = differences.groupby("seed").mean()
    return f"{values.mean():+.1f} ± {stats.t.ppf(0.975, len(values) - 1) * values.sem():.1f}"


if __name__ == "__main__":
    main()
