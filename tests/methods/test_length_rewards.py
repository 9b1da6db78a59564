"""Compare each length reward with a loop-based reference implementation and with values computed by hand."""

import inspect
import math
import random

import length_oracles
import pytest
import torch
from length_oracles import SETTINGS

from trl_ces import rewards
from trl_ces.methods import length_rewards
from trl_ces.methods.groups import Groups
from trl_ces.rewards import get_alp_length_reward, get_smart_thinker_length_reward

LIMIT = 12000
FUNCTIONS = {name: getattr(length_rewards, f"{name}_length_reward") for name in SETTINGS}
# Rewards for completions of 100, 200, 300 and 500 tokens; the first and the third are correct.
BY_HAND = {
    # (l - 100) / 400 = 0, 1/4, 1/2, 1; lambda = 1/2, 1/4, 0, -1/2; the second is incorrect: min(0, 1/4)
    "kimi": [0.5, 0.0, 0.0, -0.5],
    # correct lengths 100, 300: mean 200, std 100, z = -1, 1; sigmoid(-1) = 0.268941, sigmoid(1) = 0.731059
    "arora": [-0.0537883, 0.0, -0.1462117, 0.0],
    # 0.5 / 2000 * 1/2 = 1/8000 per token
    "alp": [-0.0125, -0.025, -0.0375, -0.0625],
    # 0.25 * 1/2 / 500 = 1/4000 per token
    "linear": [-0.025, -0.05, -0.075, -0.125],
    # l* = 100
    "shorter": [0.0, -0.1, -0.2, -0.4],
    # both correct completions have at most 300 tokens
    "laser": [0.5, 0.0, 0.5, 0.0],
    # 0.25 * 1/2 / 300 = 1/2400 per token of a correct completion
    "mai": [-0.0416667, 0.0, -0.125, 0.0],
    # all: mean 275, variance 21875; correct: mean 200, variance 10000;
    # l* = 1625000 / 11875 = 136.842, pen_3 = 163.158, Lambda = 1/2 / (163.158 * 3/4)
    "smart_thinker": [0.0, 0.0, -0.6666667, 0.0],
    # z = -1, 1; exp(0.1), exp(-0.1)
    "grpo_lead": [1.1051709, -1.0, 0.9048374, -1.0],
    # mean 275: R' = 1 / (1 + 0.12) = 0.892857 and 1 / (1 + 0.36) = 0.735294
    "gr3": [-0.1071429, 0.0, -0.2647059, 0.0],
}
DEFAULTS = {
    "linear": {"coefficient": 0.25},
    "shorter": {"beta": 0.001},
    "gr3": {"alpha": 0.33},
    "mai": {"weight": 0.25},
}
# Accuracy rewards and lengths of one group.
GROUPS = {
    "mixed": ([1.0, 0.0, 1.0, 0.0], [100, 200, 300, 500]),
    "shortest incorrect": ([0.0, 1.0, 1.0, 0.0], [7, 20, 21, 90]),
    "all correct": ([1.0, 1.0, 1.0, 1.0], [8, 5, 30, 12]),
    "all incorrect": ([0.0, 0.0, 0.0, 0.0], [8, 5, 30, 12]),
    "some unscored": ([1.0, None, 0.0, None], [10, 2, 14, 40]),
    "one scored": ([None, None, 0.0, None], [10, 2, 14, 40]),
    "all unscored": ([None, None, None, None], [10, 2, 14, 40]),
    "equal lengths": ([1.0, 0.0, 1.0, None], [9, 9, 9, 9]),
    "equal correct lengths": ([1.0, 0.0, 1.0, 0.0], [9, 4, 9, 50]),
    "truncated": ([1.0, 0.0, 0.0, 1.0], [50, LIMIT, LIMIT, LIMIT]),
    "long, one token apart": ([1.0, 1.0, 1.0, 0.0], [11999, 11998, 11998, 11997]),
    "graded": ([1.0, 0.5, -1.0, 2.0], [10, 20, 30, 45]),
    "one token": ([1.0, 0.0, 1.0, 0.0], [1, 1, 1, 1]),
    "one and two tokens": ([1.0, 0.0, 1.0, 0.0], [2, 1, 1, 2]),
    "one completion, correct": ([1.0], [7]),
    "one completion, incorrect": ([0.0], [7]),
    "one completion, unscored": ([None], [7]),
}


def groups_of(rows, max_length=LIMIT):
    """Create `Groups` from rows of (rewards, lengths), one per group."""
    values = torch.tensor([[math.nan if reward is None else reward for reward in row[0]] for row in rows])
    lengths = torch.tensor([row[1] for row in rows])
    return Groups(values >= 1, ~values.isnan(), lengths >= LIMIT, lengths, values, max_length)


def assert_equal_where_scored(result, rows, expected):
    assert result.dtype == torch.float32
    assert result.shape == (len(rows), len(rows[0][1]))
    for (accuracies, _), actual, values in zip(rows, result.tolist(), expected, strict=True):
        for accuracy, reward, value in zip(accuracies, actual, values, strict=True):
            assert accuracy is None or reward == pytest.approx(value, rel=1e-6, abs=1e-6)


def test_every_length_reward_is_public_and_tested():
    factories = {f"get_{name}_length_reward" for name in SETTINGS}
    for names in (rewards.__all__, vars(length_rewards)):
        assert {name for name in names if name.startswith("get_")} == factories


@pytest.mark.parametrize("name", SETTINGS)
def test_rewards_match_values_computed_by_hand(name):
    accuracies, lengths = GROUPS["mixed"]
    settings = SETTINGS[name][0]
    actual = FUNCTIONS[name](groups_of([(accuracies, lengths)]), **settings)[0].tolist()
    assert actual == pytest.approx(BY_HAND[name], abs=1e-6)
    assert getattr(length_oracles, name)(accuracies, lengths, **settings) == pytest.approx(BY_HAND[name], abs=1e-6)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    ("name", "settings"), [(name, settings) for name in SETTINGS for settings in SETTINGS[name]], ids=str
)
def test_rewards_of_a_group_match_the_oracle(name, settings, group):
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


@pytest.mark.parametrize("name", SETTINGS)
def test_rewards_of_random_rollouts_match_the_oracle(name):
    generator = random.Random(name)
    for _ in range(300):
        rows = random_groups(generator)
        settings = generator.choice(SETTINGS[name])
        expected = [getattr(length_oracles, name)(*row, **settings) for row in rows]
        assert_equal_where_scored(FUNCTIONS[name](groups_of(rows), **settings), rows, expected)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_longer_incorrect_completion_never_gets_a_higher_reward(name):
    generator, num_higher = random.Random(name), 0
    for _ in range(300):
        size = generator.randint(2, 8)
        accuracies = [generator.choice([1.0, 0.0, -1.0]) for _ in range(size)]
        lengths = [generator.randint(1, 60) for _ in range(size)]
        place = generator.randrange(size)
        accuracies[place] = generator.choice([0.0, -1.0])
        longer = [*lengths]
        longer[place] += generator.randint(1, 60)
        groups = groups_of([(accuracies, lengths), (accuracies, longer)])
        before, after = FUNCTIONS[name](groups, **generator.choice(SETTINGS[name]))[:, place]
        num_higher += after.item() > before.item() + 1e-6
    # ShorterBetter also penalizes completions that are shorter than the shortest correct completion.
    assert num_higher > 0 if name == "shorter" else num_higher == 0


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_match_the_source(name):
    groups = groups_of([GROUPS["mixed"]])
    assert FUNCTIONS[name](groups).tolist() == FUNCTIONS[name](groups, **DEFAULTS[name]).tolist()


@pytest.mark.parametrize("name", SETTINGS)
def test_completions_without_tokens_get_finite_rewards(name):
    actual = FUNCTIONS[name](groups_of([([1.0, 0.0], [0, 0])]), **SETTINGS[name][0])
    # These rewards are not 0 even if all completions have the same length.
    expected = {"arora": [-0.1, 0.0], "laser": [0.5, 0.0], "grpo_lead": [1.0, -1.0]}.get(name, [0.0, 0.0])
    assert actual[0].tolist() == pytest.approx(expected)


def test_alp_divides_by_the_normalizer_or_by_max_completion_length():
    alp, rows = FUNCTIONS["alp"], [GROUPS["mixed"]]
    assert alp(groups_of(rows, max_length=500), beta=0.5)[0].tolist() == pytest.approx([-0.05, -0.1, -0.15, -0.25])
    actual = alp(groups_of(rows, max_length=None), beta=0.5, normalizer=1000)
    assert actual[0].tolist() == pytest.approx([-0.025, -0.05, -0.075, -0.125])
    with pytest.raises(ValueError, match="`max_completion_length`, which is None: set it, or pass `normalizer`"):
        alp(groups_of(rows, max_length=None), beta=0.5)


def test_gr3_and_the_accuracy_reward_sum_to_the_rescaled_reward():
    accuracies, lengths = GROUPS["graded"]
    column = FUNCTIONS["gr3"](groups_of([(accuracies, lengths)]), alpha=0.5)[0]
    mean = sum(lengths) / 4
    rescaled = [
        reward / (1 + 0.5 * length / mean) if reward > 0 else reward
        for reward, length in zip(accuracies, lengths, strict=True)
    ]
    assert (torch.tensor(accuracies) + column).tolist() == pytest.approx(rescaled)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_factory_takes_the_settings_of_its_function(name):
    factory, function = getattr(rewards, f"get_{name}_length_reward"), FUNCTIONS[name]
    of_factory, of_function = (
        [(parameter.name, parameter.default) for parameter in inspect.signature(func).parameters.values()]
        for func in (factory, function)
    )
    assert of_factory == [(parameter, default) for parameter, default in of_function if parameter != "groups"]
    for settings in SETTINGS[name]:
        reward, groups = factory(**settings), groups_of([GROUPS["mixed"], GROUPS["graded"]])
        assert reward.__name__ == f"{name}_length_reward"
        assert torch.equal(reward.group_rule(groups), function(groups, **settings))


def test_a_factory_checks_its_settings():
    get_alp_length_reward(beta=1, normalizer=None)
    for beta in (0, -1, math.inf, math.nan, "1", True, None):
        with pytest.raises(ValueError, match=r"`beta` is .*finite number above 0"):
            get_alp_length_reward(beta=beta)
    with pytest.raises(ValueError, match=r"`normalizer` is -1: expected a finite number above 0"):
        get_alp_length_reward(beta=1, normalizer=-1)
    with pytest.raises(ValueError, match="`correct_only` is 1: expected true or false"):
        get_alp_length_reward(beta=1, correct_only=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'beta'"):
        get_alp_length_reward()
    with pytest.raises(TypeError, match="unexpected keyword argument 'alpha'"):
        get_smart_thinker_length_reward(alpha=1)
