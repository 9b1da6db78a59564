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
PRICED = ["CES and ALP", "LASER-D", "MAI, GDPO", "ACOER", "Toggle", "QLPO", "DOT"]
LIMITED = ["on-policy SFT", "truncation", "DLER"]
PRICED += LIMITED
ENTROPY_RULES = ["Entropy Advantage", "entropy bonus", "adaptive entropy", "clip control", "top entropy"]
ENTROPY_RULES += ["Clip-Cov", "KL-Cov", "STARE", "REPO-R"]
THIRD, SHIPPED, TRIPLE = STRENGTHS = [", a third", "", ", three times"]


def main() -> None:
    rows = pandas.read_csv(Path(__file__).with_name("results.csv"))
    arena = pandas.read_csv(Path(__file__).parents[1] / "arena" / "results.csv").assign(machine=1)
    settings: dict[str, list[str]] = {}  # by method, the weaker first
    for name in rows["method"].unique():
        if name not in (BEFORE, BASELINE):
            begins = [method for method in arena["method"].unique() if name.startswith(f"{method}, ")]
            settings.setdefault(max(begins, key=len), []).append(name)
    keys = ["variant", "seed", "machine"]
    runs = pandas.concat([rows, arena[arena["method"].isin(list(settings))]])
    runs = runs[["method", *keys, "accuracy", "length_tokens"]]
    for name in (BEFORE, BASELINE):
        runs = runs.merge(runs[runs["method"] == name].drop(columns="method"), on=keys, suffixes=("", f" {name}"))
    runs["points"] = 100 * (runs["accuracy"] - runs[f"accuracy {BASELINE}"])
    runs["tokens"] = runs["length_tokens"] - runs[f"length_tokens {BASELINE}"]
    runs["ruined"] = (runs["accuracy"] < runs[f"accuracy {BEFORE}"] / 2).astype(float)
    runs = runs[~runs["method"].isin([BEFORE, BASELINE])]
    wide = runs.pivot(index=["variant", "seed"], columns="method", values=["points", "tokens", "ruined"])
    for measure, method in wide.columns:  # as shipped only where both other settings have run
        if method in settings:
            has_both = wide[measure][settings[method]].notna().all(axis=1)
            wide[measure, method] = wide[measure, method].where(has_both)
    gained, ruined = wide["points"], wide["ruined"]
    points, tokens = (wide[measure].groupby("variant").mean() for measure in ("points", "tokens"))
    worlds = " | ".join(f"{world}: points, tokens" for world in WORLDS)
    print(f"| method | strength | {worlds} | worst run, points | ruined | runs |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for method, (weaker, stronger) in settings.items():
        for name in (weaker, method, stronger):
            cells = [f"{points[name][world]:+.1f}, {tokens[name][world]:+.1f}" for world in WORLDS]
            last = f"{gained[name].min():+.1f} | {ruined[name].sum():.0f} | {gained[name].count()}"
            word = "as shipped" if name == method else name.removeprefix(f"{method}, ")
            print(f"| {method} | {word} | {' | '.join(cells)} | {last} |")
    print()
    scaled = [method for method, names in settings.items() if names[0].endswith(THIRD)]
    others = {method: names for method, names in settings.items() if method not in scaled}
    clauses = [*expectations(scaled, points, tokens, ruined), *expectations_of_others(others, points, tokens, ruined)]
    for text, holds in clauses:
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


def expectations_of_others(settings, points, tokens, ruined):
    """The clauses on methods without one number for their strength."""
    weaker, stronger = ({method: names[place] for method, names in settings.items()} for place in (0, 1))
    gained, longer = points.mean(), tokens.mean()
    bought = points.loc[TOKENS]
    below = sum(bought[weaker[name]] < 0 for name in PRICED)
    worse = sum(bought[stronger[name]] < bought[weaker[name]] for name in PRICED)
    yield f"7 the weaker setting is below DAPO in {below} of {len(PRICED)} (7 expected)", below >= 7
    yield f"7 the stronger one loses more in {worse} of {len(PRICED)} (7 expected)", worse >= 7
    for method in LIMITED:
        wide, tight = weaker[method], stronger[method]
        lost, apart = points[wide].min(), bought[wide] - bought[tight]
        yield f"8 {wide}: {lost:+.1f} points at worst, {longer[wide]:+.1f} tokens", lost >= -3 and longer[wide] < 0
        yield f"8 {tight}: {apart:.1f} points more lost than at 48, {TOKENS}", apart >= 5
    away = [weaker[name] for name in ENTROPY_RULES if abs(gained[weaker[name]]) > 3 or abs(longer[weaker[name]]) > 2]
    yield f"9 beyond 3 points or 2 tokens: {'; '.join(away) or 'none'}", len(away) <= 1
    small, large = settings["REPO-R"]
    apart = gained[large] - gained[small], longer[large] - longer[small]
    yield f"9 {large}: {apart[0]:+.1f} points, {apart[1]:+.1f} tokens to {small}", apart[0] < 0 < apart[1]
    name = stronger["Entropy Advantage"]
    yield f"10 {name}: {ruined[name].sum():.0f} runs ruined", not ruined[name].sum()
    few, many = stronger["GFPO"], weaker["GFPO"]
    yield f"11 {few}: {gained[few]:+.1f} points, {many}: {gained[many]:+.1f}", gained[few] < gained[many]
    names = [*weaker.values(), *stronger.values()]
    safe = [name for name in names if (points[name] >= -1).all() and (tokens[name] < 0).all()]
    yield (
        f"12 shorter and no more than 1 point below DAPO in all worlds: {'; '.join(safe) or 'none'}",
        set(safe) <= {weaker[method] for method in LIMITED},
    )
    lost = {name: int(ruined[name].sum()) for name in names if ruined[name].sum()}
    expected = {*settings["MAI, GDPO"], *settings["CES and ALP"], *(stronger[method] for method in LIMITED)}
    yield f"13 ruined runs: {lost or 'none'}", set(lost) <= expected


if __name__ == "__main__":
    main()
