"""Names of models and data sets: a path, or an id of the Hub; a Hub that does not answer."""

import os
import re

import pytest
from huggingface_hub import constants

from trl_ces.cli import train
from trl_ces.support.hub import is_local, try_hub_once


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
    ],
)
def test_a_name_is_a_path_if_it_exists_or_cannot_be_an_id(tmp_path, monkeypatch, name, local):
    (tmp_path / "here" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert is_local(name) == local


def test_a_hub_that_does_not_answer_is_tried_once(monkeypatch, capsys):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    try_hub_once("/data/model")
    assert (capsys.readouterr().err, os.environ["HF_HUB_OFFLINE"]) == ("", "0")
    try_hub_once("/data/model", "owner/data")
    assert re.fullmatch(r"http://127.0.0.1:9 does not answer \(.+\): using the cache only.\n", capsys.readouterr().err)
    assert (constants.is_offline_mode(), os.environ["HF_HUB_OFFLINE"]) == (True, "1")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ([], [("owner/model", "owner/data")]),
        (["--push_to_hub", "true"], []),  # offline, nothing would be pushed later either
        (["--model_builder", "trl_ces.lab.tasks.smollm2.fetch"], []),  # which has a way of its own
    ],
)
def test_a_training_tries_the_hub_for_its_model_and_data(tmp_path, monkeypatch, changes, names):
    calls = []
    monkeypatch.setattr(train, "try_hub_once", lambda *of: calls.append(of))
    monkeypatch.setattr(train, "check", lambda line, recipe: None)
    monkeypatch.setattr(train, "run_training", lambda launch, recipe: 0)
    recipe = tmp_path / "my.yaml"
    recipe.write_text("model_name_or_path: owner/model\ndataset_name: owner/data\noutput_dir: out\n")
    assert train.run(["--config", str(recipe), *changes]) == 0
    assert calls == names
