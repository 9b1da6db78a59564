"""Tokens stay in the environment, and nothing that is read back can run code."""

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
# What a training prints and writes is looked at in cli/test_cli.py.


def test_a_token_in_a_recipe_is_refused_because_it_would_be_saved_with_the_model(tmp_path):
    recipe, _ = make_job(tmp_path)
    with pytest.raises(UserError, match="`hub_token` would be saved with the model: set HF_TOKEN") as caught:
        load_recipe(recipe, {"hub_token": ["hf_SECRETsecretSECRET5"]})
    assert "SECRET" not in str(caught.value)


def test_no_token_is_in_what_the_command_line_says_of_itself(capsys, monkeypatch):
    for name, token in TOKENS.items():
        monkeypatch.setenv(name, token)
    main(["env"])
    main(["train", "--config", "smollm2_135m", "--ces_tua", "1"])
    said = capsys.readouterr()
    assert "SECRET" not in said.out + said.err


@pytest.mark.parametrize("file", sorted(RECIPES.rglob("*.yaml")), ids=lambda file: str(file.relative_to(RECIPES)))
def test_no_shipped_recipe_trusts_code_of_a_repository_or_holds_a_token(file):
    assert "trust_remote_code" not in file.read_text()
    assert [key for key in read_yaml(file) if key.endswith(("token", "api_key"))] == []


def test_code_of_a_repository_is_run_only_where_it_is_asked_for(tmp_path):
    assert recipe_fields()["trust_remote_code"].default is False
    recipe, _ = make_job(tmp_path)
    assert "trust_remote_code" not in load_recipe(recipe).training
    assert load_recipe(recipe, {"trust_remote_code": []}).training["trust_remote_code"] is True


def test_code_beside_a_model_is_not_run(tmp_path):
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


def calls(tree):
    """Dotted names of what a module calls, and with which keywords."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}


def test_no_line_of_the_package_reads_a_pickle():
    loaders = ("torch.load", "pickle.load", "pickle.loads", "joblib.load", "dill.load", "pandas.read_pickle",
               "marshal.loads", "shelve.open", "yaml.unsafe_load", "yaml.full_load")  # fmt: skip
    found, seen = [], 0
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        seen += 1
        for name, keywords in calls(tree):
            is_pickle = name in loaders or (name.endswith(("np.load", "numpy.load")) and "allow_pickle" in keywords)
            is_unsafe_yaml = name == "YAML" and keywords.get("typ") != "'safe'"
            if (
                is_pickle
                or is_unsafe_yaml
                or keywords.get("weights_only") == "False"
                or keywords.get("trust_remote_code") == "True"
            ):
                found.append(f"{file.name}: {name}")
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        found += [f"{file.name}: import {name}" for name in imported & {"pickle", "dill", "joblib", "marshal"}]
    assert seen > 50
    assert found == []


class Bomb:
    def __init__(self, sentinel):
        self.sentinel = sentinel

    def __reduce__(self):
        return os.mkdir, (str(self.sentinel),)


def test_a_pickle_in_the_place_of_weights_is_not_unpickled(tmp_path):
    recipe, _ = make_job(tmp_path)
    sentinel = tmp_path / "unpickled"
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Bomb(sentinel)}))
    result = trl_ces("train", "--config", recipe)
    assert result.returncode == 2, result.stderr
    assert "holds no *.safetensors" in result.stderr
    assert not sentinel.exists()
