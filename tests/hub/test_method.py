"""The card's sentence on what a model was trained with is true for each shaping and each ablation."""

import re

import pytest
import yaml
from hub.test_card import card
from hub_runs import RECIPE, write_run
from train.test_recipes import ADDED_REWARDS

from trl_ces.train.recipe import load_recipe
from trl_ces.train.shipped import shipped_files

DAPO = "with DAPO, without shaping, by [TRL]"
CES = "with Conditional Entropy Shaping (CES) on DAPO, by [TRL]"
TAKES = "CES shapes the advantage of DAPO: it takes entropy from correct answers"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("method") / "run")


def opening(run, **settings):
    """The paragraph below the title, of a run with these settings instead of the recipe's own."""
    recipe = {**yaml.safe_load(RECIPE), **settings}
    text = card(run, recipe=yaml.safe_dump(recipe), recorded=None).text
    return re.search(r"\n# .+?\n\n(.+)\n", text)[1]


@pytest.mark.parametrize(
    ("settings", "said", "not_said"),
    [
        ({}, [CES, f"{TAKES} and gives it to wrong ones"], ["without"]),
        ({"shaping": "none"}, [DAPO], ["CES", "entropy"]),
        ({"shaping": "none", "dynamic_sampling": True}, ["DAPO with dynamic sampling, without shaping"], ["CES"]),
        (
            {
                "shaping": "none",
                "dynamic_sampling": True,
                "reward_funcs": ["accuracy_reward", "get_alp_length_reward", "get_kimi_length_reward"],
                "reward_kwargs": {"get_alp_length_reward": {"beta": 0.5}},
            },
            ["dynamic sampling, the reward `alp_length_reward` and the reward `kimi_length_reward`, without"],
            ["accuracy_reward"],
        ),
        (
            {"shaping": "none", "reward_funcs": ["my.accuracy_reward", "trl_ces.rewards.get_alp_length_reward"]},
            ["with DAPO with the reward `alp_length_reward`, without shaping"],
            ["my.accuracy", "trl_ces.rewards", "get_"],
        ),
        ({"shaping": "none", "loss_type": "grpo"}, ["with GRPO (`loss_type` grpo), without shaping"], ["DAPO"]),
        (
            {"shaping": "entropy_advantage"},
            ["with DAPO and the entropy advantage of Cheng et al."],
            ["CES", "without"],
        ),
        ({"ces_dynamic_multiplier": False}, ["(CES), without the dynamic multiplier b, on DAPO", TAKES], ["gradient"]),
        ({"ces_entropy_gradient": False}, ["without the gradient through the entropy, on DAPO"], ["multiplier"]),
        (
            {"ces_dynamic_multiplier": False, "ces_entropy_gradient": False},
            ["without the dynamic multiplier b and without the gradient through the entropy, on DAPO"],
            [],
        ),
        ({"ces_beta_incorrect": 0.0}, [f"{TAKES} at the most", "leaves wrong ones alone"], ["gives"]),
        ({"ces_beta_correct": 0.0}, ["gives entropy to wrong answers", "leaves correct ones alone"], ["takes"]),
        (
            {"ces_beta_correct": -0.4, "ces_beta_incorrect": -0.4},
            ["with its signs swapped, it gives entropy to correct answers and takes it from wrong ones"],
            ["it takes"],
        ),
        ({"ces_beta_correct": -0.4}, ["with one sign swapped, it gives entropy to all answers"], ["takes", "leaves"]),
        ({"ces_beta_incorrect": -0.4}, ["with one sign swapped, it takes entropy from all answers"], ["gives"]),
        (
            {"ces_beta_correct": -0.4, "ces_beta_incorrect": 0.0},
            ["it gives entropy to correct answers", "leaves wrong ones alone"],
            ["takes"],
        ),
        (
            {"ces_beta_correct": 0.0, "ces_beta_incorrect": -0.4},
            ["it takes entropy from wrong answers", "leaves correct ones alone"],
            ["gives"],
        ),
        ({"ces_beta_correct": -0.4, "ces_tau": 0.0}, ["with these settings it changes no token"], ["swapped"]),
        ({"shaping": "clip_cov"}, ["with DAPO and Clip-Cov of Cui et al. ([arXiv 2505.22617]"], ["CES", "entropy"]),
        ({"shaping": "kl_cov"}, ["with DAPO and KL-Cov of Cui et al. ([arXiv 2505.22617]"], ["CES", "entropy"]),
        ({"ces_tau": 0.0}, ["with these settings it changes no token"], ["takes", "gives"]),
        ({"ces_beta_correct": 0, "ces_beta_incorrect": 0}, ["with these settings it changes no token"], ["takes"]),
        ({"loss_type": "dr_grpo"}, ["(CES) on GRPO (`loss_type` dr_grpo)", "advantage of GRPO"], ["DAPO"]),
    ],
)
def test_the_card_says_what_was_done_and_nothing_that_was_not(run, settings, said, not_said):
    text = opening(run, **settings)
    assert [part for part in said if part not in text] == []
    assert [part for part in not_said if part in text.split("trl_ces")[0] or part in text.split("`.")[-1]] == []


SHIPPED = {
    **dict.fromkeys(("ces", "ces_lora", "colocate", "server", "paper"), CES),
    "dapo": DAPO,
    "dapo_full": "with DAPO with dynamic sampling and the reward `soft_overlong_punishment`, without shaping, by",
    "entropy_advantage": "with DAPO and the entropy advantage of Cheng et al.",
    "ces_without_dynamic_b": "with Conditional Entropy Shaping (CES), without the dynamic multiplier b, on DAPO, by",
    "ces_without_entropy_gradient": "without the gradient through the entropy, on DAPO, by",
    **{
        name: f"with DAPO with the reward `{factory.removeprefix('get_')}`, without shaping, by"
        for name, (factory, *_) in ADDED_REWARDS.items()
    },
    "ces_alp": "with Conditional Entropy Shaping (CES) on DAPO with the reward `alp_length_reward`, by",
    "ces_signs_swapped": CES,
    "clip_cov": "with DAPO and Clip-Cov of Cui et al.",
    "kl_cov": "with DAPO and KL-Cov of Cui et al.",
    "gfpo": "with DAPO with GFPO (an advantage for ",
    "cosine": "with DAPO with the reward `cosine_scaled_reward`, without shaping, by",
    "truncation": DAPO,
    "dler": "with DAPO with dynamic sampling and rewards scaled by the batch, without shaping, by",
    "top_entropy": "with DAPO with a loss on the 20 % of the tokens with the highest entropy, without shaping, by",
    "entropy_bonus": "with DAPO with an entropy bonus, without shaping, by",
    "adaptive_entropy": "with DAPO with an adaptive entropy bonus, without shaping, by",
}


@pytest.mark.parametrize("name", shipped_files())
def test_the_card_of_a_shipped_recipe_says_its_method(run, name):
    (run / "recipe.yaml").write_text(load_recipe(shipped_files()[name]).to_yaml())
    text = card(run, recipe=(run / "recipe.yaml").read_text(), recorded=None).text
    method = name.split("_")[-1] if name.startswith("cluster/") else name.split("/")[-1]
    assert SHIPPED[method] in text
