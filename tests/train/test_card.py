"""Test model cards generated from the files of a run: model, data, settings, usage and citations."""

import json
import math
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from peft import LoraConfig, get_peft_model
from tiny import save_tiny, settings, tiny_model, tiny_tokenizer

from trl_ces import CESConfig
from trl_ces.support.imports import install_line
from trl_ces.train import card as cards
from trl_ces.train.card import TRAINING_FIELDS, write_card, write_facts

RECIPE = """model_name_or_path: some-org/base-model
dataset_name: zwhe99/DeepMath-103K
output_dir: /home/someone/out
max_train_samples: 2500
shaping: ces
ces_tau: 0.02
learning_rate: 2.0e-7
"""
POINTS = [(2, 0.5, 20.0, 0.8), (4, 0.6, 18.0, 0.6), (6, 0.7, 15.0, 0.4), (8, 0.8, 12.0, 0.2)]


def write_state(folder, points=POINTS):
    """Write a run's trainer_state.json; each point is (step, accuracy, tokens, bits)."""
    folder.mkdir(parents=True, exist_ok=True)
    history = [
        {"step": step, "rewards/accuracy_reward/mean": accuracy, "completions/mean_length": length,
         "entropy": bits * math.log(2)}
        for step, accuracy, length, bits in points
    ]  # fmt: skip
    state = {"log_history": history, "global_step": points[-1][0], "max_steps": 8}
    (folder / "trainer_state.json").write_text(json.dumps(state))


@pytest.fixture
def run(tmp_path):
    write_state(tmp_path / "run")
    save_tiny(tmp_path / "run", seed=3)
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def without_matplotlib(monkeypatch):
    """Simulate an environment without matplotlib."""
    monkeypatch.setattr(cards, "find_spec", lambda name: None)


def card(run, repo="me/my-model", recipe=RECIPE, changed=None, **fields):
    """Write and return the model card of `run`; `fields` are passed to `CESConfig`, and `changed` updates run.json."""
    (run / "recipe.yaml").write_text(recipe)
    write_facts(
        run, CESConfig(**{**settings(run), "ces_tau": 0.02, "max_completion_length": 8, **fields}), "accuracy_reward"
    )
    facts = json.loads((run / "run.json").read_text())
    facts["settings"] |= changed or {}
    facts["packages"] |= {"trl_ces": "0.1.0", "torch": "2.13.0", "vllm": "not installed"}
    (run / "run.json").write_text(json.dumps(facts))
    write_card(run, repo)
    return ModelCard((run / "README.md").read_text())


def test_the_card_contains_settings_results_and_citations(run):
    recipe = f'{RECIPE}push_to_hub: true\nprompt_column: "a|b\\nc"\n'
    model_card = card(run, recipe=recipe, gradient_accumulation_steps=12, changed={"world_size": 2})
    for part in (
        "[some-org/base-model](https://huggingface.co/some-org/base-model), trained for 8 optimizer steps on "
        "[zwhe99/DeepMath-103K](https://huggingface.co/datasets/zwhe99/DeepMath-103K) with DAPO and Conditional ",
        "| `ces_tau` | 0.02 |",
        "| `steps_per_generation` | 12 |",  # computed; the recipe does not set it
        "| `max_train_samples` | 2500 |",
        "| `prompt_column` | a\\|b c |",
        "| `completions/mean_length` | 20 | 12 |",  # first and last logged values
        'from_pretrained("me/my-model")',
        "--config recipe.yaml --output_dir my-run --push_to_hub false --num_processes 2\n",
        "| `torch` | 2.13.0 |",
        "The license of [some-org/base-model](https://huggingface.co/some-org/base-model) applies",
        "wei2026taming",
        "yu2025dapo",
        "vonwerra2020trl",
    ):
        assert part in model_card.text, part
    for part in ("| `vllm` |", "/home/someone", "\n\n\n", "# an adapter", "curves.png"):
        assert part not in model_card.text
    data = model_card.data
    assert (data.base_model, data.base_model_relation) == ("some-org/base-model", "finetune")
    assert (data.datasets, data.library_name) == ("zwhe99/DeepMath-103K", "transformers")
    assert data.tags == ["trl", "grpo", "ces", "generated_from_trainer"]


def test_the_card_of_an_adapter_explains_how_to_load_it(tmp_path):
    tiny_model(seed=3).save_pretrained(tmp_path / "base")
    model = get_peft_model(tiny_model(seed=3), LoraConfig(target_modules=["q_proj"], r=4))
    write_state(tmp_path / "run")
    model.save_pretrained(tmp_path / "run")
    tiny_tokenizer().save_pretrained(tmp_path / "run")
    adapter = card(tmp_path / "run", recipe=RECIPE.replace("some-org/base-model", str(tmp_path / "base")))
    assert adapter.data.library_name == "peft"
    assert "# an adapter; requires peft" in adapter.text
    assert "The weights are a LoRA adapter, which is loaded together with its base model." in adapter.text
    assert "without it, the adapter cannot be loaded" in adapter.text


def test_local_models_and_data_are_named_without_links_or_paths(run):
    recipe = RECIPE.replace("some-org/base-model", "/data/models/mine")
    recipe = recipe.replace("zwhe99/DeepMath-103K", "/data/sets/mine.jsonl")
    model_card = card(run, recipe=recipe)
    assert (model_card.data.base_model, model_card.data.datasets) == (None, None)
    assert "`mine`, trained for" in model_card.text
    assert "/data/" not in model_card.content


def test_only_the_settings_of_the_selected_rule_are_shown(run):
    text = card(run, shaping="entropy_advantage", entropy_advantage_kappa=3.0).text
    assert "| `entropy_advantage_kappa` | 3.0 |" in text
    assert "ces_tau" not in text


@pytest.mark.parametrize(("loss", "loss_tags"), [("dapo", ["dapo"]), ("grpo", [])])
def test_a_run_without_ces_is_tagged_with_its_loss(run, loss, loss_tags):
    assert card(run, shaping="none", loss_type=loss).data.tags == ["trl", "grpo", *loss_tags, "generated_from_trainer"]


def test_a_custom_rule_is_shown_with_its_title_and_settings(run, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs" / "examples")
    model_card = card(run, shaping="my_rule:rule", shaping_kwargs={"gamma": 0.2})
    assert "with DAPO and a penalty on the entropy of correct completions, using [TRL]" in model_card.text
    assert "| `shaping_kwargs` | {'gamma': 0.2} |" in model_card.text


def test_the_usage_code_contains_the_training_system_prompt(run):
    assert "boxed" in card(run).text  # the default is the paper's system prompt
    custom = card(run, recipe=f"{RECIPE}system_prompt: Answer 'briefly'.\n").text
    assert """{'role': 'system', 'content': "Answer 'briefly'."}""" in custom
    assert "'system'" not in card(run, recipe=f"{RECIPE}system_prompt: null\n").text


def test_metrics_without_a_value_are_omitted(run):
    state = json.loads((run / "trainer_state.json").read_text())
    state["log_history"][0]["ces/selected_tokens"] = None
    state["log_history"][1] |= {"ces/group_accuracy": None, "reward": 0.25}
    state["log_history"][3]["reward"] = 0.123456
    (run / "trainer_state.json").write_text(json.dumps(state))
    text = card(run).text
    assert "| `reward` | 0.25 | 0.1235 |" in text
    assert "selected_tokens" not in text
    assert "group_accuracy" not in text


def test_the_card_shows_curves_if_matplotlib_is_installed(run, monkeypatch):
    card(run)
    assert write_card(run, "run") == f"No curves.png: matplotlib is missing ({install_line('lab')})."
    monkeypatch.undo()
    assert write_card(run, "run") is None
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "(curves.png)" in (run / "README.md").read_text()
    write_state(run, [(2, None, 20.0, 0.8)])
    assert write_card(run, "run") == "No curves.png: no accuracy was logged."


def test_run_json_contains_settings_and_versions_but_no_token(tmp_path):
    write_facts(
        tmp_path, CESConfig(**settings(tmp_path, hub_token="hf_secretSECRETsecretSECRET", seed=5)), "accuracy_reward"
    )
    content = json.loads((tmp_path / "run.json").read_text())
    assert content["rule"] == "Conditional Entropy Shaping (CES)"
    assert {"shaping", "ces_tau", "ces_beta_correct", *TRAINING_FIELDS} <= set(content["settings"])
    assert content["settings"]["seed"] == 5
    assert re.fullmatch(r"1\.\d+\.\d+", content["packages"]["trl"])
    assert "SECRET" not in (tmp_path / "run.json").read_text()
