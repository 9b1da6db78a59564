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
from collections.abc import Iterable
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
    on_both = [*claims(table), *smollm2_accuracies(), no_divergence(table)]
    low_range, (worst, worst_in_readme) = lowest_range(more_pairs), worst_tasks()
    on_results = [*on_both, base_range(), low_range, worst, middle_range(table)]
    for page, statements in ((results, on_results), (readme, [*on_both, alternatives(table), worst_in_readme])):
        text = section(page, "Does it help?\n")
        mismatches += unknown_intervals(text, f"{table} {low_range if page is results else ''}")
        mismatches += [statement for statement in statements if statement not in text]
        if not text:
            mismatches.append('no section "## Does it help?"')
    text = section(results, "Which method to use\n") + section(results, "Does it help?\n")
    mismatches += [statement for statement in (ces_mai(), first_attempt()) if statement not in text]
    page = (FOLDER / "paper_dose" / "README.md").read_text(encoding="utf-8")
    for title, tables in (
        ("Results of CES\n", f"{table} {more_pairs}"),
        ("Results with both caps", f"{table} {from_ces}"),
        ("First runs", more_pairs),
    ):
        text = section(page, title)
        mismatches += unknown_intervals(text, tables)
        if not text:
            mismatches.append(f'paper_dose/README.md: no section "## {title.strip()}"')
    if mismatches:
        sys.exit("docs/results.md or README.md does not match the results.csv files:\n" + "\n".join(mismatches))


def section(page: str, title: str) -> str:
    """Return the section of `page` whose title starts with `title`, as one line."""
    return " ".join(page.partition(f"\n## {title}")[2].partition("\n## ")[0].split())


def unknown_intervals(text: str, tables: str) -> list[str]:
    """Return the intervals in `text` that are not in `tables`; "11.5 ± 8.8 tokens shorter" needs no sign."""
    known = set(re.findall(INTERVAL, tables))
    known |= {interval.lstrip("-+") for interval in known}
    return [interval for interval in re.findall(INTERVAL, text) if interval not in known]


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
    """Return what both pages state about diverged runs in paper_dose."""
    rows = [line for line in table.splitlines() if line.startswith("| paper_dose, ")]
    diverged = sum(map(int, re.findall(r"; (\d+)/", " ".join(rows))))
    return f"{diverged or 'No'} run{'s' * (diverged > 1)} diverged"


def base_range() -> str:
    """Return the range of base accuracies in paper_dose, as stated in docs/results.md."""
    results = read("paper_dose")
    base = results[results["method"] == BEFORE]["accuracy"]
    return f"base accuracy {100 * base.min():.0f} to {100 * base.max():.0f} %"


def lowest_range(more_pairs: str) -> str:
    """Return what docs/results.md states about CES in paper_dose's lowest range."""
    results = read("paper_dose")
    accuracy = results[results["variant"] == "10 to 20 %"].pivot(index="seed", columns="method", values="accuracy")
    lower = f"lower in {(accuracy['CES'] < accuracy[BASELINE]).sum()} of {len(accuracy)} pairs"
    points = re.search(rf"10 to 20 %, first runs and results.csv .+?({INTERVAL});", more_pairs)[1]
    return f"({lower}; {points} with four earlier pairs)"


def middle_range(table: str) -> str:
    """Return the count of diverged runs between 40 and 60 % in forty_more_worlds, as stated in docs/results.md."""
    diverged = re.search(r"forty_more_worlds, 40 to 60 % .+?; .+?; (\d+)/(\d+) ", table).groups()
    return "in {} of {} between 40 and 60 %".format(*diverged)


def alternatives(table: str) -> str:
    """Return what README.md states about the alternatives to CES below 40 % in forty_more_worlds."""
    line = re.search(r"forty_more_worlds, under 40 % .+", table)[0]
    cells = [cell.strip().split("; ") for cell in line.split("|")[3:6]]
    points, diverged = [cell[0] for cell in cells], [cell[2].split("/") for cell in cells]
    return (
        "differed from DAPO by {}, {} and {} points, ".format(*points)
        + "and {}, {} and {} of ".format(*(count for count, _ in diverged))
        + f"{diverged[0][1]} runs diverged"
    )


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
    cells = row("", read("forty_more_worlds"), "variant", columns=(("CES and MAI, correct answers only",),))
    points, tokens, diverged = cells.split("|")[3].strip().split("; ")
    return f"{points} points, {tokens} tokens, {diverged.replace('/', ' of ')} runs diverged"


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


def row(
    name: str,
    results: pandas.DataFrame,
    unit: str,
    baseline: str = BASELINE,
    columns: Iterable[tuple[str, ...]] = tuple(COLUMNS.values()),
) -> str:
    """Format one row; intervals are over seeds, or over tasks if `unit` is `variant`."""
    trained_runs = results[results["method"] != BEFORE]
    means = trained_runs.groupby([unit, "method"])[["accuracy", "length_tokens"]].mean().unstack("method")
    base = results[results["method"] == BEFORE].groupby("variant")["accuracy"].mean()
    base_by_seed = results[results["method"] == BEFORE].set_index(["variant", "seed"])["accuracy"]
    cells, counts = [], []
    for names in columns:
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
