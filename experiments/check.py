"""
Recompute the numbers in docs/results.md and README.md: `python experiments/check.py`.

For each experiment, the script prints the differences from DAPO in accuracy (points) and length (tokens), and the
number of diverged runs, computed from results.csv. For paper_dose, it also prints the differences from CES, and those
from DAPO together with the pairs in first_runs.csv. It fails and lists the mismatches if:

- docs/results.md lacks a row of the first table, or README.md a row of its own table;
- an interval in the "Does it help?" section of either page is in no table, or the section lacks one of the
  statements computed by the functions below;
- an interval in the results sections, or in the section on first runs, of paper_dose/README.md is in no table.
"""

import re
import sys
from pathlib import Path

import pandas
from pandas.api.typing import DataFrameGroupBy

from trl_ces.lab.study.comparison import estimate

FOLDER = Path(__file__).parent
BEFORE, BASELINE = "Before training", "DAPO"
# Column -> names that the experiments use for the method.
COLUMNS = {
    "CES": ("CES",),
    "CES, correct only": ("CES, correct answers only", "CES, correct completions only"),
    "CES, capped": ("CES, capped", "CES, both caps"),
    "on-policy SFT": ("On-policy SFT, a limit", "On-policy SFT", "on-policy SFT"),
}
INTERVAL = r"[-+]?\d+\.\d ± \d+\.\d"
ACCURACY_RANGES = {"under 40 %": (0, 0.4), "40 to 60 %": (0.4, 0.6), "over 60 %": (0.6, 1.01)}


def main() -> None:
    table, from_ces, more_pairs = ("\n".join(rows()) for rows in (table_rows, rows_from_ces, rows_with_first_runs))
    print(f"{table}\n\nDifferences from CES:\n\n{from_ces}\n\nWith the first runs:\n\n{more_pairs}")
    results, readme = ((FOLDER.parent / name).read_text(encoding="utf-8") for name in ("docs/results.md", "README.md"))
    mismatches = [row for row in table.splitlines() if row not in results.splitlines()]
    mismatches += [f"README.md: {row}" for row in readme_rows(table) if row not in readme.splitlines()]
    intervals = set(re.findall(INTERVAL, table))
    intervals |= {interval.lstrip("-+") for interval in intervals}  # pages have "11.5 ± 8.8 tokens shorter"
    all_intervals = set(re.findall(INTERVAL, f"{table}\n{from_ces}\n{more_pairs}"))
    all_intervals |= {interval.lstrip("-+") for interval in all_intervals}
    for page in (results, readme):
        section = page.partition("\n## Does it help?\n")[2].partition("\n## ")[0]
        text = " ".join(section.split())  # intervals and counts may be broken over two lines
        known = all_intervals if page is results else intervals
        mismatches += [interval for interval in re.findall(INTERVAL, text) if interval not in known]
        mismatches += [claim for claim in (*claims(table), *smollm2_accuracies()) if claim not in text]
        expected = (
            [base_range(), lower_accuracy(), worst_tasks()[0]]
            if page is results
            else [worst_tasks()[1], no_divergence(table)]
        )
        mismatches += [claim for claim in expected if claim not in text]
        if not section:
            mismatches.append('no section "## Does it help?"')
    text = " ".join(results.split())
    mismatches += [claim for claim in (ces_mai(), first_attempt()) if claim not in text]
    page = (FOLDER / "paper_dose" / "README.md").read_text(encoding="utf-8")
    results_of_ces = page.partition("\n## Results of CES")[2].partition("\n## Entropy")[0]
    text = " ".join((results_of_ces + page.partition("\n## First runs")[2].partition("\n## ")[0]).split())
    mismatches += [interval for interval in re.findall(INTERVAL, text) if interval not in all_intervals]
    if not text:
        mismatches.append("paper_dose/README.md has no results section")
    if mismatches:
        sys.exit("docs/results.md or README.md does not match the results.csv files:\n" + "\n".join(mismatches))


def table_rows() -> list[str]:
    """Return the lines of the Markdown table."""
    rows = [
        "| experiment, variant or base accuracy | paired by | " + " | ".join(COLUMNS) + " |",
        "|---|---|" + "---|" * len(COLUMNS),
    ]
    rows += [row(f"paper_dose, {name}", group, "seed") for name, group in by_variant("paper_dose")]
    rows += [row(f"smollm2_135m, {name}", group, "seed") for name, group in by_variant("smollm2_135m")]
    rows += [row(name, read(name), "seed") for name in ("arithmetic_long", "arithmetic")]
    tasks = read("forty_more_worlds")
    before = tasks[tasks["method"] == BEFORE].set_index("variant")["accuracy"]
    for name, (low, high) in ACCURACY_RANGES.items():
        variants = before.index[(before >= low) & (before < high)]
        rows.append(row(f"forty_more_worlds, {name}", tasks[tasks["variant"].isin(variants)], "variant"))
    rows += [row(f"arena, {name}", group, "seed") for name, group in by_variant("arena")]
    return rows


def readme_rows(table: str) -> list[str]:
    """Return the lines of README.md's table: differences of CES in paper_dose."""
    cells = re.findall(r"^\| paper_dose, (.+?) \| .+? \| (.+?); (.+?); \d+/\d+ \|", table, re.M)
    return ["| {} | {} | {} |".format(*row) for row in cells]


def claims(table: str) -> list[str]:
    """Return counts that both pages state in sentences: pairs with shorter completions, and diverged runs of CES."""
    results = read("paper_dose")
    lengths = results.pivot(index=["variant", "seed"], columns="method", values="length_tokens")
    differences = (lengths["CES"] - lengths[BASELINE]).dropna()
    ranges = "under 40 %|over 60 %"
    counts = re.findall(rf"^\| forty_more_worlds, (?:{ranges}) \| .+? \| .+?; .+?; (\d+)/(\d+) \|", table, re.M)
    [weak, strong] = [f"{diverged} of {runs}" for diverged, runs in counts]
    return [f" {(differences < 0).sum()} of {len(differences)} pairs", f" {weak} runs", f" {strong} "]


def no_divergence(table: str) -> str:
    """Return what README.md states about diverged runs in paper_dose."""
    rows = [line for line in table.splitlines() if line.startswith("| paper_dose, ")]
    diverged = sum(map(int, re.findall(r"; (\d+)/", " ".join(rows))))
    return f"{diverged or 'No'} run{'s' * (diverged > 1)} diverged"


def base_range() -> str:
    """Return the range of base accuracies in paper_dose, as stated in docs/results.md."""
    results = read("paper_dose")
    base = results[results["method"] == BEFORE]["accuracy"]
    return f"base accuracy {100 * base.min():.0f} to {100 * base.max():.0f} %"


def lower_accuracy() -> str:
    """Return how often CES is less accurate than DAPO in paper_dose's lowest range, as stated in docs/results.md."""
    results = read("paper_dose")
    accuracy = results[results["variant"] == "10 to 20 %"].pivot(index="seed", columns="method", values="accuracy")
    return f"lower in {(accuracy['CES'] < accuracy[BASELINE]).sum()} of {len(accuracy)} pairs"


def rows_from_ces() -> list[str]:
    """Return the rows of paper_dose with differences from CES instead of DAPO."""
    return [row(f"paper_dose, {name}", group, "seed", baseline="CES") for name, group in by_variant("paper_dose")]


def rows_with_first_runs() -> list[str]:
    """Return the rows of paper_dose for the pairs in first_runs.csv, alone and with those in results.csv."""
    first, results = pandas.read_csv(FOLDER / "paper_dose" / "first_runs.csv"), read("paper_dose")
    first["seed"] += 100  # the base models differ from those in results.csv
    results = results[results["method"].isin([BEFORE, BASELINE, "CES"])]
    lines = []
    for name, others in (
        ("first runs", results[:0]),
        ("first runs and seeds 4 to 7", results[results["seed"] >= 4]),
        ("first runs and results.csv", results),
    ):
        groups = pandas.concat([others, first]).groupby("variant", sort=False)
        lines += [row(f"paper_dose, {variant}, {name}", group, "seed") for variant, group in groups]
    return [line.replace(" seeds | ", " pairs | ", 1) for line in lines]


def smollm2_accuracies() -> list[str]:
    """Return the base accuracies of smollm2_135m, as stated on both pages."""
    results = read("smollm2_135m")
    base = 100 * results[results["method"] == BEFORE].groupby("variant")["accuracy"].mean()
    return [f"accuracy {base['as it is']:.0f} %, tau 0.03", f"warm-up ({base['after the warm-up']:.0f} %, tau 0.1)"]


def first_attempt() -> str:
    """Return which runs of paper_dose's first attempt diverged, as stated in docs/results.md."""
    runs = pandas.read_csv(FOLDER / "paper_dose" / "first_attempt.csv").query("learning_rate == 3e-4")
    accuracy = runs.pivot(index="variant", columns="method", values="accuracy")
    diverged = accuracy[["CES", BASELINE]].lt(0.5 * accuracy[BEFORE], axis=0)
    bases = [" and ".join(f"{base:.0f}" for base in 100 * accuracy[BEFORE][diverged[name]]) for name in diverged]
    return "CES diverged at {} % (DAPO did not), DAPO at {} %".format(*bases)


def ces_mai() -> str:
    """Return the result of `ces_mai` in forty_more_worlds, as stated in docs/results.md."""
    name = "CES and MAI, correct answers only"
    results = read("forty_more_worlds").pivot_table(
        index=["variant", "seed"], columns="method", values=["accuracy", "length_tokens"]
    )
    means = results.groupby("variant").mean()
    points, tokens = (estimate(means[m][name] - means[m][BASELINE]) for m in ("accuracy", "length_tokens"))
    accuracy = results["accuracy"][name]
    diverged = (accuracy < 0.5 * means["accuracy"][BEFORE].reindex(accuracy.index, level="variant")).sum()
    differences = f"{points.text(100, 1, signed=True)} points, {tokens.text(1, 1, signed=True)} tokens"
    return f"{differences}, {diverged} of {accuracy.count()} runs diverged"


def worst_tasks() -> tuple[str, str]:
    """Return the worst mean differences in a task of forty_more_worlds, as stated in docs/results.md and README.md."""
    results = read("forty_more_worlds")
    means = results.groupby(["variant", "method"])[["accuracy", "length_tokens"]].mean().unstack("method")
    methods = [next(name for name in names if name in means["accuracy"]) for names in COLUMNS.values()]
    loss, increase = (
        means[measure].sub(means[measure][BASELINE], axis=0) for measure in ("accuracy", "length_tokens")
    )
    losses, increases = (-100 * loss[methods].min()).tolist(), increase[methods].max().tolist()
    points = "CES lost {:.1f} points, `ces_correct_only` {:.1f}, `ces_capped` {:.1f} and on-policy SFT {:.1f}"
    tokens = "the largest length increases were {:.1f}, {:.1f}, {:.1f} and {:.1f} tokens"
    in_readme = "lost {1:.1f}, {2:.1f} and {3:.1f} points".format(*losses)
    return f"{points.format(*losses)}; {tokens.format(*increases)}", in_readme


def read(experiment: str) -> pandas.DataFrame:
    """Read an experiment's results.csv."""
    results = pandas.read_csv(FOLDER / experiment / "results.csv")
    return results.assign(variant=results["variant"].astype(object).fillna(""))


def by_variant(experiment: str) -> DataFrameGroupBy:
    """Split an experiment's results by variant, in the order of results.csv."""
    return read(experiment).groupby("variant", sort=False)


def row(name: str, results: pandas.DataFrame, unit: str, baseline: str = BASELINE) -> str:
    """Format one row; intervals are over seeds, or over tasks if `unit` is `variant`."""
    trained_runs = results[results["method"] != BEFORE]
    means = trained_runs.groupby([unit, "method"])[["accuracy", "length_tokens"]].mean().unstack("method")
    base = results[results["method"] == BEFORE].groupby("variant")["accuracy"].mean()
    base_by_seed = results[results["method"] == BEFORE].set_index(["variant", "seed"])["accuracy"]
    cells, counts = [], []
    for names in COLUMNS.values():
        method = next((name for name in names if name in means["accuracy"]), None)
        if method is None:
            cells.append("")
            continue
        differences = [
            (means[measure][method] - means[measure][baseline]).dropna() for measure in ("accuracy", "length_tokens")
        ]
        runs = trained_runs[trained_runs["method"] == method]
        # A base model that all seeds share was evaluated only once.
        bases = [base_by_seed.get((run.variant, run.seed), base[run.variant]) for run in runs.itertuples()]
        diverged = (runs["accuracy"].to_numpy() < 0.5 * pandas.Series(bases).to_numpy()).sum()
        points, tokens = (
            estimate(values).text(factor, 1, signed=True) for values, factor in zip(differences, (100, 1), strict=True)
        )
        cells.append(f"{points}; {tokens}; {diverged}/{len(runs)}")
        counts.append(len(differences[0]))
    units = {"seed": "seed", "variant": "task"}[unit] + "s" * (counts[0] > 1)
    return f"| {name} | {counts[0]} {units} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
