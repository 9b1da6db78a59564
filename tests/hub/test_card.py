"""The model card tells what a run's files hold: what was trained on what, how to use it, whom to cite."""

import json
import re

import pytest
from hub_runs import RECIPE, RECORDED, write_adapter_run, write_run
from huggingface_hub import ModelCard

from trl_ces import CESConfig
from trl_ces.hub.card import model_card
from trl_ces.hub.facts import SHAPING_FIELDS, TRAINING_FIELDS, find_licence, read_facts, write_facts
from trl_ces.support.errors import UserError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("hub") / "run")


def card(run, repo="me/my-model", recipe=None, recorded=RECORDED, **more):
    """The card of `run` with another recipe.yaml and run.json."""
    (run / "recipe.yaml").write_text(RECIPE if recipe is None else recipe)
    (run / "run.json").unlink(missing_ok=True)
    if recorded:
        (run / "run.json").write_text(json.dumps(recorded))
    return ModelCard(str(model_card(read_facts(run), repo, **more)))


def test_the_card_holds_settings_results_and_citations(run):
    text = card(run).text
    for part in (
        "[some-org/base-model](https://huggingface.co/some-org/base-model), trained for 8 optimizer steps on "
        "[zwhe99/DeepMath-103K](https://huggingface.co/datasets/zwhe99/DeepMath-103K) with Conditional Entropy",
        "| `shaping` | ces |",
        "| `ces_tau` | 0.02 |",
        "| `ces_beta_correct` | 0.4 |",
        "| `steps_per_generation` | 12 |",  # recorded; the recipe does not have it
        "| `max_train_samples` | 2500 |",
        "| `completions/mean_length` | 20 | 12 |",  # first and last logged
        'from_pretrained("me/my-model")',
        "trl-ces train --config recipe.yaml --output_dir my-run --num_processes 2",
        "With `trl_ces` 0.1.0, in a folder",
        "| torch | 2.13.0 |",
        "wei2026taming",
        "yu2025dapo",
        "vonwerra2020trl",
    ):
        assert part in text, part
    assert "| vllm |" not in text
    assert "/home/someone" not in text
    assert "\n\n\n" not in text
    assert not re.search(r"[^\n]\n## ", text)


def test_who_trains_it_again_does_not_push_to_where_it_came_from(run):
    assert "--num_processes 2 --push_to_hub false\n" in card(run, recipe=f"{RECIPE}push_to_hub: true\n").text
    assert "push_to_hub" not in card(run).text


def test_the_metadata_are_what_the_hub_reads(run, tmp_path):
    data = card(run).data
    assert (data.base_model, data.base_model_relation) == ("some-org/base-model", "finetune")
    assert data.datasets == "zwhe99/DeepMath-103K"
    assert (data.library_name, data.pipeline_tag) == ("transformers", "text-generation")
    assert data.tags == ["trl", "grpo", "ces", "generated_from_trainer"]
    assert (data.eval_results, data.license) == (None, None)


def test_an_adapter_is_called_one_and_says_what_it_needs(tmp_path):
    write_adapter_run(tmp_path / "run", tmp_path / "base")
    adapter = model_card(read_facts(tmp_path / "run"), "me/lora")
    assert adapter.data.library_name == "peft"
    assert "# an adapter: needs peft" in adapter.text
    assert "without it, this adapter does not load" in adapter.text
    merged = model_card(read_facts(tmp_path / "run"), "me/lora", merged=True)
    assert merged.data.library_name == "transformers"
    assert "needs peft" not in merged.text


def test_local_models_and_data_are_not_linked_to_the_hub_nor_their_paths_shown(run):
    paths = {"some-org/base-model": "/data/models/mine", "zwhe99/DeepMath-103K": "/data/sets/mine.jsonl"}
    recipe = RECIPE
    for name, path in paths.items():
        recipe = recipe.replace(name, path)
    shown = card(run, recipe=recipe)
    assert shown.data.base_model is None
    assert shown.data.datasets is None
    assert "`mine`, trained for" in shown.text
    assert "First set `model_name_or_path` (there 'mine') and `dataset_name` (there 'mine.jsonl')" in shown.text
    assert "/data/" not in shown.content


@pytest.mark.parametrize(
    ("shaping", "shown", "hidden"),
    [
        ("none", "DAPO, without shaping", "ces_tau"),
        ("entropy_advantage", "| `entropy_advantage_kappa` | 3.0 |", "ces_tau"),
    ],
)
def test_settings_that_do_not_count_are_not_shown(run, shaping, shown, hidden):
    recorded = {"settings": {"shaping": shaping, "entropy_advantage_kappa": 3.0, "ces_tau": 0.02}, "packages": {}}
    text = card(run, recorded=recorded).text
    assert shown in text
    assert hidden not in text
    assert "CES shapes" not in text


def test_a_run_without_records_shows_its_recipe(run):
    text = card(run, recorded=None).text
    assert "| `ces_tau` | 0.02 |" in text
    assert "| `learning_rate` | 2e-07 |" in text
    assert "steps_per_generation" not in text
    assert "The run did not record its packages." in text


def test_the_system_prompt_of_the_training_is_in_the_lines_to_use_it(run):
    assert "boxed" in card(run).text  # the paper's, the default
    own = card(run, recipe=f"{RECIPE}system_prompt: Answer 'briefly'.\n").text
    assert """{'role': 'system', 'content': "Answer 'briefly'."}""" in own
    assert "'system'" not in card(run, recipe=f"{RECIPE}system_prompt: null\n").text


def test_what_was_logged_as_nothing_is_left_out(run, tmp_path):
    state = json.loads((run / "trainer_state.json").read_text())
    state["log_history"][0]["ces/sign_flip_share"] = None
    state["log_history"][1] |= {"ces/group_accuracy": None, "reward": 0.25}
    state["log_history"][3]["reward"] = 0.123456
    other = write_run(tmp_path / "run")
    (other / "trainer_state.json").write_text(json.dumps(state))
    text = card(other).text
    assert "| `reward` | 0.25 | 0.1235 |" in text
    assert "sign_flip" not in text
    assert "group_accuracy" not in text


def test_cells_cannot_break_their_table(run):
    text = card(run, recipe=f'{RECIPE}prompt_column: "a|b\\nc"\n').text
    assert "| `prompt_column` | a\\|b c |" in text


def test_the_run_records_settings_and_versions_and_no_token(tmp_path):
    args = CESConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, hub_token="hf_secretSECRETsecretSECRET", seed=5
    )
    write_facts(tmp_path, args)
    content = json.loads((tmp_path / "run.json").read_text())
    assert set(content["settings"]) == {"shaping", *SHAPING_FIELDS["ces"], *TRAINING_FIELDS}
    assert content["settings"]["seed"] == 5
    assert content["settings"]["lr_scheduler_type"] == "linear"
    assert re.fullmatch(r"1\.\d+\.\d+", content["packages"]["trl"])
    assert "SECRET" not in (tmp_path / "run.json").read_text()


@pytest.mark.parametrize("missing", ["recipe.yaml", "trainer_state.json"])
def test_a_folder_without_recipe_or_log_is_refused(tmp_path, missing):
    folder = write_run(tmp_path / "run")
    (folder / missing).unlink()
    with pytest.raises(UserError, match=f"holds no {missing}: name an output directory"):
        read_facts(folder)


def test_the_licence_of_a_local_base_is_read_from_its_card(tmp_path, run):
    (tmp_path / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Base\n")
    licence = find_licence(str(tmp_path), ask_the_hub=False)
    assert licence == {"license": "apache-2.0"}
    shown = card(run, licence=licence)
    assert shown.data.license == "apache-2.0"
    assert "apache-2.0, that of [some-org/base-model]" in shown.text
    assert find_licence("some-org/base-model", ask_the_hub=True) == {}  # HF_HUB_OFFLINE is set
    assert "which is not stated here: look it up" in card(run).text
