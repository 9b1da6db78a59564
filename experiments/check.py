"""
Recompute the numbers in docs/results.md and README.md: `python experiments/check.py`.

The script prints a table of paired differences to DAPO from each experiment's results.csv: points of accuracy, tokens,
and diverged runs. It fails if docs/results.md lacks a row of the table, or if an interval in the section "Does it
help?" of either page is not in the table, and prints these rows and intervals.
"""

import re
import sys
from pathlib import Path

import pandas
from scipy import stats

FOLDER = Path(__file__).parent
BEFORE, BASELINE = "Before training", "DAPO"
# Column -> names of its method in the experiments.
COLUMNS = {
    "CES": ("CES",),
    "CES, correct only": ("CES, correct answers only", "CES, correct completions only"),
    "CES, capped": ("CES, capped", "CES, both caps"),
    "on-policy SFT": ("On-policy SFT, a limit", "On-policy SFT", "on-policy SFT"),
}
ACCURACY_RANGES = {"under 40 %": (0, 0.4), "40 to 60 %": (0.4, 0.6), "over 60 %": (0.6, 1.01)}


def main() -> None:
    table = "\n".join([*table_rows(), "", *worst_rows()])
    print(table)
    results, readme = ((FOLDER.parent / name).read_text(encoding="utf-8") for name in ("docs/results.md", "README.md"))
    differences = [row for row in table.splitlines() if row not in results]
    for page in (results, readme):  # differences in the text, such as "11.5 ± 8.8", have no sign
        section = page.partition("## Does it help?")[2].partition("\n## ")[0]
        differences += [figure for figure in re.findall(r"\d+\.\d ± \d+\.\d", section) if figure not in table]
    if differences:
        sys.exit("docs/results.md or README.md does not match the results.csv files:\n" + "\n".join(differences))


def table_rows() -> list[str]:
    """Return the lines of the Markdown table."""
    rows = [
        "| experiment, variant or base accuracy | paired by | " + " | ".join(COLUMNS) + " |",
        "|---|---|" + "---|" * len(COLUMNS),
    ]
    dose = read("paper_dose") if (FOLDER / "paper_dose" / "results.csv").exists() else read("arithmetic_long").head(0)
    rows += [row(f"paper_dose, {name}", group, "seed") for name, group in dose.groupby("variant")]
    rows += [row(name, read(name), "seed") for name in ("arithmetic_long", "arithmetic", "smollm2_135m")]
    tasks = read("forty_more_worlds")
    before = tasks[tasks["method"] == BEFORE].set_index("variant")["accuracy"]
    for name, (low, high) in ACCURACY_RANGES.items():
        inside = before.index[(before >= low) & (before < high)]
        rows.append(row(f"forty_more_worlds, {name}", tasks[tasks["variant"].isin(inside)], "variant"))
    rows += [row(f"arena, {name}", group, "seed") for name, group in read("arena").groupby("variant", sort=False)]
    return rows


def worst_rows() -> list[str]:
    """Return a Markdown table of each method's worst task in forty_more_worlds, by the mean over seeds."""
    results = read("forty_more_worlds")
    means = results.groupby(["variant", "method"])[["accuracy", "length_tokens"]].mean().unstack("method")
    rows = ["| forty_more_worlds | Δ accuracy in the worst task, points | largest Δ length, tokens |", "|---|--:|--:|"]
    for column, names in COLUMNS.items():
        method = next(name for name in names if name in means["accuracy"])
        differences = [means[measure][method] - means[measure][BASELINE] for measure in ("accuracy", "length_tokens")]
        rows.append(f"| {column} | {100 * differences[0].min():+.1f} | {differences[1].max():+.1f} |")
    return rows


def read(experiment: str) -> pandas.DataFrame:
    """Read results.csv of an experiment."""
    results = pandas.read_csv(FOLDER / experiment / "results.csv")
    return results.assign(variant=results["variant"].astype(object).fillna(""))


def row(name: str, results: pandas.DataFrame, unit: str) -> str:
    """Format one row; intervals are over seeds, or over tasks if `unit` is `variant`."""
    trained = results[results["method"] != BEFORE]
    means = trained.groupby([unit, "method"])[["accuracy", "length_tokens"]].mean().unstack("method")
    base = results[results["method"] == BEFORE].groupby("variant")["accuracy"].mean()
    by_seed = results[results["method"] == BEFORE].set_index(["variant", "seed"])["accuracy"]
    cells = []
    for names in COLUMNS.values():
        method = next((name for name in names if name in means["accuracy"]), None)
        if method is None:
            cells.append("")
            continue
        differences = [
            (means[measure][method] - means[measure][BASELINE]).dropna() for measure in ("accuracy", "length_tokens")
        ]
        runs = trained[trained["method"] == method]
        # A base model that all seeds share was measured once.
        bases = [by_seed.get((run.variant, run.seed), base[run.variant]) for run in runs.itertuples()]
        diverged = (runs["accuracy"].to_numpy() < 0.5 * pandas.Series(bases).to_numpy()).sum()
        points, tokens = interval(100 * differences[0]), interval(differences[1])
        cells.append(f"{points}; {tokens}; {diverged}/{len(runs)}")
    units = {"seed": "seeds", "variant": "tasks"}[unit]
    return f"| {name} | {len(differences[0])} {units} | " + " | ".join(cells) + " |"


def interval(differences: pandas.Series) -> str:
    """Format the mean and the half-width of Student's 95 % interval."""
    half_width = stats.t.ppf(0.975, len(differences) - 1) * differences.sem()
    return f"{differences.mean():+.1f} ± {half_width:.1f}"


if __name__ == "__main__":
    main()
