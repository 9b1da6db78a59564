"""docs/methods.md: its worked rows are what the functions give, its table has every recipe and every file."""

import re
from pathlib import Path

import pytest
import torch
from trl_ces.methods.covariance import token_covariances
from trl_ces.methods.dler import whitened
from trl_ces.methods.dot import dot_limits
from trl_ces.methods.gfpo import gfpo_rejected
from trl_ces.methods.qlpo import qlpo_rejected

from trl_ces import rewards
from trl_ces.methods.groups import Groups
from trl_ces.methods.rule import find_rule

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
RECIPES = ROOT / "recipes"


def tables():
    """Each table of the page as lists of cells, without its ruler."""
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, flags=re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


TABLES = list(tables())
OVERVIEW = next(table for table in TABLES if table[0][-1] == "recipe")
EXAMPLE = next(table for table in TABLES if table[0][0] == "completion")
WORKED = {table[0][0].strip("`"): {row[0]: row[1:] for row in table[1:]} for table in TABLES if "get_" in table[0][0]}


def example():
    lengths = torch.tensor([[int(cell) for cell in EXAMPLE[1][1:]]])
    correct = torch.tensor([[cell == "yes" for cell in EXAMPLE[2][1:]]])
    nothing = torch.zeros_like(correct)
    return Groups(correct, ~nothing, nothing, lengths, correct.float(), None, torch.tensor([0]))


@pytest.mark.parametrize("call", WORKED)
def test_a_worked_row_is_what_the_function_gives(call):
    reward = eval(call, vars(rewards))
    expected = reward.of_groups(example())[0].tolist()
    written = WORKED[call]["reward"]
    assert [float(cell) for cell in written] == pytest.approx(expected, abs=5e-5)
    digits = [len(cell.partition(".")[2]) for cell in written]
    assert [round(value, places) for value, places in zip(expected, digits, strict=True)] == [
        float(cell) for cell in written
    ]


def rows_of(heading):
    """A worked table's rows by name, as numbers; yes is 1, no is 0."""
    table = next(table for table in TABLES if table[0][0] == f"`{heading}`")
    words = {"yes": "1", "no": "0"}
    return {name: [float(words.get(cell, cell)) for cell in row] for name, *row in table[1:]}


def in_places(values):
    """The five tokens of the example's two completions, and a place of padding."""
    return torch.tensor([values[:3], [*values[3:], 0.0]])


@pytest.mark.parametrize("shaping", ["clip_cov", "kl_cov"])
def test_the_worked_tokens_are_those_of_the_token_rules(shaping):
    rows = rows_of(f"shaping: {shaping}")
    logps, old = in_places(rows["logp"]), in_places(rows.get("old logp", rows["logp"]))
    mask, advantages = in_places([1.0] * 5), in_places(rows["A"])[:, 0]
    batch = {"advantages": advantages, "logps": logps, "old_logps": old}
    settings = {
        "clip_cov": {"ratio": 1.0, "low": 1.0, "high": 5.0, "epsilon_low": 0.2, "epsilon_high": 0.28},
        "kl_cov": {"ratio": 0.4, "coef": 1.0},
    }
    shaped = find_rule(shaping).function(batch, logps, mask, **settings[shaping]).advantages[mask == 1]
    assert rows["A'"] == pytest.approx(shaped.tolist(), abs=5e-5)
    assert rows["cov"] == token_covariances(advantages, logps, mask)[mask == 1].tolist()
    if shaping == "clip_cov":
        assert rows["between 1 and 5"] == [float(1 < value < 5) for value in rows["cov"]]
    else:
        assert rows["ratio"] == pytest.approx((logps - old).exp()[mask == 1].tolist(), abs=5e-5)


def test_the_worked_tokens_are_those_of_stare_and_repo_r():
    mask = in_places([1.0] * 5)
    for name, settings in (
        ("stare", {"A'": {"ratio": 0.6, "weight": 1.1, "target": 0.3}}),
        ("repo_r", {f"A', zeta {zeta}": {"zeta": zeta, "target": None} for zeta in (0.01, -0.01)}),
    ):
        rows = rows_of(f"shaping: {name}")
        batch = {"advantages": in_places(rows["A"])[:, 0], "logps": in_places(rows["logp"])}
        for row, values in settings.items():
            shaped = find_rule(name).function(batch, mask, mask, **values, state={}).advantages[mask == 1]
            assert rows[row] == pytest.approx(shaped.tolist(), abs=5e-5)


def test_the_worked_group_of_gfpo_is_what_its_filter_keeps():
    rows, groups = rows_of("gfpo_keep: 2"), example()

    def advantages(kept):
        rewards = torch.where(kept, groups.rewards, torch.nan)[0]
        known = rewards[~rewards.isnan()]
        return ((rewards - known.mean()) / (known.std() + 1e-4)).nan_to_num(0.0).tolist()

    assert rows["A of all four"] == pytest.approx(advantages(groups.scored), abs=5e-4)
    assert rows["reward per token"] == pytest.approx((groups.rewards / groups.lengths)[0].tolist(), abs=5e-5)
    for metric, words in (("length", "length"), ("reward_per_token", "reward per token")):
        kept = ~gfpo_rejected(groups.lengths, groups.rewards, 2, metric)
        assert rows[f"S, `gfpo_metric: {metric}`"] == kept[0].tolist()
        assert rows[f"A by {words}"] == pytest.approx(advantages(kept), abs=5e-4)


def test_the_worked_group_of_dler_is_what_it_gives():
    rows, groups = rows_of("whiten_over_tokens: true"), example()
    d = (groups.rewards - groups.rewards.mean())[0]
    assert rows["d"] == d.tolist()
    assert rows["A"] == pytest.approx(whitened(d, groups.lengths[0]).tolist(), abs=5e-5)


def test_the_worked_group_of_dot_is_what_it_keeps():
    rows, lengths = rows_of("dot_alpha: 1.0"), example().lengths
    kept = dot_limits(lengths, torch.ones_like(lengths, dtype=torch.bool), 1.0, 32)
    assert rows["tokens"] == lengths[0].tolist()
    assert rows["kept"] == kept[0].tolist()
    assert rows["reward"] == (kept == lengths)[0].tolist()


def test_the_worked_group_of_qlpo_is_what_it_keeps():
    rows, groups = rows_of("gfpo_metric: qlpo"), example()
    kept = ~qlpo_rejected(groups, torch.rand(1, 4), 2, 0.75)
    assert rows["kept"] == rows["preferred half"] == kept[0].tolist()
    known = groups.rewards[kept]
    advantages = torch.zeros(4)
    advantages[kept[0]] = (known - known.mean()) / (known.std() + 1e-4)
    assert rows["A"] == pytest.approx(advantages.tolist(), abs=5e-4)


def test_every_length_reward_has_a_worked_row():
    assert {call.partition("(")[0] for call in WORKED} == {
        name for name in rewards.__all__ if name.endswith("_length_reward")
    }


def test_the_table_has_every_overlay():
    named = re.findall(r"`(\w+)`", " ".join(row[-1] for row in OVERVIEW[1:]))
    assert len(named) == len(set(named))
    assert set(named) == {file.stem for file in (RECIPES / "methods").glob("*.yaml")}


def test_the_table_has_every_file_with_a_method():
    files = {file for row in OVERVIEW[1:] for file in re.findall(r"`trl_ces/methods/(\w+)\.py`", row[3])}
    shared = {"__init__", "covariance", "groups", "group_reward", "metrics", "rule", "shaped"}
    assert files == {file.stem for file in (ROOT / "trl_ces" / "methods").glob("*.py")} - shared


def test_a_row_names_the_source_that_its_file_names():
    for row in OVERVIEW[1:]:
        text = "".join((ROOT / file).read_text() for file in re.findall(r"`(trl_ces/methods/\w+\.py)`", row[3]))
        for paper in re.findall(r"arxiv\.org/abs/([\d.]+\d)", row[2]):
            assert not text or paper in text, row[0]
