"""Overlays replace or extend the values of a recipe, and invalid combinations are rejected."""

import pytest
import yaml

from trl_ces.support.errors import UserError
from trl_ces.train.recipe import compose, load_recipe

BASE = {
    "model_name_or_path": "m",
    "dataset_name": "d",
    "output_dir": "out/base",
    "shaping": "ces",
    "ces_tau": 0.2,
    "reward_funcs": ["a"],
    "overlays": {"more": {"reward_kwargs+": {"b": {"size": 3}}}},
}


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
        return tmp_path / f"{name}.yaml"

    return write_file


def test_the_overlays_section_of_a_recipe_takes_precedence_over_overlay_files(write):
    more = {"reward_funcs+": ["b"], "reward_kwargs+": {"b": {"size": 1, "other": 2}}, "max_steps": 3}
    composed = compose([write("base", BASE), write("more", more), write("last", {"max_steps": 5})])
    assert composed["reward_funcs"] == ["a", "b"]
    assert composed["reward_kwargs"] == {"b": {"size": 3, "other": 2}}
    assert composed["max_steps"] == 5
    assert composed["output_dir"] == "out/base-more-last"
    assert "overlays" not in composed


def test_an_overlay_extends_the_default_of_an_unset_key(write):
    base = {name: value for name, value in BASE.items() if name != "reward_funcs"}
    more = {"reward_funcs+": ["b"], "reward_kwargs+": {"b": {"other": 1}}}
    composed = compose([write("base", base), write("more", more)])
    assert composed["reward_funcs"] == ["accuracy_reward", "think_format_reward", "b"]
    assert composed["reward_kwargs"] == {"b": {"other": 1, "size": 3}}


def test_a_trailing_slash_of_output_dir_is_removed(write):
    composed = compose([write("base", {**BASE, "output_dir": "out/base/"}), write("last", {"max_steps": 5})])
    assert composed["output_dir"] == "out/base-last"


def test_shaping_kwargs_are_dropped_when_an_overlay_replaces_the_custom_rule(write):
    base = write("base", {**BASE, "shaping": "my:rule", "shaping_kwargs": {"gamma": 0.2}})
    assert compose([base, write("more", {"max_steps": 5})])["shaping_kwargs"] == {"gamma": 0.2}
    assert "shaping_kwargs" not in compose([base, write("dapo", {"shaping": "none"})])


def test_settings_of_a_replaced_rule_are_dropped(write):
    assert compose([write("base", BASE)])["ces_tau"] == 0.2
    assert "ces_tau" not in compose([write("base", BASE), write("dapo", {"shaping": "none"})])
    recipe = load_recipe([write("base", BASE), write("dapo", {"shaping": "none"})], {"ces_tau": ["0.3"]})
    assert recipe.setting("ces_tau") == 0.3  # set on the command line


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        ({"reward_funcs+": {"a": 1}}, r"o.yaml: `reward_funcs\+` adds a mapping to a list: use two lists"),
        ({"output_dir+": "x"}, r"`output_dir\+` adds a str to a str"),
        ({"max_step": 3}, "unknown key `max_step`. Did you mean `max_steps`"),
    ],
)
def test_an_incompatible_overlay_is_rejected(write, overlay, message):
    with pytest.raises(UserError, match=message):
        load_recipe([write("base", BASE), write("o", overlay)])


def test_a_later_overlay_cannot_replace_the_batch_size_of_colocate():
    assert compose(["R1-7B", "dler", "colocate"])["responses_per_step"] == 48
    with pytest.raises(UserError, match=r"for the `dler` overlay and .* put `colocate` after `dler`"):
        compose(["R1-7B", "colocate", "dler"])


@pytest.mark.parametrize(("first", "second"), [("ces_mai", "gdpo"), ("on_policy_sft", "alp")])
def test_a_later_overlay_cannot_replace_the_token_rule_of_an_earlier_overlay(first, second):
    rule = compose(["R1-7B", first])["shaping"]
    assert compose(["R1-7B", second, first])["shaping"] == rule
    with pytest.raises(UserError, match=rf"would replace the {rule} rule of `{first}`: put `{first}` after"):
        compose(["R1-7B", first, second])


def test_a_reward_that_two_overlays_add_is_listed_once():
    composed = compose(["R1-7B", "overlong", "dapo_full"])["reward_funcs"]
    assert composed == ["accuracy_reward", "think_format_reward", "get_soft_overlong_punishment"]
