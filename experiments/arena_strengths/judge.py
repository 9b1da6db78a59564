"""
Three strengths side by side, and the expectations one by one: `python experiments/arena_strengths/judge.py`.

Prints Markdown. The arena has the strengths as shipped; differences are to DAPO of the same world and seed, on
the same machine.
"""

from pathlib import Path

import pandas

BEFORE, BASELINE = "Before training", "DAPO"
WRONG, TOKENS, RIGHT = WORLDS = ["mostly wrong", "tokens buy accuracy", "mostly right"]
CES, CAPPED, CORRECT_ONLY = UNPRICED = ["CES", "CES, capped", "CES, correct answers only"]
THIRD, SHIPPED, TRIPLE = STRENGTHS = [", a third", "", ", three times"]


def main() -> None:
    rows = pandas.read_csv(Path(__file__).with_name("results.csv"))
    arena = pandas.read_csv(Path(__file__).parents[1] / "arena" / "results.csv").assign(machine=1)
    methods = [name.removesuffix(THIRD) for name in rows["method"].unique() if name.endswith(THIRD)]
    keys = ["variant", "seed", "machine"]
    runs = pandas.concat([rows, arena[arena["method"].isin(methods)]])[["method", *keys, "accuracy", "length_tokens"]]
    for name in (BEFORE, BASELINE):
        runs = runs.merge(runs[runs["method"] == name].drop(columns="method"), on=keys, suffixes=("", f" {name}"))
    runs["points"] = 100 * (runs["accuracy"] - runs[f"accuracy {BASELINE}"])
    runs["tokens"] = runs["length_tokens"] - runs[f"length_tokens {BASELINE}"]
    runs["ruined"] = (runs["accuracy"] < runs[f"accuracy {BEFORE}"] / 2).astype(float)
    runs = runs[~runs["method"].isin([BEFORE, BASELINE])]
    wide = runs.pivot(index=["variant", "seed"], columns="method", values=["points", "tokens", "ruined"])
    for measure, method in wide.columns:  # as shipped only where both other strengths have run
        if method in methods:
            others = [wide[measure, method + strength].notna() for strength in (THIRD, TRIPLE)]
            wide[measure, method] = wide[measure, method].where(others[0] & others[1])
    gained, ruined = wide["points"], wide["ruined"]
    points, tokens = (wide[measure].groupby("variant").mean() for measure in ("points", "tokens"))
    worlds = " | ".join(f"{world}: points, tokens" for world in WORLDS)
    print(f"| method | strength | {worlds} | worst run, points | ruined | runs |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for method in methods:
        for strength, word in zip(STRENGTHS, ["a third", "as shipped", "three times"], strict=True):
            name = method + strength
            cells = [f"{points[name][world]:+.1f}, {tokens[name][world]:+.1f}" for world in WORLDS]
            last = f"{gained[name].min():+.1f} | {ruined[name].sum():.0f} | {gained[name].count()}"
            print(f"| {method} | {word} | {' | '.join(cells)} | {last} |")
    print()
    for text, holds in expectations(methods, points, tokens, ruined):
        print("-", "holds:" if holds else "FAILS:", text)


def expectations(methods, points, tokens, ruined):
    """Each clause of README.md's expectation with what came, and whether it holds."""
    priced = [name for name in methods if name not in UNPRICED]
    third, shipped, triple = (points.loc[TOKENS, [name + strength for name in priced]].array for strength in STRENGTHS)
    lose, keep, worse = (third <= -3).sum(), (third <= shipped / 2).sum(), (triple < shipped).sum()
    yield f"1 a third loses 3 points or more in {lose} of {len(priced)} (8 expected)", lose >= 8
    yield f"1 {keep} of {len(priced)} keep half of their loss (8 expected)", keep >= 8
    yield f"2 three times loses more than as shipped in {worse} of {len(priced)} (9 expected)", worse >= 9
    safe = [
        name + strength
        for name in priced
        for strength in STRENGTHS
        if (points[name + strength] >= -1).all() and (tokens[name + strength] < 0).all()
    ]
    yield f"3 shorter and no more than 1 point below DAPO in all worlds: {'; '.join(safe) or 'none'}", not safe
    means, lengths = ([table[CORRECT_ONLY + strength].mean() for strength in STRENGTHS] for table in (points, tokens))
    apart = max(abs(means[0] - means[1]), abs(means[2] - means[1]))
    yield f"4 {CORRECT_ONLY}: at most {apart:.1f} points from itself as shipped", apart <= 3
    yield (
        f"4 {CORRECT_ONLY}: {lengths[2] - lengths[0]:+.1f} tokens from a third to three times",
        lengths[2] < lengths[0],
    )
    yield f"5 {CES}: {points[CES + THIRD][WRONG]:+.1f} points at a third, {WRONG}", points[CES + THIRD][WRONG] >= -5
    lost = ruined[CES + TRIPLE].loc[WRONG]
    yield f"5 {CES}: {lost.sum():.0f} of {len(lost)} runs ruined at three times, {WRONG}", lost.all()
    lost = ruined[[CAPPED + THIRD, CAPPED + TRIPLE]].to_numpy().sum()
    yield f"6 {CAPPED}: {lost:.0f} runs ruined at a third or three times", lost == 0


if __name__ == "__main__":
    main()
