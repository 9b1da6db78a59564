"""Each length reward against an independent loop, and against figures worked out by hand."""

import itertools
import json
import math
import random
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import length_oracles
import pytest
import torch
from length_rules import LIMIT, RULES, groups_of

import trl_ces.methods

FUNCTIONS = {name: getattr(import_module(f"trl_ces.methods.{name}"), f"{name}_length_reward") for name in RULES}
BY_HAND = {
    # (l - 100) / 400 = 0, 1/4, 1/2, 1; lambda = 1/2, 1/4, 0, -1/2; the second is wrong: min(0, 1/4)
    "kimi": [0.5, 0.0, 0.0, -0.5],
    # correct lengths 100, 300: mean 200, std 100, z = -1, 1; sigmoid(-1) = 0.268941, sigmoid(1) = 0.731059
    "arora": [-0.0537883, 0.0, -0.1462117, 0.0],
    # 0.5 / 2000 * 1/2 = 1/8000 a token
    "alp": [-0.0125, -0.025, -0.0375, -0.0625],
    # 0.25 * 1/2 / 500 = 1/4000 a token
    "linear": [-0.025, -0.05, -0.075, -0.125],
    # l* = 100
    "shorter": [0.0, -0.1, -0.2, -0.4],
    # both correct ones keep to 300 tokens
    "laser": [0.5, 0.0, 0.5, 0.0],
    # no target yet
    "laser_d": [0.5, 0.0, 0.5, 0.0],
    # 0.25 * 1/2 / 300 = 1/2400 a token of a correct one
    "mai": [-0.0416667, 0.0, -0.125, 0.0],
    # all: mean 275, variance 21875; correct: mean 200, variance 10000;
    # l* = 1625000 / 11875 = 136.842, 163.158 too many, Lambda = 1/2 / (163.158 * 3/4)
    "smart_thinker": [0.0, 0.0, -0.6666667, 0.0],
    # z = -1, 1; exp(0.1), exp(-0.1)
    "grpo_lead": [1.1051709, -1.0, 0.9048374, -1.0],
    # 0.02 log(5.5) / log(6), 0.02 log(4.5) / log(6)
    "acoer": [0.0190288, 0.0, 0.0167888, 0.0],
    # p = 1/2 is enough for the budget, the shorter of 100 and 300
    "toggle": [0.0, 0.0, -1.0, 0.0],
    # mean 275: S = 1 / (1 + 0.12) = 0.892857 and 1 / (1 + 0.36) = 0.735294
    "gr3": [-0.1071429, 0.0, -0.2647059, 0.0],
}
DEFAULTS = {
    "linear": {"coefficient": 0.25},
    "shorter": {"beta": 0.001},
    "gr3": {"alpha": 0.33},
    "mai": {"weight": 0.25},
    "acoer": {"budget": 4096},
}
# Accuracy rewards and lengths of one group.
GROUPS = {
    "mixed": ([1.0, 0.0, 1.0, 0.0], [100, 200, 300, 500]),
    "the shortest is wrong": ([0.0, 1.0, 1.0, 0.0], [7, 20, 21, 90]),
    "all right": ([1.0, 1.0, 1.0, 1.0], [8, 5, 30, 12]),
    "all wrong": ([0.0, 0.0, 0.0, 0.0], [8, 5, 30, 12]),
    "some unscored": ([1.0, None, 0.0, None], [10, 2, 14, 40]),
    "one verdict": ([None, None, 0.0, None], [10, 2, 14, 40]),
    "all unscored": ([None, None, None, None], [10, 2, 14, 40]),
    "one length": ([1.0, 0.0, 1.0, None], [9, 9, 9, 9]),
    "one length among the right": ([1.0, 0.0, 1.0, 0.0], [9, 4, 9, 50]),
    "truncated": ([1.0, 0.0, 0.0, 1.0], [50, LIMIT, LIMIT, LIMIT]),
    "long, a token apart": ([1.0, 1.0, 1.0, 0.0], [11999, 11998, 11998, 11997]),
    "graded": ([1.0, 0.5, -1.0, 2.0], [10, 20, 30, 45]),
    "of one token": ([1.0, 0.0, 1.0, 0.0], [1, 1, 1, 1]),
    "of one and two tokens": ([1.0, 0.0, 1.0, 0.0], [2, 1, 1, 2]),
    "one completion, right": ([1.0], [7]),
    "one completion, wrong": ([0.0], [7]),
    "one completion, unscored": ([None], [7]),
}


def assert_equal_where_scored(result, rows, expected):
    assert result.dtype == torch.float32
    assert result.shape == (len(rows), len(rows[0][1]))
    for (rewards, _), values, right in zip(rows, result.tolist(), expected, strict=True):
        for reward, value, one in zip(rewards, values, right, strict=True):
            assert reward is None or value == pytest.approx(one, rel=1e-6, abs=1e-6)


def cases():
    return [pytest.param(name, settings, id=f"{name}-{settings}") for name in RULES for settings in RULES[name]]


def test_every_length_reward_of_the_package_is_tested():
    files = Path(trl_ces.methods.__file__).parent.glob("*.py")
    assert {file.stem for file in files if f"def {file.stem}_length_reward(" in file.read_text()} == set(RULES)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(("name", "settings"), cases())
def test_a_reward_is_its_oracles(name, settings, group):
    rows = [GROUPS[group]]
    expected = [getattr(length_oracles, name)(*GROUPS[group], **settings)]
    assert_equal_where_scored(FUNCTIONS[name](groups_of(rows), **settings), rows, expected)


def random_groups(generator):
    groups, size = generator.randint(1, 6), generator.randint(1, 9)
    longest = generator.choice([3, 40, LIMIT])
    kinds = generator.choice([[1.0, 0.0], [1.0, 0.0, None], [1.0, 0.0, 0.5, None], [0.0, None], [1.0]])
    return [
        ([generator.choice(kinds) for _ in range(size)], [generator.randint(1, longest) for _ in range(size)])
        for _ in range(groups)
    ]


@pytest.mark.parametrize("name", RULES)
def test_groups_side_by_side_do_not_touch_each_other(name):
    generator = random.Random(name)
    for _ in range(300):
        rows = random_groups(generator)
        settings = generator.choice(RULES[name])
        expected = [getattr(length_oracles, name)(*row, **settings) for row in rows]
        assert_equal_where_scored(FUNCTIONS[name](groups_of(rows), **settings), rows, expected)


@pytest.mark.parametrize("name", RULES)
def test_a_row_worked_out_by_hand(name):
    rows = [GROUPS["mixed"]]
    result = FUNCTIONS[name](groups_of(rows), **RULES[name][0])
    assert result[0].tolist() == pytest.approx(BY_HAND[name], abs=1e-6)
    assert getattr(length_oracles, name)(*rows[0], **RULES[name][0]) == pytest.approx(BY_HAND[name], abs=1e-6)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_is_the_papers(name):
    groups = groups_of([GROUPS["mixed"]])
    assert FUNCTIONS[name](groups).tolist() == FUNCTIONS[name](groups, **DEFAULTS[name]).tolist()


@pytest.mark.parametrize("name", RULES)
def test_completions_without_a_token_give_a_number(name):
    rewards = FUNCTIONS[name](groups_of([([1.0, 0.0], [0, 0])]), **RULES[name][0])
    # The rules for correct completions alone give these what they give any group of one length.
    expected = {
        "arora": [-0.1, 0.0],
        "laser": [0.5, 0.0],
        "laser_d": [0.5, 0.0],
        "grpo_lead": [1.0, -1.0],
        "acoer": [0.02, 0.0],
    }.get(name, [0.0, 0.0])
    assert rewards[0].tolist() == pytest.approx(expected)


def test_the_solve_rate_is_over_the_scored_completions():
    rows = [([1.0, None, 0.0, 0.0], [1, 1, 1, 1]), ([None] * 4, [1, 1, 1, 1]), ([1.0] * 4, [1, 1, 1, 1])]
    assert groups_of(rows).solve_rate.tolist() == pytest.approx([1 / 3, 0.0, 1.0])


def test_alp_divides_by_the_longest_completion_allowed():
    rows = [GROUPS["mixed"]]
    result = FUNCTIONS["alp"](groups_of(rows, max_length=500), beta=0.5)
    assert result[0].tolist() == pytest.approx([-0.05, -0.1, -0.15, -0.25])
    result = FUNCTIONS["alp"](groups_of(rows, max_length=None), beta=0.5, normalizer=1000)
    assert result[0].tolist() == pytest.approx([-0.025, -0.05, -0.075, -0.125])


def test_alp_without_a_length_to_divide_by_says_what_to_give():
    with pytest.raises(ValueError, match=r"`max_completion_length` sets none: set it, or give `normalizer`"):
        FUNCTIONS["alp"](groups_of([GROUPS["mixed"]], max_length=None), beta=0.5)


def test_gr3_and_the_accuracy_reward_add_up_to_the_rescaled_reward():
    rewards, lengths = GROUPS["graded"]
    column = FUNCTIONS["gr3"](groups_of([(rewards, lengths)]), alpha=0.5)[0]
    mean = sum(lengths) / 4
    rescaled = [
        reward / (1 + 0.5 * length / mean) if reward > 0 else reward
        for reward, length in zip(rewards, lengths, strict=True)
    ]
    assert (torch.tensor(rewards) + column).tolist() == pytest.approx(rescaled)


@pytest.mark.parametrize("name", RULES)
def test_lengthening_a_wrong_completion_never_pays(name):
    generator, paid = random.Random(name), 0
    for _ in range(300):
        size = generator.randint(2, 8)
        rewards = [generator.choice([1.0, 0.0, -1.0]) for _ in range(size)]
        lengths = [generator.randint(1, 60) for _ in range(size)]
        place = generator.randrange(size)
        rewards[place] = generator.choice([0.0, -1.0])
        longer = [*lengths]
        longer[place] += generator.randint(1, 60)
        settings = generator.choice(RULES[name])
        before, after = FUNCTIONS[name](groups_of([(rewards, lengths), (rewards, longer)]), **settings)[:, place]
        paid += after.item() > before.item() + 1e-6
    # ShorterBetter draws every completion to the shortest correct one, from below, too.
    assert paid > 0 if name == "shorter" else paid == 0


@pytest.mark.parametrize(("budget", "warmup", "window"), [(30, 200, 100), (8.5, 3, 1), (30, 1, 20)])
def test_acoer_moves_its_price_and_budget_as_its_oracle(budget, warmup, window):
    generator, state, alphas = random.Random(window), {}, []
    oracle = length_oracles.Acoer(budget, warmup, window)
    for rollout in range(450):
        skill = 0.5 + 0.4 * math.sin(rollout / 40)
        rows = [
            (
                [None if generator.random() < 0.1 else float(generator.random() < skill) for _ in range(4)],
                [generator.randint(1, 60) for _ in range(4)],
            )
            for _ in range(3)
        ]
        settings = {"budget": budget, "warmup": warmup, "window": window}
        found = FUNCTIONS["acoer"](groups_of(rows), state=state, **settings)
        assert_equal_where_scored(found, rows, oracle.rollout(rows))
        alphas.append(state["alpha"])
    assert state["budget"] == pytest.approx(oracle.budget)
    assert state["budget"] != budget
    assert alphas[: warmup - 1] == [0.02] * (warmup - 1)
    steps = {round(later / before, 2) for before, later in itertools.pairwise(alphas)}
    assert {0.95, 1.02} <= steps or window == 1


def test_acoer_waits_for_the_codes_200_rollouts_and_its_budget_falls_to_an_eighth_at_most():
    groups, state = groups_of([GROUPS["mixed"]]), {}
    for _ in range(199):
        FUNCTIONS["acoer"](groups, state=state)
    assert (state["alpha"], state["budget"], len(state["history"])) == (0.02, None, 100)
    FUNCTIONS["acoer"](groups, state=state)
    assert state["alpha"] == pytest.approx(0.0204)
    assert state["budget"] == 512  # 0.85 of the mean of 100 and 300 is less


def test_acoer_lowers_its_price_only_beyond_a_fall_of_two_points():
    groups = groups_of([GROUPS["all wrong"]])
    for before, expected in [(0.02, 0.102), (math.nextafter(0.02, 1), 0.095)]:
        state = {"alpha": 0.1, "budget": None, "accuracy": 0.0, "length": None, "history": [before], "rollouts": 9}
        FUNCTIONS["acoer"](groups, state=state, warmup=1, window=2)
        assert state["alpha"] == pytest.approx(expected)


def test_acoer_has_the_budget_that_it_is_given_until_it_moves():
    groups, state = groups_of([GROUPS["mixed"]]), {}
    FUNCTIONS["acoer"](groups, state=state, budget=1000)
    found = FUNCTIONS["acoer"](groups, state=state, budget=600)  # as of a resumed run
    assert found.tolist() == FUNCTIONS["acoer"](groups, budget=600).tolist()


def test_toggle_keeps_a_prompts_first_budget_and_alternates_as_its_oracle():
    generator, state, taken = random.Random(0), {}, [0, 0]
    settings = {"solved": 0.7, "every": 3, "percentile": 0.4}
    oracle = length_oracles.Toggle(**settings)
    for rollout in range(60):
        prompts = [generator.randrange(6) for _ in range(3)]
        rows = [
            (
                [generator.choice([None, 1.0, 1.0, 1.0, 0.0, 0.5]) for _ in range(10)],
                [generator.randint(1, 60) for _ in range(10)],
            )
            for _ in prompts
        ]
        groups = replace(groups_of(rows), prompts=torch.tensor(prompts))
        found = FUNCTIONS["toggle"](groups, state=state, **settings)
        rollout_rows = [(prompt, *row) for prompt, row in zip(prompts, rows, strict=True)]
        assert_equal_where_scored(found, rows, oracle.rollout(rollout_rows))
        taken[rollout // 3 % 2] += (found < 0).sum().item()
    assert taken[0] > 50
    assert taken[1] == 0
    assert {
        int(prompt): budget for prompt, budget in json.loads(json.dumps(state))["budgets"].items()
    } == oracle.budgets


def test_toggle_alternates_every_ten_rollouts_where_three_quarters_are_right():
    groups, state = groups_of([([1.0, 1.0, 1.0, 0.0], [10, 20, 30, 40])]), {}
    found = [FUNCTIONS["toggle"](groups, state=state)[0].tolist() for _ in range(21)]
    limited, free = [0.0, 0.0, -1.0, 0.0], [0.0] * 4
    assert found == [limited] * 10 + [free] * 10 + [limited]
    assert not FUNCTIONS["toggle"](groups, percentile=3).any()  # as 1: the longest is the budget


def laser_d_rollouts(count, groups=4, size=6):
    generator = random.Random(1)
    for rollout in range(count):
        skills = [generator.choice([0.1, 0.5, 0.9]) for _ in range(groups)]
        longest = 60 if rollout % 9 < 5 else 25
        yield [
            (
                [None if generator.random() < 0.1 else float(generator.random() < skill) for _ in range(size)],
                [generator.randint(0, longest) for _ in range(size)],
            )
            for skill in skills
        ]


@pytest.mark.parametrize(("step", "every", "size"), [(4, 3, 6), (7, 1, 4), (100, 2, 6), (4, 2, 2)])
def test_laser_d_moves_its_targets_as_its_oracle(step, every, size):
    settings = {"alpha": 0.5, "step": step, "every": every}
    oracle, state, targets = length_oracles.LaserD(**settings), {}, set()
    for rows in laser_d_rollouts(60, size=size):
        found = FUNCTIONS["laser_d"](groups_of(rows), state=state, **settings)
        assert_equal_where_scored(found, rows, oracle.rollout(rows))
        known = {name: target for name, target in json.loads(json.dumps(state))["targets"].items() if target}
        assert known == oracle.targets
        targets |= set(known.items())
    assert {name for name, _ in targets} == {"easy", "medium", "hard"}
    assert step == 100 or len(targets) > 6


def test_laser_d_has_the_authors_step_and_bonus():
    state = {}
    rows = [([1.0, 1.0, 1.0, 0.0], [1000, 1030, 3000, 10])]
    for _ in range(19):
        assert FUNCTIONS["laser_d"](groups_of(rows), state=state)[0].tolist() == [0.5, 0.5, 0.5, 0.0]
    assert state["targets"]["easy"] is None
    FUNCTIONS["laser_d"](groups_of(rows), state=state)  # one in two, the wrong one among them: within 1,024
    assert state["targets"] == {"hard": None, "medium": None, "easy": 1024}
    assert FUNCTIONS["laser_d"](groups_of(rows), state=state)[0].tolist() == [0.5, 0.0, 0.0, 0.0]
