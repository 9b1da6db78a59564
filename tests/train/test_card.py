"""The model card says what a run's files hold: what was trained on what, how to use it, whom to cite."""

import json
import re
from pathlib import Path

import pytest
from hub_runs import RECIPE, write_adapter_run, write_recorded, write_run
from huggingface_hub import ModelCard

from trl_ces import CESConfig
from trl_ces.methods.rule import find_rule
from trl_ces.support.imports import install_line
from trl_ces.train import card as cards
from trl_ces.train.card import TRAINING_FIELDS, effect, trained_with, write_card, write_facts


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("card") / "run")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """As without matplotlib, and faster."""
    monkeypatch.setattr(cards, "find_spec", lambda name: None)


def card(run, repo="me/my-model", recipe=RECIPE, fields=None, changed=None):
    """The card of `run` with another recipe.yaml and run.json."""
    (run / "recipe.yaml").write_text(recipe)
    write_recorded(run, changed, **(fields or {}))
    write_card(run, repo)
    return ModelCard((run / "README.md").read_text())


def test_the_card_holds_settings_results_and_citations(run):
    text = card(run, fields={"gradient_accumulation_steps": 12}, changed={"world_size": 2}).text
    for part in (
        "[some-org/base-model](https://huggingface.co/some-org/base-model), trained for 8 optimizer steps on "
        "[zwhe99/DeepMath-103K](https://huggingface.co/datasets/zwhe99/DeepMath-103K) with DAPO and Conditional ",
        "by [TRL](https://github.com/huggingface/trl) and `trl_ces`. At the most uncertain tokens, CES ([arXiv 2605",
        "| `shaping` | ces |",
        "| `ces_tau` | 0.02 |",
        "| `ces_beta_correct` | 0.4 |",
        "| `steps_per_generation` | 12 |",  # resolved; the recipe does not have it
        "| `max_train_samples` | 2500 |",
        "| `completions/mean_length` | 20 | 12 |",  # first and last logged
        'from_pretrained("me/my-model")',
        "trl-ces train --config recipe.yaml --output_dir my-run --num_processes 2\n",
        "With `trl_ces` 0.1.0, in a folder",
        "| `torch` | 2.13.0 |",
        "The licence of [some-org/base-model](https://huggingface.co/some-org/base-model) applies",
        "wei2026taming",
        "yu2025dapo",
        "vonwerra2020trl",
    ):
        assert part in text, part
    assert "| `vllm` |" not in text
    assert "/home/someone" not in text
    assert "\n\n\n" not in text
    assert not re.search(r"[^\n]\n## ", text)
    assert "# an adapter" not in text
    assert "curves.png" not in text


def test_who_trains_it_again_does_not_push_to_where_it_came_from(run):
    assert "my-run --push_to_hub false\n" in card(run, recipe=f"{RECIPE}push_to_hub: true\n").text
    assert "push_to_hub" not in card(run).text


def test_the_command_names_the_accelerate_file_of_the_run(run, monkeypatch):
    monkeypatch.setenv("TRL_CES_ACCELERATE_CONFIG", "zero3")
    assert "my-run --accelerate_config zero3 --num_processes 4\n" in card(run, changed={"world_size": 4}).text


def test_the_metadata_are_what_the_hub_reads(run):
    data = card(run).data
    assert (data.base_model, data.base_model_relation) == ("some-org/base-model", "finetune")
    assert data.datasets == "zwhe99/DeepMath-103K"
    assert (data.library_name, data.pipeline_tag) == ("transformers", "text-generation")
    assert data.tags == ["trl", "grpo", "ces", "generated_from_trainer"]


def test_an_adapter_is_called_one_and_says_what_it_needs(tmp_path):
    write_adapter_run(tmp_path / "run", tmp_path / "base")
    recipe = (tmp_path / "run" / "recipe.yaml").read_text()
    adapter = card(tmp_path / "run", recipe=recipe)
    assert adapter.data.library_name == "peft"
    assert "# an adapter: needs peft" in adapter.text
    assert "The weights are a LoRA adapter, which is loaded together with its base." in adapter.text
    assert "without it, this adapter does not load" in adapter.text


def test_local_models_and_data_are_not_linked_to_the_hub_nor_their_paths_shown(run):
    recipe = RECIPE.replace("some-org/base-model", "/data/models/mine")
    recipe = recipe.replace("zwhe99/DeepMath-103K", "/data/sets/mine.jsonl")
    shown = card(run, recipe=f"{recipe}eval_dataset_name: /data/sets/held.jsonl\n")
    assert shown.data.base_model is None
    assert shown.data.datasets is None
    assert "`mine`, trained for" in shown.text
    assert "First set `model_name_or_path` (there `mine`) and `dataset_name` (there `mine.jsonl`)" in shown.text
    assert " and `eval_dataset_name` (there `held.jsonl`) in it" in shown.text
    assert "/data/" not in shown.content


def test_settings_that_do_not_count_are_not_shown(run):
    text = card(run, fields={"shaping": "entropy_advantage", "entropy_advantage_kappa": 3.0}).text
    assert "| `entropy_advantage_kappa` | 3.0 |" in text
    assert "ces_tau" not in text


@pytest.mark.parametrize(("loss", "own"), [("dapo", ["dapo"]), ("grpo", []), ("dr_grpo", ["dr_grpo"])])
def test_a_run_without_ces_is_tagged_by_its_loss(run, loss, own):
    shown = card(run, fields={"shaping": "none", "loss_type": loss})
    assert shown.data.tags == ["trl", "grpo", *own, "generated_from_trainer"]


def test_a_rule_of_ones_own_is_named_by_its_title_and_shown_with_its_settings(run, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs" / "examples")
    shown = card(run, fields={"shaping": "my_rule:rule", "shaping_kwargs": {"gamma": 0.2}})
    assert "with DAPO and a price on the entropy of correct completions, by [TRL]" in shown.text
    assert "| `shaping_kwargs` | {'gamma': 0.2} |" in shown.text
    assert shown.data.tags == ["trl", "grpo", "dapo", "generated_from_trainer"]


def test_the_system_prompt_of_the_training_is_in_the_lines_to_use_it(run):
    assert "boxed" in card(run).text  # the paper's, the default
    own = card(run, recipe=f"{RECIPE}system_prompt: Answer 'briefly'.\n").text
    assert """{'role': 'system', 'content': "Answer 'briefly'."}""" in own
    for none in ("null", '""'):
        assert "'system'" not in card(run, recipe=f"{RECIPE}system_prompt: {none}\n").text


def test_what_was_logged_as_nothing_is_left_out(tmp_path):
    run = write_run(tmp_path / "run")
    state = json.loads((run / "trainer_state.json").read_text())
    state["log_history"][0]["ces/sign_flip_share"] = None
    state["log_history"][1] |= {"ces/group_accuracy": None, "reward": 0.25}
    state["log_history"][3]["reward"] = 0.123456
    (run / "trainer_state.json").write_text(json.dumps(state))
    text = card(run).text
    assert "| `reward` | 0.25 | 0.1235 |" in text
    assert "sign_flip" not in text
    assert "group_accuracy" not in text


def test_cells_cannot_break_their_table(run):
    text = card(run, recipe=f'{RECIPE}prompt_column: "a|b\\nc"\n').text
    assert "| `prompt_column` | a\\|b c |" in text


def test_curves_are_drawn_and_shown(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run")
    assert write_card(run, "run") == [f"No curves.png: it needs matplotlib ({install_line('lab')})."]
    monkeypatch.undo()
    assert write_card(run, "run") == []
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "(curves.png)" in (run / "README.md").read_text()


def test_a_run_without_a_logged_accuracy_has_no_curves(tmp_path):
    run = write_run(tmp_path / "run", points=[(2, None, 20.0, 0.8)])
    assert write_card(run, "run") == ["No curves.png: no accuracy was logged."]


def test_the_run_records_settings_and_versions_and_no_token(tmp_path):
    args = CESConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, hub_token="hf_secretSECRETsecretSECRET", seed=5
    )
    write_facts(tmp_path, args)
    content = json.loads((tmp_path / "run.json").read_text())
    own = {"ces_tau", "ces_beta_correct", "ces_beta_incorrect", "ces_cap_incorrect", "ces_dynamic_multiplier",
           "ces_entropy_gradient", "ces_accuracy_reward", "ces_correct_threshold",
           "ces_allow_dynamic_sampling"}  # fmt: skip
    assert content["rule"] == "Conditional Entropy Shaping (CES)"
    assert set(content["settings"]) == {"shaping", *own, *TRAINING_FIELDS}
    assert content["settings"]["seed"] == 5
    assert content["settings"]["lr_scheduler_type"] == "linear"
    assert re.fullmatch(r"1\.\d+\.\d+", content["packages"]["trl"])
    assert "SECRET" not in (tmp_path / "run.json").read_text()


CES, CHENG = (find_rule(name).title for name in ("ces", "entropy_advantage"))
LOWERS = (
    "At the most uncertain tokens, CES ([arXiv 2605.19358](https://arxiv.org/abs/2605.19358)) lowers the entropy of "
)
RAISES = LOWERS.replace("lowers", "raises")
DEFAULTS = {"shaping": "ces", "loss_type": "dapo", "ces_tau": 0.02, "ces_beta_correct": 0.4, "ces_beta_incorrect": 0.4}


@pytest.mark.parametrize(
    ("rule", "settings", "recipe", "said"),
    [
        (None, {"loss_type": "grpo"}, {}, "GRPO (`loss_type` grpo)"),
        (CES, {}, {"dynamic_sampling": True}, f"DAPO, {CES} and dynamic sampling"),
        (
            CES,
            {"ces_dynamic_multiplier": False, "ces_entropy_gradient": False},
            {},
            f"DAPO and {CES} without the dynamic multiplier b and without the gradient through the entropy",
        ),
        (
            None,
            {},
            {"reward_funcs": ["accuracy_reward", "get_alp_length_reward", "my.get_kimi_length_reward", "my.accuracy"]},
            "DAPO, the reward `alp_length_reward` and the reward `kimi_length_reward`",
        ),
        (CES, {"ces_cap_incorrect": 2.0}, {}, f"DAPO and {CES} capped at |A| / 2.0 on incorrect completions"),
        (CHENG, {}, {}, f"DAPO and {CHENG}"),
        (None, {}, {"scale_rewards": "batch"}, "DAPO and rewards scaled by the batch"),
        (
            None,
            {},
            {"top_entropy_quantile": 0.2},
            "DAPO and a loss on the 20 % of the tokens with the highest entropy",
        ),
        (None, {}, {"entropy_coef": 0.01}, "DAPO and an entropy bonus"),
        (None, {}, {"entropy_coef": 0.01, "use_adaptive_entropy": True}, "DAPO and an adaptive entropy bonus"),
    ],
)
def test_the_card_says_what_was_done_and_nothing_that_was_not(rule, settings, recipe, said):
    assert trained_with(rule, {**DEFAULTS, **settings}, recipe) == said


@pytest.mark.parametrize(
    ("correct", "incorrect", "said"),
    [
        (0.4, 0.4, f"{LOWERS}correct completions and raises the entropy of incorrect completions."),
        (0.4, 0.0, f"{LOWERS}correct completions."),
        (0.0, 0.4, f"{RAISES}incorrect completions."),
        (-0.4, -0.4, f"{RAISES}correct completions and lowers the entropy of incorrect completions."),
        (-0.4, 0.4, f"{RAISES}correct completions and raises the entropy of incorrect completions."),
        (0.4, -0.4, f"{LOWERS}correct completions and lowers the entropy of incorrect completions."),
        (0.0, 0.0, "These settings change no token."),
    ],
)
def test_the_effect_follows_the_signs_of_the_strengths(correct, incorrect, said):
    settings = {**DEFAULTS, "ces_beta_correct": correct, "ces_beta_incorrect": incorrect}
    assert effect(settings) == said
    assert effect({**settings, "ces_tau": "auto"}) == said
    assert effect({**settings, "ces_tau": 0.0}) == "These settings change no token."
    assert effect({**settings, "shaping": "none"}) == ""
