"""Pushes to a local Hub during training: private, in the background, and never the end of a run."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest
import torch
from datasets import Dataset
from hub_server import TOKEN, Hub, Repo
from huggingface_hub import ModelCard, constants
from pushes import push
from safetensors.torch import save_file
from tiny import random_script, scripted_accuracy_reward, scripted_rollout, settings, tiny_model, tiny_tokenizer
from train_jobs import make_job
from transformers import TrainerCallback

from trl_ces import CESConfig, CESTrainer
from trl_ces.lab.hub.publisher import Publisher
from trl_ces.support.errors import UserError
from trl_ces.train.recipe import load_recipe
from trl_ces.train.run import run_to_its_end, save

pytestmark = pytest.mark.usefixtures("undrawn")
PROMPTS = ["1+1=", "2+2="]


def make(output_dir, **changes):
    """Publisher, trainer and recipe as in `trl-ces train`: four steps, checkpoints after the second and fourth."""
    output_dir.mkdir()
    (output_dir / "recipe.yaml").write_text(f"model_name_or_path: m\ndataset_name: d\noutput_dir: {output_dir}\n")
    wanted = {
        "max_steps": 4,
        "save_strategy": "steps",
        "save_steps": 2,
        "push_to_hub": True,
        "hub_model_id": "me/live",
    }
    args = CESConfig(**settings(output_dir, **wanted, **changes))
    publisher = Publisher(args)
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    trainer = CESTrainer(
        model=tiny_model(),
        reward_funcs=[scripted_accuracy_reward],
        args=args,
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=tiny_tokenizer(),
        rollout_func=scripted_rollout(script, 4),
    )
    trainer.add_callback(publisher)
    return publisher, trainer, load_recipe(output_dir / "recipe.yaml")


def train(publisher, trainer, recipe):
    publisher.check(recipe)
    assert run_to_its_end(trainer, recipe)
    save(trainer)
    publisher.finish()


def step_of(files):
    return json.loads(files["trainer_state.json"])["global_step"]


def test_checkpoints_and_the_end_are_pushed_and_nothing_is_public(hub, tmp_path, capsys):
    job = make(tmp_path / "run", hub_always_push=True)
    train(*job)
    repo = hub.repos["me/live"]
    assert repo.private is True
    messages = [message for _, message, _ in repo.commits]
    assert messages == ["Training in progress, step 2", "Training in progress, step 4", "Trained with trl_ces"]
    first, last = repo.commits[0][2], repo.files
    assert (step_of(first), step_of(last)) == (2, 4)
    assert first["model.safetensors"] == (tmp_path / "run" / "checkpoint-2" / "model.safetensors").read_bytes()
    assert last["model.safetensors"] == (tmp_path / "run" / "model.safetensors").read_bytes()
    assert first["model.safetensors"] != last["model.safetensors"]
    assert "trained for 2 optimizer steps of 4" in first["README.md"].decode()
    assert "| `learning_rate` | 0.001 |" in first["README.md"].decode()
    assert ModelCard(last["README.md"].decode()).data.tags == ["trl", "grpo", "ces", "generated_from_trainer"]
    for files in (first, last):
        assert "training_args.bin" not in files
        assert {"recipe.yaml", "run.json", "tokenizer.json", "config.json"} <= set(files)
    assert not list((tmp_path / "run").glob("_push-*"))
    assert f"Step 2 is on {hub.url}/me/live." in capsys.readouterr().out


def test_the_end_alone_where_the_strategy_says_so(hub, tmp_path):
    train(*make(tmp_path / "run", hub_strategy="end", hub_private_repo=False, hub_revision="v1"))
    repo = hub.repos["me/live"]
    assert repo.private is False
    assert [(branch, message) for branch, message, _ in repo.commits] == [("v1", "Trained with trl_ces")]


def test_a_whole_checkpoint_goes_along_where_the_strategy_says_so(hub, tmp_path):
    publisher, trainer, recipe = make(tmp_path / "run", hub_strategy="checkpoint", hub_always_push=True)
    run_to_its_end(trainer, recipe)
    publisher.wait()
    files = {name for name in hub.repos["me/live"].files if name.startswith("last-checkpoint/")}
    here = {file.name for file in (tmp_path / "run" / "checkpoint-4").iterdir()}
    assert "optimizer.pt" in here
    assert {name.removeprefix("last-checkpoint/") for name in files} == here - {"training_args.bin"}


PRIVATE = b"prompts and completions"


def leave_rollouts(run):
    """What a training leaves in its folder that holds prompts and completions, or can run code."""
    folders = [run, *run.glob("checkpoint-*")]
    files = [folder / name for folder in folders for name in ("rollout-0.safetensors", "training_args.bin")]
    files += [run / name / "step-2-process-0.safetensors" for name in ("_nonfinite", "nonfinite")]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        save_file({"completion_ids": torch.zeros(2)}, file, metadata={"x": PRIVATE.decode()})


def test_rollouts_stay_here(hub, tmp_path):
    publisher, trainer, recipe = make(tmp_path / "run", hub_always_push=True)

    class Leave(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            leave_rollouts(tmp_path / "run")

    trainer.callback_handler.callbacks.insert(0, Leave())
    train(publisher, trainer, recipe)
    for place in ("run", "run/checkpoint-4"):
        assert push(tmp_path / place, "--repo_id", "me/live") == 0
    commits = [files for _, _, files in hub.repos["me/live"].commits]
    assert len(commits) == 4  # the first of these two finds everything there
    for files in commits:
        assert [name for name, content in files.items() if PRIVATE in content or "rollout" in name] == []


def test_rows_of_a_broken_step_stay_here_when_the_trainer_pushes_by_itself(hub, tmp_path):
    publisher, trainer, _ = make(tmp_path / "run")
    trainer.remove_callback(publisher)
    trainer.args.push_to_hub = True  # as in a script of one's own
    trainer.init_hf_repo()
    trainer.model.lm_head.weight.register_hook(
        lambda gradient: gradient * float("nan") if trainer.state.global_step == 1 else gradient
    )
    trainer.train()
    trainer.push_to_hub()
    kept = {file.relative_to(tmp_path / "run").as_posix() for file in tmp_path.rglob("*-process-0.safetensors")}
    assert kept == {"_nonfinite/step-2-process-0.safetensors"}
    assert "model.safetensors" in hub.repos["me/live"].files
    assert [name for name in hub.repos["me/live"].files if "nonfinite" in name] == []


def test_a_hub_that_fails_at_everything_does_not_touch_the_training(hub, tmp_path, capsys):
    for method in ("GET", "POST", "PUT"):
        hub.fail(method, "", 500, times=10_000)
    publisher, trainer, recipe = make(tmp_path / "run")
    train(publisher, trainer, recipe)
    said = capsys.readouterr().out
    assert "The Hub does not answer now (" in said
    assert "The push of step 2 failed: " in said
    assert "The push to the Hub failed: " in said
    assert f"  trl-ces push {tmp_path / 'run'} --repo_id me/live\n" in said
    assert trainer.state.global_step == 4
    assert (tmp_path / "run" / "model.safetensors").is_file()
    hub.faults.clear()
    assert push(tmp_path / "run", "--repo_id", "me/live") == 0
    assert step_of(hub.repos["me/live"].files) == 4


def test_nobody_at_the_hubs_address_does_not_touch_the_training(hub, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    train(*make(tmp_path / "run", hub_strategy="end"))
    said = capsys.readouterr().out
    assert "The Hub does not answer now (" in said
    assert "The push to the Hub failed: " in said
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_a_hub_that_refuses_is_told_before_the_training(hub, tmp_path, monkeypatch):
    hub.repos["me/live"] = Repo(private=False)
    publisher, _, recipe = make(tmp_path / "run")
    with pytest.raises(UserError, match=r"is public.+`hub_private_repo: false`.+train without `push_to_hub`"):
        publisher.check(recipe)
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    with pytest.raises(UserError, match=r"cannot be opened: Invalid cred.+\(401\).+train without `push_to_hub`"):
        publisher.check(recipe)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(UserError, match="There is no token for the Hub"):
        publisher.check(recipe)
    recipe = dataclasses.replace(recipe, env={"WANDB_API_KEY": "0123456789abcdef"})
    with pytest.raises(UserError, match=r"`env` holds WANDB_API_KEY, and recipe\.yaml is pushed") as caught:
        publisher.check(recipe)
    assert "0123456789abcdef" not in str(caught.value)


def test_a_push_outlives_its_checkpoint_and_the_next_is_left_out_meanwhile(hub, tmp_path, monkeypatch):
    _, trainer, recipe = make(tmp_path / "run", hub_strategy="end")
    run_to_its_end(trainer, recipe)
    publisher = Publisher(CESConfig(**settings(tmp_path / "run", hub_model_id="me/live")))
    weights = (tmp_path / "run" / "checkpoint-2" / "model.safetensors").read_bytes()
    gate = threading.Event()
    hub.fail("POST", "/preupload/", gate)
    state = trainer.state
    state.global_step = 2
    publisher.on_save(None, state, None)
    shutil.rmtree(tmp_path / "run" / "checkpoint-2")  # `save_total_limit`
    state.global_step = 4
    publisher.on_save(None, state, None)  # while the first is on its way: left out
    gate.set()
    publisher.wait()
    repo = hub.repos["me/live"]
    assert [message for _, message, _ in repo.commits] == ["Training in progress, step 2"]
    assert repo.files["model.safetensors"] == weights


def test_the_end_of_the_training_waits_for_no_push_and_the_last_push_does(hub, tmp_path):
    gate = threading.Event()
    hub.fail("POST", "/preupload/", gate)
    publisher, trainer, recipe = make(tmp_path / "run", hub_always_push=True)
    run_to_its_end(trainer, recipe)  # the other processes go on from here, too
    assert hub.repos["me/live"].commits == []
    gate.set()
    save(trainer)
    publisher.finish()
    assert [message[-6:] for _, message, _ in hub.repos["me/live"].commits] == ["step 2", "step 4", "rl_ces"]


def test_a_damaged_checkpoint_is_not_pushed(hub, tmp_path, capsys):
    _, trainer, recipe = make(tmp_path / "run", hub_strategy="end")
    run_to_its_end(trainer, recipe)
    publisher = Publisher(CESConfig(**settings(tmp_path / "run", hub_model_id="me/live")))
    (tmp_path / "run" / "checkpoint-4" / "model.safetensors").write_bytes(b"\0" * 100)
    publisher.on_save(None, trainer.state, None)
    publisher.wait()
    assert "Step 4 is not pushed: " in capsys.readouterr().out
    assert hub.repos == {}
    assert not list((tmp_path / "run").glob("_push-*"))


@pytest.mark.slow
def test_trl_ces_train_pushes_to_HF_ENDPOINT(tmp_path):
    recipe, output = make_job(tmp_path)
    with Hub() as hub:
        environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
        environment |= {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path)}
        words = ["train", "--config", str(recipe), "--push_to_hub", "true", "--save_steps", "1"]
        command = [sys.executable, "-m", "trl_ces.cli.main", *words]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
        assert result.returncode == 0, result.stderr
        repo = hub.repos["me/out"]
        assert repo.private is True
        assert repo.commits[0][1] == "Training in progress, step 1"
        assert repo.commits[-1][1] == "Trained with trl_ces"
        assert repo.files["recipe.yaml"] == (output / "recipe.yaml").read_bytes()
        assert {"curves.png", "report.html", "model.safetensors"} <= set(repo.files)
        assert f"Pushed to {hub.url}/me/out" in result.stdout
        assert TOKEN not in result.stdout + result.stderr
        assert not [name for name, content in repo.files.items() if TOKEN.encode() in content]
