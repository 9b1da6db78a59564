"""Test that local paths are distinguished from Hub ids, and that an unreachable Hub is tried only once."""

import os
import re

import pytest
from huggingface_hub import constants

from trl_ces.cli import train
from trl_ces.support.hub import is_local, nearest_model, try_hub_once


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("gpt2", False),
        ("owner/model", False),
        ("~/model", True),
        ("/data/model", True),
        ("runs/a/b", True),
        ("data/train.jsonl", True),
        ("here/model", True),
        ("here/gone", False),  # a Hub id, although the folder `here` exists
    ],
)
def test_existing_paths_and_invalid_hub_ids_are_local(tmp_path, monkeypatch, name, local):
    (tmp_path / "here" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert is_local(name) == local


@pytest.mark.parametrize("name", ["runs/quickstart/cse", "runs/quikstart/ces", "runs/quickstart"])
def test_the_saved_model_with_the_most_similar_path_is_suggested(tmp_path, monkeypatch, name):
    for model in ("ces", "dapo"):
        (tmp_path / "runs" / "quickstart" / model).mkdir(parents=True)
        (tmp_path / "runs" / "quickstart" / model / "config.json").touch()
    (tmp_path / "runs" / "quickstart" / "cse.log").touch()
    monkeypatch.chdir(tmp_path)
    assert nearest_model(name) == " Did you mean `runs/quickstart/ces`?"
    assert nearest_model("nothing/like/it") == ""


def test_an_unreachable_hub_is_tried_once(monkeypatch, capsys):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # no server listens on this port
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    try_hub_once("/data/model")
    assert (capsys.readouterr().err, os.environ["HF_HUB_OFFLINE"]) == ("", "0")
    try_hub_once("/data/model", "owner/data")
    assert re.fullmatch(
        r"http://127.0.0.1:9 does not respond \(.+\); using only the cache.\n", capsys.readouterr().err
    )
    assert (constants.is_offline_mode(), os.environ["HF_HUB_OFFLINE"]) == (True, "1")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ([], [("owner/model", "owner/data")]),
        (["--push_to_hub", "true"], []),  # offline mode would also prevent the push
        (["--model_builder", "trl_ces.lab.tasks.smollm2.fetch"], []),  # the builder fetches the model
    ],
)
def test_train_checks_the_hub_for_the_model_and_the_data(tmp_path, monkeypatch, changes, names):
    calls = []
    monkeypatch.setattr(train, "try_hub_once", lambda *names: calls.append(names))
    monkeypatch.setattr(train, "check", lambda *_: None)
    monkeypatch.setattr(train, "run_training", lambda *_: 0)
    recipe = tmp_path / "my.yaml"
    recipe.write_text(f"model_name_or_path: owner/model\ndataset_name: owner/data\noutput_dir: {tmp_path}/out\n")
    assert train.run(["--config", str(recipe), "--use_cpu", "true", *changes]) == 0
    assert calls == names
