"""What experiments/forty_worlds says of the worlds that have run is so."""

import pandas
from docs_blocks import EXPERIMENTS

from trl_ces.lab.study.comparison import estimate

PAGE = next(page for page in EXPERIMENTS if page.parent.name == "forty_worlds")
RULE = "CES and MAI, correct answers only"


def test_the_page_says_what_its_rows_say():
    rows = pandas.read_csv(PAGE.with_name("rows_so_far.csv"))
    table = rows.pivot(index="variant", columns="method", values=["accuracy", "length_tokens"])
    accuracy, length, text = table["accuracy"], table["length_tokens"], " ".join(PAGE.read_text().split())
    for method in (RULE, "CES"):
        points, tokens = accuracy[method] - accuracy["DAPO"], length[method] - length["DAPO"]
        said = [estimate(list(points)).text(100, 1, signed=True), estimate(list(tokens)).text(1, 1, signed=True)]
        assert f"{said[0]} points" in text
        assert said[1] in text
    ruined = accuracy.lt(accuracy["Before training"] / 2, axis=0).sum()
    assert (len(table), ruined[RULE], ruined["CES"], ruined["DAPO"]) == (27, 1, 16, 0)
    assert (length[RULE] < length["DAPO"]).sum() == 26
