"""
The arena's table, and its expectations one by one: `python experiments/arena/judge.py [RESULTS.csv]`.

Prints Markdown. Means over seeds, a seed's three worlds together; differences to DAPO are paired by world and seed.
"""

import re
import sys
from pathlib import Path

import pandas
import yaml
from scipy import stats

RESULTS = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("results.csv")
ROOT = Path(__file__).parents[2]
BEFORE, BASELINE = "Before training", "DAPO"
WRONG, TOKENS, RIGHT = "mostly wrong", "tokens buy accuracy", "mostly right"
CORRECT_ONLY, WITH_MAI = "CES, correct answers only", "CES and MAI, correct answers only"
CES = ["CES", "CES, capped", CORRECT_ONLY, WITH_MAI, "CES and ALP"]
# Wrong completions keep their reward.
LEAVES_WRONG = [CORRECT_ONLY, WITH_MAI, "MAI", "Arora", "LASER", "LASER-D", "SmartThinker", "ACOER", "GR3", "Toggle"]
LENGTH_REWARDS = ["Kimi", "Arora", "ALP", "linear", "ShorterBetter", "LASER", "LASER-D", "MAI", "MAI, GDPO"]
LENGTH_REWARDS += ["SmartThinker", "GRPO-LEAD", "ACOER", "Toggle", "GR3"]
ENTROPY_RULES = ["Entropy Advantage", "entropy bonus", "adaptive entropy", "clip control", "top entropy"]
ENTROPY_RULES += ["Clip-Cov", "KL-Cov", "STARE", "REPO-R"]
SHORTEST = 17.7  # tokens, in the mostly right world


def main() -> None:
    rows = pandas.read_csv(RESULTS)
    methods = [name for name in rows["method"].unique() if name != BEFORE]
    wide = rows.pivot(index=["variant", "seed"], columns="method", values=["accuracy", "length_tokens", "area"])
    seeds = wide.groupby("seed").apply(lambda own: len(own) == 3 and not own.isna().any(axis=None))
    wide = wide[wide.index.get_level_values("seed").isin(seeds.index[seeds])]  # whole seeds only
    accuracy, length, area = 100 * wide["accuracy"], wide["length_tokens"], 100 * wide["area"]
    ruined = accuracy[methods].lt(accuracy[BEFORE] / 2, axis=0)
    print_table(methods, accuracy, length, area, ruined)
    means = [table.groupby("variant").mean() for table in (accuracy, length, area)]
    print()
    for text, holds in expectations(methods, *means, ruined):
        print("-", "holds:" if holds else "FAILS:", text)


def print_table(methods, accuracy, length, area, ruined) -> None:
    """The methods by the mean of their area, largest first; a cell of differences is mean ± 95 % over seeds."""
    print("| method | lines | " + " | ".join(f"{world}: Acc, Len" for world in (WRONG, TOKENS, RIGHT)), end=" | ")
    print("Δ Acc, points | Δ Len, tokens | area | ruined | worst run - DAPO, points |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    study = yaml.safe_load(Path(__file__).with_name("study.yaml").read_text(encoding="utf-8"))["methods"]
    for method in [BEFORE, *sorted(methods, key=lambda name: -area[name].mean())]:
        cells = [lines_of(study.get(method, {}).get("config"))]
        cells += [
            f"{accuracy[method][world].mean():.1f}, {length[method][world].mean():.1f}"
            for world in (WRONG, TOKENS, RIGHT)
        ]
        if method in (BEFORE, BASELINE):
            cells += ["", ""]
        else:
            cells += [over_seeds(table[method] - table[BASELINE]) for table in (accuracy, length)]
        cells += [f"{area[method].mean():.1f}"]
        cells += ["", ""] if method == BEFORE else [str(ruined[method].sum())]
        if method != BEFORE:
            cells += ["" if method == BASELINE else f"{(accuracy[method] - accuracy[BASELINE]).min():+.1f}"]
        print(f"| {method} | {' | '.join(cells)} |")


def lines_of(config: str | list[str] | None) -> str:
    """Lines of the method's files; empty where it is TRL's."""
    settings = {"shaping": "ces"} if config else {}
    for overlay in config[1:] if isinstance(config, list) else []:
        text = (ROOT / "recipes/methods" / f"{overlay}.yaml").read_text(encoding="utf-8")
        settings.update(yaml.safe_load(text))
    files = {f"methods/{word}" for word in re.findall(r"get_(\w+)_length_reward", str(settings.get("reward_funcs+")))}
    files |= {f"methods/{settings['shaping']}"} if settings.get("shaping", "none") != "none" else set()
    own = {"dot_alpha": "methods/dot", "whiten_over_tokens": "methods/dler"}
    own |= {"epsilon_high_target_entropy": "layers/entropy_control", "gfpo_keep": "methods/gfpo"}
    files |= {file for setting, file in own.items() if setting in settings}
    files |= {"methods/qlpo"} if settings.get("gfpo_metric") == "qlpo" else set()
    texts = [(ROOT / "trl_ces" / f"{file}.py").read_text(encoding="utf-8") for file in files]
    return str(sum(text.count("\n") for text in texts) or "")


def over_seeds(differences: pandas.Series) -> str:
    """Mean ± half of Student's 95 % interval over seeds, of a seed's mean over the worlds."""
    values = differences.groupby("seed").mean()
    return f"{values.mean():+.1f} ± {stats.t.ppf(0.975, len(values) - 1) * values.sem():.1f}"


def expectations(methods, accuracy, length, area, ruined):
    """What README.md expects, in its order: text with figures, and whether it came so. Tables are world by method."""
    gain = accuracy.sub(accuracy[BASELINE], axis=0)

    def listed(values: pandas.Series) -> str:
        return ", ".join(f"{name} {value:+.1f}" for name, value in values.sort_values().items()) or "none"

    own = gain.loc[WRONG]
    for names, margin in ((["CES", "CES and ALP"], -10), (["ALP"], -5)):
        yield f"1 {WRONG}: {listed(own[names])} points, expected {margin} or less", (own[names] <= margin).all()
    yield (
        f"1 {WRONG}: more than 3 points lost of those that leave wrong completions alone: "
        f"{listed(own[LEAVES_WRONG][own[LEAVES_WRONG] < -3])}",
        (own[LEAVES_WRONG] >= -3).all(),
    )
    count = ruined.sum()
    others = {name: int(number) for name, number in count.items() if number and name != "CES"}
    yield f"1 ruined runs of CES: {count['CES']}, of others: {others or 'none'}", not others
    own = gain.loc[TOKENS]
    kept = own[LENGTH_REWARDS][own[LENGTH_REWARDS] >= -3]
    yield f"2 {TOKENS}: length rewards within 3 points: {listed(kept)}", set(kept.index) == {"LASER-D", "Toggle"}
    worst = own[methods].nsmallest(3)
    most = set(worst.index) == {"Kimi", "GFPO", "truncation"} and (worst < -10).all()
    yield f"2 {TOKENS}: the three that lose most: {listed(worst)}; {listed(own[['Kimi', 'GFPO', 'truncation']])}", most
    lost = own[ENTROPY_RULES][own[ENTROPY_RULES] < -5]
    yield (
        f"2 {TOKENS}: entropy rules that lose over 5 points: {listed(lost)}; CES {own['CES']:+.1f}",
        lost.empty and own["CES"] < -5,
    )
    away = length.loc[RIGHT][LENGTH_REWARDS + CES] - SHORTEST
    yield f"3 {RIGHT}: over half a token from {SHORTEST}: {listed(away[away.abs() > 0.5])}", (away.abs() <= 0.5).all()
    best = accuracy.loc[RIGHT][methods].idxmax()
    yield f"3 {RIGHT}: the most accurate is {best}", best in (CORRECT_ONLY, WITH_MAI)
    shorter = length.lt(length[BASELINE], axis=0).all()
    both = [name for name in methods if shorter[name] and gain[name].mean() >= 0]
    yield (
        f"4 as accurate as {BASELINE} in the mean and shorter in all three: {', '.join(both) or 'none'}",
        both == [WITH_MAI],
    )
    for world in (RIGHT, WRONG):
        first = area.loc[world][methods].idxmax()
        yield f"5 {world}: the largest area is that of {first}", first in (CORRECT_ONLY, WITH_MAI)


if __name__ == "__main__":
    main()
