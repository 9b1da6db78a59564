"""What experiments/thirty_worlds says of its runs is so."""

import itertools

import pandas
import pytest
import yaml
from docs_blocks import EXPERIMENTS

from trl_ces.lab.study.comparison import estimate

[PAGE] = (page for page in EXPERIMENTS if page.parent.name == "thirty_worlds")
RUNS = pandas.read_csv(PAGE.with_name("results.csv"))
ACCURACY = 100 * RUNS.pivot(index="variant", columns="method", values="accuracy")
LENGTH = RUNS.pivot(index="variant", columns="method", values="length_tokens")
BASE = ACCURACY["Before training"]
METHODS = [name for name in RUNS["method"].unique() if name not in ("Before training", "DAPO")]


def text():
    return " ".join(PAGE.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("name", METHODS)
def test_the_table_has_each_method(name):
    points, tokens = ACCURACY[name] - ACCURACY["DAPO"], LENGTH[name] - LENGTH["DAPO"]
    gain, longer = (estimate(list(values)).text(1, 1, signed=True) for values in (points, tokens))
    cells = [name, gain, f"{points.min():+.1f}", longer, f"{tokens.max():+.1f}", (tokens < 0).sum()]
    ruined = (ACCURACY[name] < BASE / 2).sum()
    assert f"| {' | '.join(map(str, [*cells, ruined]))} |" in text()


@pytest.mark.parametrize(
    ("name", "low", "high"), [("under 40 %", 0, 40), ("40 to 60 %", 40, 60), ("over 60 %", 60, 101)]
)
def test_the_table_by_the_base_models_accuracy(name, low, high):
    inside = BASE.between(low, high, inclusive="left")
    points = (ACCURACY["CES"] - ACCURACY["DAPO"])[inside]
    lost = [(ACCURACY[method] < BASE / 2)[inside].sum() for method in ("CES", "DAPO")]
    cells = [name, inside.sum(), estimate(list(points)).text(1, 1, signed=True), (points > 0).sum()]
    assert f"| {' | '.join(map(str, cells))} | {lost[0]}; {lost[1]} |" in text()


def test_every_world_has_its_run_of_each_method():
    assert ACCURACY.shape == (30, len(METHODS) + 2)
    assert not ACCURACY.isna().any(axis=None)


def test_ruin_and_the_first_rollout_are_as_the_page_says():
    lost = ACCURACY["CES"] < BASE / 2
    of_dapo = (ACCURACY["DAPO"] < BASE / 2).sum()
    logged = pandas.read_csv(PAGE.with_name("first_rollout.csv"), index_col="variant").assign(wrong=-BASE)
    shares = []
    for name in ("sign_flip_share", "equal_reward_groups", "wrong"):
        pairs = list(itertools.product(logged[name][lost], logged[name][~lost]))
        shares.append(f"{100 * sum(one > other for one, other in pairs) / len(pairs):.0f} %")
    said = text()
    assert f"CES ruins {lost.sum()} worlds, whose base models are correct in at most {BASE[lost].max():.1f} %" in said
    assert f"so in at least {BASE[~lost].min():.1f} %; DAPO ruins {of_dapo}, whose base model" in said
    longer = (LENGTH["CES, correct answers only"] - LENGTH["DAPO"]).nlargest(3)
    names = [world.removeprefix("world ") for world in sorted(longer.index)]
    ends = f"{longer.min():.0f} to {longer.max():.0f} tokens longer"
    assert f"worlds {names[0]}, {names[1]} and {names[2]} learn to check without end, and end {ends}" in said
    assert f"another in {shares[0]} of the pairs, `ces/shaped_share_equal_reward_groups` in {shares[1]}" in said
    assert f"the base model's accuracy in {shares[2]}" in said
    warned = logged["warned"].dropna()
    assert set(warned.index) == set(lost.index[lost])
    assert f"each of the {len(warned)} ruined runs of CES, at step {warned.min():.0f} to {warned.max():.0f} of" in said
    readme = " ".join((PAGE.parents[2] / "README.md").read_text(encoding="utf-8").split())
    again = estimate(list(ACCURACY["DAPO"] - ACCURACY["CES"])).text(1, 1)
    assert f"it lost 11.7 ± 5.4 points ({again} when they were run again)" in readme


def test_the_dose_by_tau_is_as_the_page_says():
    runs = pandas.read_csv(PAGE.with_name("tau.csv"))
    worlds, said = sorted(runs["variant"].unique()), text()
    weak = sorted(BASE.index[BASE < 40])
    assert worlds == weak[::2]
    drawn, again = (
        yaml.safe_load(PAGE.with_name(name).read_text(encoding="utf-8"))["variants"]
        for name in ("study.yaml", "tau.yaml")
    )
    assert again == {world: drawn[world] for world in worlds}
    taus = {"0.2": (ACCURACY["CES"][worlds], LENGTH["CES"][worlds])}
    for name, rows in runs.set_index("variant").groupby("method"):
        taus[name.removeprefix("CES, tau ")] = (100 * rows["accuracy"], rows["length_tokens"])
    assert {len(accuracy) for accuracy, _ in taus.values()} == {7}
    columns = [(BASE, None), (ACCURACY["DAPO"], None), *(taus[tau] for tau in ("0.02", "0.05", "0.1", "0.2"))]
    for world in worlds:
        cells = [f"{accuracy[world]:.1f}" for accuracy, _ in columns]
        assert f"| {world.removeprefix('world ')} | {' | '.join(cells)} |" in said
    for tau, (accuracy, length) in taus.items():
        lost = (accuracy < BASE[worlds] / 2).sum()
        gain = estimate(list(accuracy - ACCURACY["DAPO"][worlds])).text(1, 1, signed=True)
        longer = estimate(list(length - LENGTH["DAPO"][worlds])).text(1, 1, signed=True)
        assert f"at {tau} {lost} of seven are ruined, {gain} points and {longer} tokens from DAPO" in said
    lost = {tau: (accuracy < BASE[worlds] / 2).sum() for tau, (accuracy, _) in taus.items()}
    longer = estimate(list(taus["0.02"][1] - LENGTH["DAPO"][worlds])).text(1, 1, signed=True)
    readme = " ".join((PAGE.parents[2] / "README.md").read_text(encoding="utf-8").split())
    assert lost["0.2"] == 7
    assert lost["0.02"] == 0
    assert f"all at tau 0.2, {lost['0.1']} at 0.1, {lost['0.05']} at 0.05 and none at 0.02" in readme
    assert f"where it ended like DAPO, {longer} tokens from it" in readme
