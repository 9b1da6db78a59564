"""What experiments/arena and README.md say of the arena's runs is so."""

import re
import runpy
import sys

import pandas
import pytest
from docs_blocks import EXPERIMENTS, ROOT, words_of
from scipy import stats

from trl_ces.lab.study.cells import load_study
from trl_ces.lab.study.comparison import estimate

PAGE = next(page for page in EXPERIMENTS if page.parent.name == "arena")
STRENGTHS, LONG = (PAGE.parent.with_name(name) / "README.md" for name in ("arena_strengths", "arena_long"))
WORLDS = ["mostly wrong", "tokens buy accuracy", "mostly right"]
BEFORE = "Before training"


@pytest.fixture(scope="module")
def runs():
    """Of each world and seed, and of each measure and method; seeds that have every run."""
    study = load_study(PAGE.with_name("study.yaml"))
    rows = pandas.read_csv(PAGE.with_name("results.csv"))
    assert not rows.duplicated(["variant", "method", "seed"]).any()
    whole = rows.groupby("seed").size() == len(study.cells) / 5
    rows = rows[rows["seed"].isin(whole.index[whole])]
    assert set(rows["method"]) == {cell.method for cell in study.cells}
    return rows.pivot(index=["variant", "seed"], columns="method", values=["accuracy", "length_tokens", "area"])


def test_the_table_follows_from_the_runs(runs):
    lines = re.findall(r"^\| (.+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    table = {cells[0]: cells[2:] for cells in (line.split(" | ") for line in lines)}
    accuracy, length = 100 * runs["accuracy"], runs["length_tokens"]
    assert set(accuracy) < set(table)
    for method in accuracy:
        cells = [f"{accuracy[method][world].mean():.1f}, {length[method][world].mean():.1f}" for world in WORLDS]
        gained, longer = accuracy[method] - accuracy["DAPO"], length[method] - length["DAPO"]
        if method not in (BEFORE, "DAPO"):
            means = [values.unstack("variant").mean(axis=1) for values in (gained, longer)]
            cells += [estimate(list(values)).text(1, 1, signed=True) for values in means]
        else:
            cells += ["", ""]
        cells.append(f"{100 * runs['area'][method].mean():.1f}")
        ruined = (accuracy[method] < accuracy[BEFORE] / 2).sum()
        cells += ["", ""] if method == BEFORE else [str(ruined), "" if method == "DAPO" else f"{gained.min():+.1f}"]
        assert [cell.strip() for cell in table[method]] == cells, method


@pytest.mark.parametrize(("page", "count"), [(PAGE, 12), (STRENGTHS, 23), (LONG, 11)])
def test_the_page_has_every_verdict_of_its_judge(page, count, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["judge.py"])
    runpy.run_path(str(page.with_name("judge.py")), run_name="__main__")
    verdicts = [line for line in capsys.readouterr().out.splitlines() if line.startswith("- ")]
    assert len(verdicts) == count
    for verdict in verdicts:
        assert verdict in words_of(page)


def test_readme_and_docs_say_what_the_runs_give(runs):
    accuracy, length = 100 * runs["accuracy"], runs["length_tokens"]
    points, tokens = (table.sub(table["DAPO"], axis=0) for table in (accuracy, length))
    bought = points.loc["tokens buy accuracy"].mean(), tokens.loc["tokens buy accuracy"].mean()
    only, priced = "CES, correct answers only", "CES and MAI, correct answers only"
    assert (points.groupby("variant").mean()[only] >= 0).all()
    readme = (
        f"`ces_mai` ended {-bought[0][priced]:.1f} points below DAPO, and all 14 length rewards lost. "
        f"`ces_correct_only` ended {bought[0][only]:.1f} points above DAPO, {bought[1][only]:.1f} tokens longer, "
        "and lost on average in none of the three worlds"
    )
    assert readme in words_of(ROOT / "README.md")
    cells = load_study(PAGE.with_name("study.yaml")).cells
    priced_alone = {
        cell.method
        for cell in cells
        if "_length_reward" in str(cell.recipe["reward_funcs"]) and "CES" not in cell.method
    }
    assert len(priced_alone) == 14
    assert (bought[0][[*priced_alone]] < 0).all()

    def over_seeds(method):
        means = [table[method].unstack("variant").mean(axis=1) for table in (points, tokens)]
        return [estimate(list(values)).text(1, 1, signed=True) for values in means]

    study = words_of(ROOT / "docs" / "study.md")
    assert "`ces_correct_only` ({} points, {} tokens)".format(*over_seeds(only)) in study
    for overlay, method in {"on_policy_sft": "on-policy SFT", "dler": "DLER"}.items():
        assert "`{}` ({}, {})".format(overlay, *over_seeds(method)) in study
    shorter = (tokens.groupby("variant").mean() < 0).all() & (points.groupby("variant").mean().mean() >= 0)
    assert set(shorter.index[shorter]) == {"on-policy SFT", "DLER"}
    assert points.groupby("variant").mean().mean().idxmax() == only
    in_world = [table.loc["tokens buy accuracy"] for table in (points, tokens)]
    gained, longer, lost = (
        estimate(list(values)).text(1, 1, signed=True)
        for values in (in_world[0][only], in_world[1][only], in_world[0][priced])
    )
    row = f"| {gained} points, {longer} tokens; `ces_mai` {lost} points ([arena](../experiments/arena/README.md)) |"
    assert f"{row} {in_world[0][only].min():+.1f} points |" in study


def test_the_table_of_long_answers_follows_from_the_runs():
    runs = pandas.read_csv(LONG.with_name("results.csv"))
    text = LONG.read_text(encoding="utf-8")
    dapo = runs[runs["method"] == "DAPO"].set_index("seed")
    assert runs.groupby("seed")["method"].nunique().tolist() == [38] * len(dapo)
    before = runs[runs["method"] == BEFORE].set_index("seed")["accuracy"]
    for method, own in runs.set_index("seed").groupby("method"):
        gained = 100 * (own["accuracy"] - dapo["accuracy"])
        apart = gained, own["length_tokens"] - dapo["length_tokens"]
        half = [stats.t.ppf(0.975, len(dapo) - 1) * values.std() / len(dapo) ** 0.5 for values in apart]
        compared = method not in (BEFORE, "DAPO")
        cells = [f"{100 * own['accuracy'].mean():.1f}", f"{own['length_tokens'].mean():.1f}"]
        cells += [
            f"{values.mean():+.1f} ± {width:.1f}" if compared else ""
            for values, width in zip(apart, half, strict=True)
        ]
        ruined = "" if method == BEFORE else str((own["accuracy"] < before / 2).sum())
        cells += [f"{100 * own['area'].mean():.1f}", ruined, f"{gained.min():+.1f}" if compared else ""]
        assert f"| {method} | {' | '.join(cells)} |" in text, method
    within = 100 * pandas.read_csv(LONG.with_name("budgets.csv")).groupby(["method", "budget"])["accuracy"].mean()
    shares = [f"{within[name, 96]:.1f} %" for name in ("CES", "on-policy SFT", "Arora", "SmartThinker", "DAPO")]
    said = "CES is correct in {}, on-policy SFT in {}, Arora in {}, SmartThinker in {}, DAPO in {}"
    assert said.format(*shares) in words_of(LONG)
    ces = runs[runs["method"] == "CES"].set_index("seed")
    shorter = estimate(list(dapo["length_tokens"] - ces["length_tokens"])).text(1, 1)
    gained = estimate(list(ces["accuracy"] - dapo["accuracy"])).text(100, 1)
    said = f"by {shorter} of {dapo['length_tokens'].mean():.1f}, with {gained} points gained ([arena_long]"
    assert said in words_of(ROOT / "docs" / "study.md")


def test_the_table_of_strengths_follows_from_the_runs():
    own, arena = (pandas.read_csv(page.with_name("results.csv")) for page in (STRENGTHS, PAGE))
    rows = {
        (row.method, row.variant, row.seed, row.machine): (100 * row.accuracy, row.length_tokens)
        for row in [*own.itertuples(), *arena.assign(machine=1).itertuples()]
    }
    settings = {}
    for name in own["method"].unique():
        if name not in (BEFORE, "DAPO"):
            method = max((known for known in arena["method"] if name.startswith(f"{known}, ")), key=len)
            settings.setdefault(method, []).append(name)
    assert len(settings) == 34
    found = {}
    for method, (weaker, stronger) in settings.items():
        seeds = {seed for name, _, seed, _ in rows if name == weaker}
        for name in (weaker, method, stronger):
            word = name.removeprefix(f"{method}, ") if name != method else "as shipped"
            cells, worst, ruined, count = [], [], 0, 0
            for world in WORLDS:
                places = [(*place,) for own_name, *place in rows if own_name == name]
                places = [place for place in places if place[0] == world and place[1] in seeds]
                pairs = [(rows[name, *place], rows["DAPO", *place]) for place in places]
                points = [run[0] - dapo[0] for run, dapo in pairs]
                tokens = [run[1] - dapo[1] for run, dapo in pairs]
                cells.append(f"{sum(points) / len(pairs):+.1f}, {sum(tokens) / len(pairs):+.1f}")
                ruined += sum(rows[name, *place][0] < rows[BEFORE, *place][0] / 2 for place in places)
                worst, count = [*worst, *points], count + len(pairs)
            cells += [f"{min(worst):+.1f}", str(ruined), str(count)]
            assert f"| {method} | {word} | {' | '.join(cells)} |\n" in STRENGTHS.read_text(encoding="utf-8")
            found[method, word] = cells
    readme, study = words_of(ROOT / "README.md"), words_of(ROOT / "docs" / "study.md")
    third, shipped, triple = (found["CES", word] for word in ("a third", "as shipped", "three times"))
    assert third[-2:] == ["0", "15"]
    assert (
        f"None of 15 runs on the arena's worlds was ruined with a third of beta, {triple[-2]} with three times ("
        in readme
    )
    below = [cells[0].split(",")[0].lstrip("-") for cells in (shipped, third)]
    assert (
        f"ends {below[0]} points below DAPO, at a third of beta {below[1]}, and at three times all five runs" in study
    )
    points, tokens = zip(*(map(float, cell.split(", ")) for cell in found["SmartThinker", "a third"][:3]), strict=True)
    assert max(tokens) < 0
    assert f"DAPO and at most {-min(points):.1f} points below it in each of three worlds." in study


def test_a_limit_with_room_gains_what_the_pages_say():
    runs = pandas.read_csv(STRENGTHS.with_name("results.csv"))
    runs = runs[runs["machine"] == 2].set_index(["variant", "seed"])
    dapo, said = runs[runs["method"] == "DAPO"], {}
    for name in ("on-policy SFT, 48 tokens", "DLER, 48 tokens", "on-policy SFT, 24 tokens"):
        run = runs[runs["method"] == name]
        assert len(run) == 15
        points, tokens = run["accuracy"] - dapo["accuracy"], run["length_tokens"] - dapo["length_tokens"]
        means = (frame.groupby("seed").mean() for frame in (points, tokens))
        gained, longer = (estimate(list(mean)) for mean in means)
        said[name] = gained.text(100, 1), longer.text(1, 1).lstrip("-"), 100 * points.min()
        assert (tokens.groupby("variant").mean() < 0).all()
    (sft, shorter, worst), (dler, less, least), (tight, much, lowest) = said.values()
    page, readme = (words_of(file) for file in (STRENGTHS, ROOT / "README.md"))
    assert f"SFT ends {sft} points above DAPO and {shorter} tokens below it in the mean over the worlds, DLER" in page
    assert f"DLER {dler} and {less}: above and shorter in each world, and above in each of 15 runs" in page
    assert min(worst, least) > 0
    assert f"with 24 tokens: {tight} above, {much} shorter, {-lowest:.1f} points below in its worst run" in page
    assert f"it ended {sft} points above DAPO and {shorter} tokens shorter in the mean of the arena's three" in readme
    assert "In that world `on_policy_sft` gained 9.8 points with a limit of 48 tokens but lost 3.1 with 32." in readme
    rows = [row.split(" | ") for row in page.split("| on-policy SFT | ")[1:]]
    assert {row[0]: row[2].split(",")[0] for row in rows} == {
        "48 tokens": "+9.8",
        "as shipped": "-3.1",
        "24 tokens": "+4.1",
    }
    arena = pandas.read_csv(PAGE.with_name("results.csv")).set_index(["variant", "seed"])
    own = arena[arena["method"] == "DAPO"]["accuracy"]
    gains = {
        name: (rows["accuracy"] - own).groupby("seed").mean()
        for name, rows in arena[arena["method"].str.startswith("CES") | (arena["method"] == "on-policy SFT")].groupby(
            "method"
        )
    }
    shipped = estimate(list(gains.pop("on-policy SFT"))).text(100, 1)
    assert f"with 32 it gained {shipped}." in readme
    assert f"as shipped, with 32, it is {shipped} above" in page
    ran = pandas.read_csv(STRENGTHS.with_name("results.csv")).set_index(["variant", "seed", "machine"])
    dapos = ran[ran["method"] == "DAPO"]["accuracy"]
    gains |= {
        name: (rows["accuracy"] - dapos).groupby("seed").mean()
        for name, rows in ran[ran["method"].str.startswith("CES")].groupby("method")
    }
    assert len(gains) > 10
    assert max(gain.mean() for gain in gains.values()) < float(sft.split()[0]) / 100
