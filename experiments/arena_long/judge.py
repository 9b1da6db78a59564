"""
The table of README.md, and its expectations one by one: `python experiments/arena_long/judge.py`.

Prints Markdown. Means over the seeds that have run whole, with 95 % intervals; differences are to DAPO of their seed.
"""

from pathlib import Path

import pandas

from trl_ces.lab.study.comparison import estimate

MEASURES = {"accuracy": 100, "length_tokens": 1}
BEFORE, BASELINE = "Before training", "DAPO"
CES = ["CES", "CES, a third", "CES, capped", "CES, correct answers only", "CES and MAI, correct answers only"]
CES += ["CES and ALP"]
LENGTH_REWARDS = ["Kimi", "Arora", "ALP", "linear", "ShorterBetter", "LASER", "LASER-D", "MAI", "MAI, GDPO"]
LENGTH_REWARDS += ["SmartThinker", "SmartThinker, a third", "GRPO-LEAD", "ACOER", "Toggle", "GR3"]
ENTROPY_RULES = ["Entropy Advantage", "entropy bonus", "adaptive entropy", "clip control", "top entropy"]
ENTROPY_RULES += ["Clip-Cov", "KL-Cov", "STARE", "REPO-R"]


def read(file: Path) -> pandas.DataFrame:
    """(measure, method) of each seed that has every method."""
    rows = pandas.read_csv(file)
    return rows.pivot(index="seed", columns="method", values=["accuracy", "length_tokens", "area"]).dropna()


def main() -> None:
    wide = read(Path(__file__).with_name("results.csv"))
    methods = [name for name in wide["accuracy"] if name != BEFORE]
    gained, longer = (
        wide[measure].sub(wide[measure][BASELINE], axis=0).mean() for measure in ("accuracy", "length_tokens")
    )
    points, area = 100 * gained, 100 * wide["area"].mean()
    ruined = wide["accuracy"][methods].lt(wide["accuracy"][BEFORE] / 2, axis=0).sum()
    print(
        "| method | Acc, % | Len, tokens | Δ Acc, points | Δ Len, tokens | area | ruined | worst run - DAPO, points |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name in [BEFORE, *sorted(methods, key=lambda name: -area[name])]:
        cells = [f"{100 * wide['accuracy'][name].mean():.1f}", f"{wide['length_tokens'][name].mean():.1f}"]
        apart = [scale * (wide[measure][name] - wide[measure][BASELINE]) for measure, scale in MEASURES.items()]
        compared = name not in (BEFORE, BASELINE)
        cells += [estimate(list(values)).text(1, 1, signed=True) if compared else "" for values in apart]
        cells += [f"{area[name]:.1f}", f"{ruined[name]}" if name != BEFORE else ""]
        cells += [f"{apart[0].min():+.1f}" if compared else ""]
        print(f"| {name} | {' | '.join(cells)} |")
    print()
    arena = pandas.read_csv(Path(__file__).parents[1] / "arena" / "results.csv")
    arena = arena[arena["variant"] == "mostly right"].groupby("method")["area"].mean().drop(BEFORE)
    clauses = [*expectations(points, longer, area[methods], ruined, arena), *expectations_of_five_seeds(wide, ruined)]
    for text, holds in clauses:
        print("-", "holds:" if holds else "FAILS:", text)


def listed(values: pandas.Series) -> str:
    return ", ".join(f"{name} {value:+.1f}" for name, value in values.sort_values().items()) or "none"


def expectations(points, tokens, area, ruined, arena):
    """What README.md expects, in its order: text with figures, and whether it came so."""
    long, lost = tokens[CES][tokens[CES] > -5], points[CES][points[CES] < -2]
    yield (
        f"1 CES less than 5 tokens shorter: {listed(long)}; over 2 points below: {listed(lost)}",
        long.empty and lost.empty,
    )
    only, best = points["CES, correct answers only"], points[LENGTH_REWARDS].idxmax()
    yield (
        f"2 correct answers only {only:+.1f} points; of length rewards {best} {points[best]:+.1f}",
        only >= max(1, points[best]),
    )
    short, own = (tokens[LENGTH_REWARDS] <= -10).sum(), points[LENGTH_REWARDS]
    yield f"3 at least 10 tokens shorter: {short} of {len(own)} length rewards (12 expected)", short >= 12
    low = own[own < -3]
    yield f"3 over 3 points below DAPO: {listed(low)}", set(low.index) <= {"Kimi", "MAI, GDPO"}
    yield f"3 GDPO {own['MAI, GDPO']:+.1f} points, expected -10 or less", own["MAI, GDPO"] <= -10
    yield f"4 the largest area is that of {area.idxmax()}", area.idxmax() == "on-policy SFT"
    away = [name for name in ENTROPY_RULES if abs(points[name]) > 3 or (name != "REPO-R" and abs(tokens[name]) > 5)]
    longer = tokens["REPO-R"] > 0
    yield (
        f"5 beyond 3 points or 5 tokens: {', '.join(away) or 'none'}; REPO-R {tokens['REPO-R']:+.1f}",
        longer and not away,
    )
    runs = {name: int(count) for name, count in ruined.items() if count}
    yield f"6 ruined runs: {runs or 'none'}", set(runs) <= {"MAI, GDPO"}
    rank = area[arena.index].corr(arena, method="spearman")
    yield f"7 rank correlation of the areas with the mostly right world's: {rank:.2f} (0.6 expected)", rank >= 0.6


def expectations_of_five_seeds(wide, ruined):
    """The clauses written down before seeds 2 to 4."""
    shorter, above = (
        sign * wide[measure][CES].sub(wide[measure][BASELINE], axis=0) > 0
        for measure, sign in (("length_tokens", -1), ("accuracy", 1))
    )
    least = f"{shorter.sum().min()} of {len(wide)} seeds, above it on {above.sum().min()}"
    yield f"8 the least form of CES is shorter than DAPO on {least}", shorter.all(axis=None) and above.sum().min() >= 4
    yield f"8 GDPO ruins {ruined['MAI, GDPO']} runs, expected one to three", 1 <= ruined["MAI, GDPO"] <= 3


if __name__ == "__main__":
    main()
