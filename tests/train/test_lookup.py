"""Test that rewards are found by name or dotted path, and that factories are called with their settings."""

import pytest

from trl_ces.support.errors import UserError
from trl_ces.train.lookup import find_reward_functions
from trl_ces.train.recipe import make_recipe

MINIMAL = {"model_name_or_path": "m", "dataset_name": "d", "output_dir": "out", "max_completion_length": 100}


def load_rewards(content, **overrides):
    return find_reward_functions(make_recipe(MINIMAL | content, "file.yaml", overrides))


def test_a_factory_gets_its_settings_from_the_recipe_or_the_command_line():
    content = {
        "reward_funcs": ["accuracy_reward", "get_alp_length_reward"],
        "reward_kwargs": {"get_alp_length_reward": {"beta": 0.5}},
    }
    accuracy, alp = load_rewards(content)
    assert (accuracy.__name__, alp.__name__) == ("accuracy_reward", "alp_length_reward")
    assert alp.group_rule.keywords == {"beta": 0.5, "normalizer": None, "correct_only": False}
    overrides = {"reward_kwargs": ["{get_alp_length_reward: {beta: 2, normalizer: 7}}"]}
    _, alp = load_rewards(content, **overrides)
    assert alp.group_rule.keywords == {"beta": 2, "normalizer": 7, "correct_only": False}


def test_factories_of_trl_are_called_with_their_settings():
    names = ["get_cosine_scaled_reward", "get_repetition_penalty_reward", "get_soft_overlong_punishment"]
    settings = {"get_cosine_scaled_reward": {"max_len": 10}, "get_repetition_penalty_reward": {"ngram_size": 2}}
    cosine, repetition, overlong = load_rewards({"reward_funcs": names, "reward_kwargs": settings})
    assert repetition([[5, 5, 5, 5]]) == [pytest.approx(-2 / 3)]  # 1 of 3 bigrams is unique
    assert cosine.__name__ == "cosine_scaled_reward"
    lengths = [[0] * 80, [0] * 90, [0] * 100]  # the punishment starts in the last fifth of max_completion_length
    assert overlong(completion_ids=lengths) == [0.0, -0.5, -1.0]


def test_a_factory_at_a_dotted_path_is_called(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from trl_ces.rewards import group_reward\n"
        "def get_constant_reward(value=1.0):\n"
        "    @group_reward\n"
        "    def constant_reward(groups):\n"
        "        return groups.rewards * 0 + value\n"
        "    return constant_reward\n"
        "def plain_reward(completions, **kwargs):\n"
        "    return [0.0] * len(completions)\n"
    )
    monkeypatch.chdir(tmp_path)
    content = {"reward_funcs": ["mine.plain_reward", "mine.get_constant_reward"]}
    plain, constant = load_rewards(content | {"reward_kwargs": {"mine.get_constant_reward": {}}})
    assert (plain.__name__, constant.__name__) == ("plain_reward", "constant_reward")
    assert load_rewards({"reward_funcs": ["mine.get_constant_reward"]})[0].__name__ == "constant_reward"
    with pytest.raises(UserError, match=r"mine.plain_reward: .*missing 1 required.*accepted arguments: completions"):
        load_rewards({"reward_funcs": ["mine.plain_reward"], "reward_kwargs": {"mine.plain_reward": {"value": 1}}})


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (
            ["get_alp_length_reward"],
            {},
            r"get_alp_length_reward: .* missing.*'beta' \(accepted arguments: beta, normalizer, correct_only\)",
        ),
        (["get_alp_length_reward"], {"beta": -1}, r"get_alp_length_reward: `beta` is -1: .*above 0"),
        (
            ["get_alp_length_reward"],
            {"beta": 1, "gamma": 1},
            r"unexpected keyword argument 'gamma' \(accepted arguments: beta",
        ),
        (["get_repetition_penalty_reward"], {"max_penalty": 1}, "get_repetition_penalty_reward: "),
        (["accuracy_reward"], {"beta": 1}, r"accuracy_reward: .* \(accepted arguments: completions, solution"),
    ],
)
def test_invalid_settings_are_rejected(names, settings, message):
    with pytest.raises(UserError, match=message):
        load_rewards({"reward_funcs": names, "reward_kwargs": {names[0]: settings}})


def test_settings_of_an_unknown_reward_are_rejected():
    with pytest.raises(UserError, match=r"`reward_kwargs`: 'get_alp_reward' is not in `reward_funcs`\. Did you mean"):
        load_rewards({"reward_funcs": ["get_alp_length_reward"], "reward_kwargs": {"get_alp_reward": {"beta": 1}}})
    with pytest.raises(UserError, match=r"`reward_kwargs`: expected dict"):
        load_rewards({"reward_kwargs": {"accuracy_reward": 1}})
    with pytest.raises(UserError, match=r"unknown reward 'get_alp_length'.*get_alp_length_reward"):
        load_rewards({"reward_funcs": ["get_alp_length"]})
