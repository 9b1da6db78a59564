"""What experiments/forty_worlds says of the worlds that have run is so."""

import pandas
from docs_blocks import EXPERIMENTS

from trl_ces.lab.study.comparison import estimate

PAGE = next(page for page in EXPERIMENTS if page.parent.name == "forty_worlds")
RULE = "CES and MAI, correct answers only"


def test_the_page_says_what_its_rows_say():
    rows = pandas.read_csv(PAGE.with_name("rows_so_far.csv"))
    table = rows.pivot(index="variant", columns="method", values=["accuracy", "length_tokens"])
    accuracy, length, page = 100 * table["accuracy"], table["length_tokens"], PAGE.read_text(encoding="utf-8")
    text, methods = " ".join(page.split()), ["Before training", "DAPO", RULE, "CES"]
    for world in table.index:
        cells = [f"{accuracy[name][world]:.1f} %, {length[name][world]:.1f}" for name in methods]
        assert f"| {world.removeprefix('world ')} | {' | '.join(cells)} |\n" in page
    minus = {name: (accuracy[name] - accuracy["DAPO"], length[name] - length["DAPO"]) for name in (RULE, "CES")}
    said = {name: [estimate(list(one)).text(1, 1, signed=True) for one in both] for name, both in minus.items()}
    points, tokens = minus[RULE]
    assert (
        f"The rule minus DAPO is {said[RULE][0]} points (95 %, from {points.min():+.1f} to {points.max():+.1f}) and "
        f"{said[RULE][1]} tokens (from {tokens.min():+.1f} to {tokens.max():+.1f}); it is shorter in "
        f"{(tokens < 0).sum()} of the {len(table)}. "
        f"CES minus DAPO is {said['CES'][0]} points and {said['CES'][1]} tokens."
    ) in text
    ruined = accuracy.lt(accuracy["Before training"] / 2, axis=0)
    assert ruined.sum()[[RULE, "DAPO"]].tolist() == [1, 0]
    [world] = ruined.index[ruined[RULE]]
    before, ends, rule = (f"{accuracy[name][world]:.1f}" for name in ("Before training", "DAPO", RULE))
    assert (
        f"{world}, where the base model is correct in {before} %, DAPO ends at {ends} and the rule at {rule}." in text
    )
    highest = accuracy["Before training"][ruined["CES"]].max()
    assert highest < 46
    assert f"CES ruins {ruined['CES'].sum()} of the {len(table)}, all with base models below 46 %; DAPO none." in text
