"""The model card says what was trained; a push that fails costs nothing but the push."""

import dataclasses
from typing import ClassVar

import pytest
from huggingface_hub import ModelCard

from trl_ces.hub import model_card, push
from trl_ces.recipe import load_recipe

OVERRIDES = {
    "model_name_or_path": ["some-org/base-model"],
    "output_dir": ["out/my-model"],
    "dataset_name": ["zwhe99/DeepMath-103K"],
    "max_train_samples": ["2500"],
    "use_cpu": ["true"],
    "bf16": ["false"],
}
CITATION = "@article{paper, eprint = {arXiv:2605.19358}}"
LOG = [
    {"loss": 0.1, "reward": 0.25, "ces/group_accuracy": 0.5},
    {"reward": 0.5, "entropy": 0.123456, "ces/sign_flip_share": None},
    {"runtime": 1},
]


def card(**overrides):
    recipe = load_recipe(None, {**OVERRIDES, **{key: [str(value)] for key, value in overrides.items()}})
    return model_card(recipe, recipe.training_config(1), LOG, 12, CITATION)


def test_the_card_holds_settings_results_and_citation():
    text = card(ces_tau=0.02, ces_beta_incorrect=0.7)
    for part in (
        "| `shaping` | ces |",
        "| `ces_tau` | 0.02 |",
        "| `ces_beta_correct` | 0.4 |",
        "| `ces_beta_incorrect` | 0.7 |",
        "| `ces_dynamic_multiplier` | True |",
        "| `lr_scheduler_type` | linear |",
        "| `max_train_samples` | 2500 |",
        "| `reward` | 0.5 |",  # the last one logged
        "| `entropy` | 0.1235 |",
        "trained for 12 optimizer steps on `zwhe99/DeepMath-103K`",
        'AutoModelForCausalLM.from_pretrained("my-model")',
        CITATION,
        "vonwerra2020trl",
    ):
        assert part in text, part
    assert "ces/sign_flip_share" not in text  # nothing was there to be averaged


def test_the_metadata_are_what_the_hub_reads():
    data = ModelCard(card()).data
    assert data.base_model == "some-org/base-model"
    assert data.datasets == "zwhe99/DeepMath-103K"
    assert data.library_name == "transformers"
    assert set(data.tags) == {"trl", "ces", "grpo", "generated_from_trainer"}
    assert ModelCard(card(use_peft="true")).data.library_name == "peft"


def test_local_models_and_data_are_not_linked_to_the_hub(tmp_path):
    data = ModelCard(card(model_name_or_path=tmp_path, dataset_name="arithmetic")).data
    assert data.base_model is None
    assert data.datasets is None


@pytest.mark.parametrize(
    ("shaping", "shown", "hidden"),
    [
        ("none", "DAPO, without shaping", "ces_tau"),
        ("entropy_advantage", "| `entropy_advantage_kappa` | 2.0 |", "ces_tau"),
    ],
)
def test_settings_that_do_not_count_are_not_shown(shaping, shown, hidden):
    text = card(shaping=shaping)
    assert shown in text
    assert hidden not in text


@dataclasses.dataclass
class Arguments:
    hub_model_id: str | None = "me/model"
    hub_token: str | None = None
    hub_private_repo: bool | None = None
    hub_revision: str | None = None


class RecordingApi:
    calls: ClassVar[list] = []

    def __init__(self, token=None):
        pass

    def create_repo(self, repo, **kwargs):
        self.calls.append(("create_repo", repo, kwargs))
        return type("Url", (), {"repo_id": f"me/{repo.split('/')[-1]}"})

    def create_branch(self, repo, **kwargs):
        self.calls.append(("create_branch", repo, kwargs))

    def upload_folder(self, **kwargs):
        self.calls.append(("upload_folder", kwargs["repo_id"], kwargs))


def test_a_push_leaves_the_checkpoints_at_home(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("huggingface_hub.HfApi", RecordingApi)
    monkeypatch.setattr(RecordingApi, "calls", [])
    arguments = Arguments(hub_model_id=None, hub_private_repo=True, hub_revision="v1")
    assert push(tmp_path, arguments) is True
    names = [(name, repo) for name, repo, _ in RecordingApi.calls]
    repo = f"me/{tmp_path.name}"
    assert names == [("create_repo", tmp_path.name), ("create_branch", repo), ("upload_folder", repo)]
    assert RecordingApi.calls[0][2]["private"] is True
    upload = RecordingApi.calls[2][2]
    assert upload["ignore_patterns"] == ["checkpoint-*", "_*"]
    assert (upload["folder_path"], upload["revision"]) == (tmp_path, "v1")
    assert f"https://huggingface.co/{repo}" in capsys.readouterr().out


@pytest.mark.parametrize("error", [OSError("no route\nto host"), ValueError("bad name")])
def test_a_failed_push_says_how_to_push_again(tmp_path, monkeypatch, capsys, error):
    def fail(self, repo, **kwargs):
        raise error

    monkeypatch.setattr("huggingface_hub.HfApi", RecordingApi)
    monkeypatch.setattr(RecordingApi, "create_repo", fail)
    assert push(tmp_path, Arguments(hub_private_repo=True)) is False
    said = capsys.readouterr().out
    assert str(error).splitlines()[0] in said
    assert f"hf upload me/model {tmp_path} --exclude 'checkpoint-*' --private" in said


def test_a_push_without_a_network_is_a_failed_push(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    assert push(tmp_path, Arguments()) is False  # HF_HUB_OFFLINE is set
    assert "hf upload me/model" in capsys.readouterr().out
