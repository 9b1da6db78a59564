"""What experiments/forty_worlds, experiments/forty_more_worlds and README.md say of their worlds is so."""

import itertools
import math
import re

import pandas
import pytest
import yaml
from docs_blocks import EXPERIMENTS, ROOT

from trl_ces.lab.inspect.table import MOSTLY_WRONG
from trl_ces.lab.study.comparison import estimate

FIRST, SECOND = (
    next(page for page in EXPERIMENTS if page.parent.name == name) for name in ("forty_worlds", "forty_more_worlds")
)
RULE = "CES and MAI, correct answers only"
METHODS = ["Before training", "DAPO", RULE, "CES"]
LIMITED = "On-policy SFT, a limit"
RIVALS = ["CES, capped", "CES, correct answers only", "CES, correct answers only, a third", "MAI"]
PARTS = {"under 40 %": (0, 40), "40 to 60 %": (40, 60), "over 60 %": (60, 101), "all": (0, 101)}


def runs(*pages):
    """Of each world, method and seed: accuracy in % and length."""
    rows = pandas.concat(
        pandas.read_csv(page.with_name("results.csv")).assign(page=page.parent.name) for page in pages
    )
    rows = rows[rows["method"].isin(METHODS)]
    table = rows.pivot(index=["page", "variant"], columns=["method", "seed"], values=["accuracy", "length_tokens"])
    assert len(table) == 40 * len(pages)
    missing = table.isna().sum()
    assert missing[missing > 0].to_dict() == (
        {(measure, "CES", 1): 40 for measure in ("accuracy", "length_tokens")} if len(pages) == 2 else {}
    )
    if len(pages) == 1:
        table = table.droplevel("page")
    return 100 * table["accuracy"], table["length_tokens"]


def worlds(*pages):
    """Of each world and method: accuracy in % and length, means over its seeds; how many of its runs are ruined."""
    accuracy, length = runs(*pages)
    ruined = accuracy.lt(accuracy["Before training", 0] / 2, axis=0).T.groupby(level="method").sum().T
    return *(table.T.groupby(level="method").mean().T for table in (accuracy, length)), ruined


def said(differences):
    return estimate(list(differences)).text(1, 1, signed=True)


def part(name, *pages):
    """Of the worlds in one row of the tables: how many, and the cells of the rule and of CES."""
    accuracy, length, ruined = worlds(*pages)
    low, high = PARTS[name]
    inside = accuracy["Before training"].between(low, high, inclusive="left")
    own_accuracy, own_length = accuracy[inside], length[inside]
    cells = {
        method: (
            said(own_accuracy[method] - own_accuracy["DAPO"]),
            said(own_length[method] - own_length["DAPO"]),
            str(ruined[method][inside].sum()),
        )
        for method in (RULE, "CES")
    }
    return str(inside.sum()), cells


@pytest.mark.parametrize("file", [FIRST, SECOND], ids=lambda file: file.parent.name)
def test_the_page_has_every_run(file):
    accuracy, length = runs(file)
    page = file.read_text(encoding="utf-8")
    for world in accuracy.index:
        cells = [
            "; ".join(f"{accuracy[name, one][world]:.1f} %, {length[name, one][world]:.1f}" for one in accuracy[name])
            for name in METHODS
        ]
        assert f"| {world.removeprefix('world ')} | {' | '.join(cells)} |\n" in page


@pytest.mark.parametrize("name", PARTS)
def test_the_pages_and_readme_have_each_part(name):
    for page in (FIRST, SECOND):
        count, cells = part(name, page)
        row = " | ".join([name, count, *cells[RULE], *cells["CES"]])
        assert f"| {row} |\n" in page.read_text(encoding="utf-8")
    count, cells = part(name, FIRST, SECOND)
    (points, tokens, ruined), (paper, _, lost) = cells[RULE], cells["CES"]
    ran, low, high = runs(FIRST, SECOND)[0], *PARTS[name]
    inside = ran["Before training", 0].between(low, high, inclusive="left")
    of = {method: ran[method][inside].count().sum() for method in ("CES", RULE)}
    row = " | ".join([name, count, paper, f"{lost} of {of['CES']}", points, tokens, f"{ruined} of {of[RULE]}"])
    assert f"| {row} |\n" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_four_expectations_stand_as_the_page_says():
    accuracy, length, ruined = worlds(FIRST)
    points, tokens = accuracy[RULE] - accuracy["DAPO"], length[RULE] - length["DAPO"]
    ahead = accuracy["CES"] > accuracy["DAPO"]
    gain = (accuracy[RULE] - accuracy["CES"])[ahead].mean()
    assert ruined.sum()[[RULE, "DAPO"]].tolist() == [1, 0]
    [lost] = ruined.index[ruined[RULE] > 0]
    (before,), dapo, rule = ([f"{value:.1f}" for value in runs(FIRST)[0].loc[lost, name]] for name in METHODS[:3])
    whole = estimate(list(points))
    high = accuracy["Before training"][ruined["CES"] > 0]
    easy = accuracy["Before training"]["world 31":]
    text = " ".join(FIRST.read_text(encoding="utf-8").split())
    for sentence in (
        f"the lower end is {whole.mean - whole.half_width:.1f} points. The worst world is {points.min():.1f} "
        f"({points.idxmin()}), the best {points.max():+.1f}.",
        f"in {lost} the base model is correct in {before} %, and the rule's first seed ends at {rule[0]} %, below "
        f"half of it. Its second ends at {rule[1]} %, DAPO at {dapo[0]} and {dapo[1]} %.",
        f"The mean of the rule's two seeds there is {accuracy[RULE][lost]:.1f} %, of DAPO's "
        f"{accuracy['DAPO'][lost]:.1f} %.",
        f"over the {ahead.sum()} worlds in which CES is above DAPO the rule is {gain:.1f} points above CES.",
        f"shorter in {(tokens < 0).sum()} of the 40, from {tokens.min():.1f} to {tokens.max():+.1f} tokens.",
        f"CES ruins {(ruined['CES'] > 0).sum()} worlds, more than the 20 expected, and one of them has a base model "
        f"above 45 % ({high.idxmax()}, {high.max():.1f}).",
    ):
        assert sentence in text
    assert (high > 45).sum() == 1
    assert ((easy > 70).sum(), len(easy)) == (4, 10)


def test_the_second_try_passes_as_its_page_says():
    accuracy, length, ruined = worlds(SECOND)
    points, tokens = accuracy[RULE] - accuracy["DAPO"], length[RULE] - length["DAPO"]
    ahead, whole = accuracy["CES"] > accuracy["DAPO"], estimate(list(points))
    gain = (accuracy[RULE] - accuracy["CES"])[ahead].mean()
    base = accuracy["Before training"]
    lost, once = base[ruined["CES"] == 2], base[ruined["CES"] == 1]
    [(odd, began)] = once.items()
    gained = 100 * base_models(1) - accuracy["Before training"]
    assert ruined.sum()[[RULE, "DAPO"]].tolist() == [0, 0]
    assert whole.mean - whole.half_width > -1.5
    assert gain >= -1.5
    assert tokens.mean() <= 0
    assert (tokens < 0).sum() >= 30
    text = " ".join(SECOND.read_text(encoding="utf-8").split())
    for sentence in (
        f"the lower end is {whole.mean - whole.half_width:.1f} points. The worst world is {points.min():.1f} "
        f"({points.idxmin()}), the best {points.max():+.1f}.",
        f"over the {ahead.sum()} worlds in which CES is above DAPO the rule is {gain:+.1f} points from CES.",
        f"shorter in {(tokens < 0).sum()} of the 40, from {tokens.min():.1f} to {tokens.max():+.1f} tokens.",
        f"are correct in up to {-gained.min():.1f} points less ({gained.idxmin()}) and {gained.max():.1f} points more "
        f"({gained.idxmax()})",
        f"CES ruins {len(lost)} worlds with both seeds; the base model that is most often correct among them is so in "
        f"{lost.max():.1f} % ({lost.idxmax()}). With its second it ruins {odd}, too, whose base model was correct in "
        f"{began:.1f} % when it was first made, and in {100 * base_models(2)[odd]:.1f} % as this run had it.",
    ):
        assert sentence in text


def second_try(name):
    """Of a method's seeds, means over them by world: points and tokens from DAPO; its runs that are ruined."""
    rows = pandas.read_csv(SECOND.with_name("results.csv"))
    own = rows[rows["method"] == name]
    dapo = rows[(rows["method"] == "DAPO") & rows["seed"].isin(own["seed"])]
    assert own.groupby("seed").size().eq(40).all()
    ends, other = (each.groupby("variant")[["accuracy", "length_tokens"]].mean() for each in (own, dapo))
    bases = {time: base_models(time) for time in (0, 1, 2)}
    ruined = sum(row.accuracy < bases[time_of(name, row.seed)][row.variant] / 2 for row in own.itertuples())
    return 100 * (ends["accuracy"] - other["accuracy"]), ends["length_tokens"] - other["length_tokens"], ruined


def base_models(time):
    """The accuracies of the second forty's base models, made for the `time`-th time, from 0."""
    rows = pandas.read_csv(SECOND.with_name("results.csv"))
    accuracy = rows[rows["method"] == "Before training"].set_index("variant")["accuracy"]
    again = pandas.read_csv(SECOND.with_name("base_models_made_again.csv"), index_col="variant")
    accuracy.update(again[again["time"] == time]["accuracy"])
    return accuracy


def time_of(name, seed):
    """When the base model of a run was made again."""
    return 2 if name == LIMITED or (name in RIVALS and seed == 0) or (name == "CES" and seed == 1) else seed


def test_the_limit_is_twice_the_base_models_mean_length():
    study = yaml.safe_load(SECOND.with_name("study.yaml").read_text(encoding="utf-8"))
    rows = pandas.read_csv(SECOND.with_name("results.csv"))
    lengths = rows[rows["method"] == "Before training"].set_index("variant")["length_tokens"]
    limits = {world: changes["max_completion_length"] for world, changes in study["variants"].items()}
    assert limits == {world: min(128, math.ceil(2 * length)) for world, length in lengths.items()}
    given = [name for name, fields in study["methods"].items() if fields.get("max_completion_length") != 128]
    assert given == [LIMITED]


@pytest.mark.parametrize("name", [RULE, *RIVALS, LIMITED])
def test_the_second_page_compares_the_other_rules(name):
    points, tokens, ruined = second_try(name)
    cells = [
        said(points),
        f"{points.min():+.1f}",
        said(tokens),
        f"{tokens.max():+.1f}",
        str((tokens < 0).sum()),
        str(ruined),
    ]
    assert f"| {' | '.join([name, *cells])} |\n" in SECOND.read_text(encoding="utf-8")
    study = " ".join((ROOT / "docs" / "study.md").read_text(encoding="utf-8").split())
    mean, longer, count = said(points), said(tokens), (tokens < 0).sum()
    if name.endswith("a third"):
        text = f"is {mean} points and {longer} tokens from DAPO on the second forty worlds, at most {tokens.max():.1f}"
        assert f"{text} tokens longer." in study
    if name == "CES, correct answers only":
        text = f"on the second forty {mean} points, shorter in {count}, three learned to check without end"
        assert f"{text} | {points.min():.1f} points, {tokens.max():+.1f} tokens |" in study
        assert (tokens > 20).sum() == 3
    if name == LIMITED:
        assert (
            f"{mean} points, {longer} tokens, shorter in {count}; one world at 5 % ruined | {points.min():.1f}"
            in study
        )
        readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
        gain, less = mean.lstrip("+"), longer.lstrip("-")
        text = f"{gain} points above DAPO on the second forty, two seeds each, and {less} tokens"
        assert (
            f"{text} shorter (shorter in {count} of 40); {-points.min():.1f} points below in the worst world."
            in readme
        )
        rule, shorter, _ = second_try(RULE)
        base = worlds(SECOND)[0]["Before training"]
        parts = [said(points[place]) for place in (base > 60, base < 40, base.between(40, 60))]
        above, beyond = said(points - rule), said(tokens - shorter)
        page = " ".join(SECOND.read_text(encoding="utf-8").split())
        text = f"was {above[1:]} points less accurate there, and {beyond[1:]} tokens shorter. Most is gained over 60 %"
        assert f"{text} ({parts[0]}), least below 40 % ({parts[1]})" in readme
        assert f"13 **as expected**: {above} points and {beyond} tokens from the rule." in page
        assert f"{parts[0]} points over 60 % (12 worlds), {parts[2]} at 40 to 60 % (9), {parts[1]} below (19)" in page


def test_readme_counts_the_runs_that_check_without_end():
    rows = pandas.read_csv(SECOND.with_name("results.csv")).set_index(["variant", "seed"])
    dapo = rows[rows["method"] == "DAPO"]["length_tokens"]
    counts = {}
    for name in ("CES, correct answers only", "CES, correct answers only, a third"):
        longer = rows[rows["method"] == name]["length_tokens"] - dapo
        counts[name] = (longer.dropna() > 20).sum(), longer.notna().sum()
    assert list(counts.values()) == [(5, 80), (0, 40)]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "five of its 80 runs learned to check without end; at a third of its strength" in readme
    assert "`--ces_beta_correct 0.133`, none of 40 did." in readme


def test_the_trainer_warned_of_each_ruined_run_and_of_no_other():
    accuracy, _ = runs(SECOND)
    warned = pandas.read_csv(SECOND.with_name("warned.csv"), index_col=["variant", "seed"])["step"]
    lost = accuracy["CES"].lt(accuracy["Before training", 0] / 2, axis=0).stack()
    assert set(warned.index) == set(lost.index[lost])
    text = " ".join(SECOND.read_text(encoding="utf-8").split())
    assert f"in each of these {len(warned)} runs, at step {warned.min()} to {warned.max()} of 160" in text
    assert f"in none of the other {80 - len(warned)} of CES" in text


def test_ces_second_seed_ended_as_the_page_says():
    accuracy, _ = runs(SECOND)
    again, ends = 100 * base_models(2), accuracy["CES", 1]
    lost, change = ends < again / 2, (ends - accuracy["CES", 0]).mean()
    first = accuracy["CES", 0] < accuracy["Before training", 0] / 2
    text = " ".join(SECOND.read_text(encoding="utf-8").split())
    assert f"it ruins {lost.sum()}, all {(lost & first).sum()} of the first seed" in text
    assert f"ends {change:+.1f} points from it in the mean" in text
    assert f"The most accurate base model that it ruins is correct in {again[lost].max():.1f} %" in text
    assert f"the least accurate that it does not in {again[~lost].min():.1f} %" in text
    assert first.sum() == (lost & first).sum()


def test_the_choice_of_a_method_rests_on_the_worlds():
    accuracy, length, _ = worlds(FIRST, SECOND)
    base = accuracy["Before training"]
    points, tokens = accuracy[RULE] - accuracy["DAPO"], length[RULE] - length["DAPO"]
    able, strong = base >= 10, base > 60
    paper = (accuracy["CES"] - accuracy["DAPO"])[strong]
    ends = accuracy["DAPO"][~able]
    text = " ".join((ROOT / "docs" / "study.md").read_text(encoding="utf-8").split())
    for sentence in (
        f"in {(~able).sum()} of [eighty worlds](../experiments/forty_more_worlds/README.md), correct in "
        f"{base.min():.0f} to {base[~able].max():.0f} %, DAPO ended at {ends.min():.0f} to {ends.max():.0f} %",
        f"in {able.sum()} of the eighty: {said(points[able])} points, {said(tokens[able])} of "
        f"{length['DAPO'][able].mean():.1f} tokens, shorter in all | {points.min():.1f} points |",
        f"on the {strong.sum()} of the eighty over 60 %: {said(paper)} points | {paper.min():.1f} points |",
        f"is {said(points)} points from DAPO on them and {said(-tokens).lstrip('+')} tokens shorter, in "
        f"{(tokens < 0).sum()} of 80.",
    ):
        assert sentence in text
    assert (tokens[able] < 0).all()
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"it was shorter than DAPO in {(tokens < 0).sum()} of the 80, and {-points.min():.1f} points less" in readme


def test_inspects_threshold_is_where_ces_ruins():
    accuracy, _, ruined = worlds(FIRST, SECOND)
    thirty = pandas.read_csv(FIRST.parent.parent / "forecast" / "worlds.csv")
    lost = {method: [] for method in ("CES", "DAPO")}
    for method, counts in lost.items():
        own = thirty[thirty["method"] == method]
        gone = pandas.concat(
            [own["accuracy_after"] < own["accuracy_before"] / 2, ruined[method] > 0], ignore_index=True
        )
        low = (
            pandas.concat([own["accuracy_before"], accuracy["Before training"] / 100], ignore_index=True)
            < MOSTLY_WRONG
        )
        counts += [gone[low].sum(), gone[~low].sum()]
    text = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    assert lost == {"CES": [58, 2], "DAPO": [1, 0]}
    assert (low.sum(), (~low).sum()) == (61, 49)
    assert "ruined 58 of 61 small worlds there, DAPO one; from 50 % on two of 49." in text
    tutorial = " ".join((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8").split())
    assert (
        "Of 61 small models below 50.0 %, 58 lost more than half of their accuracy with CES at tau 0.2, "
        "one with DAPO; at 0.02 none of seven, without a gain." in tutorial
    )
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "over all 110 worlds it ruined 58 of the 61 below 50 %" in readme


@pytest.mark.parametrize(("file", "seed"), [(FIRST, 0), (SECOND, 1)], ids=["first", "second"])
def test_what_the_first_rollout_tells_of_ruin(file, seed):
    accuracy, _ = runs(file)
    logged = pandas.read_csv(file.with_name("first_rollout.csv"), index_col="variant")
    base = 100 * base_models(2) if file == SECOND else accuracy["Before training", 0]
    logged["wrong"] = -base
    lost = (accuracy["CES", seed] < base / 2)[logged.index]
    shares = []
    for name in ("sign_flip_share", "equal_reward_groups", "wrong"):
        pairs = list(itertools.product(logged[name][lost], logged[name][~lost]))
        shares.append(f"{100 * sum(one > other for one, other in pairs) / len(pairs):.0f} %")
    text = " ".join(file.read_text(encoding="utf-8").split())
    assert re.findall(r"in (\d+ %)", text[text.index("[first_rollout.csv]") :])[:3] == shares
    if file == SECOND:
        assert f"the first share does so in {shares[0]} only." in " ".join(FIRST.read_text(encoding="utf-8").split())
