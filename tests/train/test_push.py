"""Test that the final push is private and excludes checkpoints, and that a failed push does not fail the run."""

import os
import subprocess
import sys
import time

import pytest
from hub_server import TOKEN, Hub, Repo
from huggingface_hub import constants
from tiny import settings
from train_jobs import make_job

from trl_ces import CESConfig
from trl_ces.support.errors import UserError
from trl_ces.train.push import Push, check_push

PUSHED = ("README.md", "config.json", "model.safetensors", "recipe.yaml")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Start a local Hub, and configure the client as if HF_ENDPOINT had been set at import."""
    with Hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        yield server


@pytest.fixture
def run(tmp_path):
    """Create the files of a finished training run."""
    folder = tmp_path / "my run"
    for name in (*PUSHED, "training_args.bin"):
        for directory in (folder, folder / "checkpoint-2", folder / "_nonfinite"):
            directory.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(f"{directory.name}/{name}".encode())
    return folder


def make_push(run, **changes):
    return Push(CESConfig(**settings(run, push_to_hub=True, hub_model_id="me/live", **changes)))


def test_the_model_is_pushed_privately_without_checkpoints_or_pickles(hub, run, capsys):
    push = make_push(run)
    push.open()
    push.upload()
    repo = hub.repos["me/live"]
    assert repo.private
    assert repo.files == {name: f"my run/{name}".encode() for name in PUSHED}
    assert capsys.readouterr().out == f"Pushed to {hub.url}/me/live.\n"


@pytest.mark.parametrize(("setting", "private"), [(None, True), (True, True), (False, False)])
def test_a_push_is_private_unless_hub_private_repo_is_false(hub, run, setting, private):
    make_push(run, hub_private_repo=setting).open()
    assert hub.repos["me/live"].private == private


def test_the_model_can_be_pushed_to_a_branch(hub, run):
    push = make_push(run, hub_revision="v1")
    push.open()
    push.upload()
    assert set(hub.repos["me/live"].branches["v1"]) == set(PUSHED)
    assert hub.repos["me/live"].files == {}


def test_the_trainer_does_not_push_the_model_itself(run):
    args = CESConfig(**settings(run, push_to_hub=True))
    assert Push(args).repo_id == "my run"
    assert args.push_to_hub is False


def test_a_public_or_unwritable_repository_is_rejected_before_training(hub, run, monkeypatch):
    hub.repos["me/live"] = Repo(private=False)
    with pytest.raises(UserError, match=r"me/live is public.+`hub_private_repo: false`.+`hub_model_id`"):
        make_push(run).open()
    with pytest.raises(UserError, match=r"other/live cannot be accessed \(403.*`push_to_hub: false`"):
        Push(CESConfig(**settings(run, hub_model_id="other/live"))).open()
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    with pytest.raises(UserError, match=r"me/live cannot be accessed \(.*401"):
        make_push(run).open()


def test_a_failed_push_prints_the_command_to_push_later(hub, run, capsys):
    hub.failing = True
    push = make_push(run, hub_revision="v1")
    push.open()
    push.upload()
    printed = capsys.readouterr().out
    assert "The Hub is not available (" in printed
    assert "The push to the Hub failed (" in printed
    assert printed.endswith(
        f"  hf upload me/live '{run}' . --private --revision v1 --exclude 'checkpoint-*' --exclude '_*' "
        "--exclude '.*lock' --exclude training_args.bin\n"
    )


def test_nothing_is_pushed_to_a_repository_that_becomes_public_during_training(hub, run, capsys):
    push = make_push(run)
    push.open()
    hub.repos["me/live"] = Repo(private=False)
    push.upload()
    assert hub.repos["me/live"].files == {}
    assert "The push to the Hub failed (me/live is public" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("repo", "variables", "message"),
    [
        ("me//live", {"HF_TOKEN": TOKEN}, "'me//live' is not a valid repository name"),
        ("me/live", {}, "No token for the Hub was found: run `hf auth login`"),
    ],
)
def test_repository_name_and_token_are_checked_offline(monkeypatch, tmp_path, repo, variables, message):
    with pytest.raises(UserError, match="HF_HUB_OFFLINE prevents"):  # set by tests/conftest.py
        check_push("me/live")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        check_push(repo)
    if "HF_TOKEN" in variables:
        check_push("me/live")


@pytest.mark.slow
def test_trl_ces_train_pushes_to_HF_ENDPOINT(tmp_path):
    recipe, output = make_job(tmp_path)
    with Hub() as hub:
        variables = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
        variables |= {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path)}
        args = ["train", "--config", str(recipe), "--push_to_hub", "true", "--save_steps", "1"]
        command = [sys.executable, "-m", "trl_ces.cli.main", *args]
        result = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=280, check=False)
    assert result.returncode == 0, result.stderr
    repo = hub.repos["me/out"]
    assert repo.private
    assert repo.files["recipe.yaml"] == (output / "recipe.yaml").read_bytes()
    assert {"README.md", "model.safetensors", "run.json"} <= set(repo.files)
    assert not [name for name in repo.files if name.startswith("checkpoint") or name == "training_args.bin"]
    assert 'from_pretrained("me/out")' in repo.files["README.md"].decode()
    assert f"Pushed to {hub.url}/me/out" in result.stdout
    assert TOKEN not in result.stdout + result.stderr
    assert not [name for name, content in repo.files.items() if TOKEN.encode() in content]
