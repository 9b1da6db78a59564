"""Tokens are read only from the environment, and no file that the package reads can run code."""

import ast
import json
import os
import pickle
from pathlib import Path

import pytest
from train_jobs import TOKENS, make_job, trl_ces

from trl_ces.cli.main import main
from trl_ces.support.errors import UserError
from trl_ces.support.yaml import read_yaml
from trl_ces.train.recipe import load_recipe, recipe_fields

PACKAGE = Path(__file__).parents[1] / "trl_ces"
RECIPES = Path(__file__).parents[1] / "recipes"


def test_a_token_in_a_recipe_is_rejected(tmp_path):
    recipe, _ = make_job(tmp_path)
    with pytest.raises(UserError, match="`hub_token` would be saved with the model: set HF_TOKEN") as caught:
        load_recipe(recipe, {"hub_token": ["hf_SECRETsecretSECRET5"]})
    assert "SECRET" not in str(caught.value)


def test_no_token_is_printed_by_env_or_an_error(capsys, monkeypatch):
    for name, token in TOKENS.items():
        monkeypatch.setenv(name, token)
    main(["env"])
    main(["train", "--config", "smollm2_135m", "--ces_tua", "1"])
    printed = capsys.readouterr()
    assert "SECRET" not in printed.out + printed.err


@pytest.mark.parametrize("file", sorted(RECIPES.rglob("*.yaml")), ids=lambda file: str(file.relative_to(RECIPES)))
def test_no_shipped_recipe_trusts_remote_code_or_contains_a_token(file):
    assert "trust_remote_code" not in file.read_text()
    assert [key for key in read_yaml(file) if key.endswith(("token", "api_key"))] == []


def test_remote_code_is_trusted_only_on_request(tmp_path):
    assert recipe_fields()["trust_remote_code"].default is False
    recipe, _ = make_job(tmp_path)
    assert "trust_remote_code" not in load_recipe(recipe).training
    assert load_recipe(recipe, {"trust_remote_code": []}).training["trust_remote_code"] is True


@pytest.mark.slow
def test_code_in_a_model_folder_is_not_run(tmp_path):
    recipe, output = make_job(tmp_path)
    model = tmp_path / "model"
    (model / "modeling_mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "modeling_mine.Config"}}
    (model / "config.json").write_text(json.dumps(config))
    result = trl_ces("train", "--config", recipe)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "ran").exists()
    assert not output.exists() or list(output.iterdir()) == []


PICKLES = ("pickle", "dill", "joblib", "marshal", "shelve")
UNSAFE_LOADERS = ("yaml.Loader", "yaml.UnsafeLoader", "yaml.FullLoader")


def is_unsafe(call):
    """Return whether a call reads a pickle, or reads YAML or a model in a way that may run code."""
    name, keywords = ast.unparse(call.func), {word.arg: ast.unparse(word.value) for word in call.keywords}
    loader = keywords.get("Loader") or "".join(map(ast.unparse, call.args[1:])) or "yaml.Loader"
    return (
        name in ("torch.load", "pandas.read_pickle", "yaml.unsafe_load", "yaml.full_load")
        or (name == "yaml.load" and loader in UNSAFE_LOADERS)
        or "allow_pickle" in keywords
        or keywords.get("weights_only") == "False"
        or keywords.get("trust_remote_code") == "True"
    )


def test_the_package_does_not_read_pickles():
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) > 50
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Call) and is_unsafe(node)), f"{file}: {ast.unparse(node)}"
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert set(imported).isdisjoint(PICKLES), f"{file}: {imported}"


class Bomb:
    def __init__(self, sentinel):
        self.sentinel = sentinel

    def __reduce__(self):
        return os.mkdir, (str(self.sentinel),)


def test_pickled_weights_are_rejected_and_not_unpickled(tmp_path):
    recipe, _ = make_job(tmp_path)
    sentinel = tmp_path / "unpickled"
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Bomb(sentinel)}))
    result = trl_ces("train", "--config", recipe)
    assert result.returncode == 2, result.stderr
    assert "holds no *.safetensors" in result.stderr
    assert not sentinel.exists()
