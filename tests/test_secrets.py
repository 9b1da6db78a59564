"""Check that access tokens are read only from the environment, and that files read by the package cannot run code."""

import ast
import json
import os
import pickle
import re
from pathlib import Path

import pytest
from train_jobs import TOKENS, make_job, trl_ces
from transformers import GenerationConfig

from trl_ces.cli.main import main
from trl_ces.lab.evaluation.settings import EvaluationSettings, make_settings
from trl_ces.lab.study.cells import load_study
from trl_ces.support.errors import UserError
from trl_ces.support.locks import TRAINING_LOCK
from trl_ces.support.yaml import is_secret, read_yaml, reject_secrets
from trl_ces.train.recipe import load_recipe, make_recipe, recipe_fields, shipped_files

PACKAGE = Path(__file__).parents[1] / "trl_ces"


def test_the_env_command_and_error_messages_do_not_print_tokens(capsys, monkeypatch):
    for name, token in TOKENS.items():
        monkeypatch.setenv(name, token)
    main(["env"])
    main(["train", "--config", "smollm2_135m", "--ces_tua", "1"])
    printed = capsys.readouterr()
    assert "SECRET" not in printed.out + printed.err


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"model_init_kwargs": {"token": "x"}}, "model_init_kwargs.token"),
        ({"env": {"WANDB_API_KEY": "x"}}, "env.WANDB_API_KEY"),
        ({"env": {"HF_TOKEN": "x"}}, "env.HF_TOKEN"),
        ({"env": {"AWS_SECRET_ACCESS_KEY": "x"}}, "env.AWS_SECRET_ACCESS_KEY"),
        (
            {"dataset_kwargs": {"password": 12345}, "dataset_builder": "a.b", "dataset_name": None},
            "dataset_kwargs.password",
        ),
        ({"reward_kwargs": {"my.get_judge": {"apiKey": "x"}}}, "reward_kwargs.my.get_judge.apiKey"),
        ({"chat_template_kwargs": {"a": [{"b": {"client-secret": "x"}}]}}, "chat_template_kwargs.a.b.client-secret"),
        ({"api_key": "x"}, "api_key"),
        ({"my_token": "x"}, "my_token"),
        ({"dataset_name": "https://me:pass@host/data.json"}, "dataset_name"),
        ({"hub_model_id": "https://hf_abc@huggingface.co/me/model"}, "hub_model_id"),
        ({"env": {"PIP_INDEX_URL": "https://me:pass@host/simple"}}, "env.PIP_INDEX_URL"),
        ({"env": {"DATABASE": "postgresql://me:pass@host/db"}}, "env.DATABASE"),
        ({"model_init_kwargs": {"url": "https://host/x?api_key=abc"}}, "model_init_kwargs.url"),
        ({"model_init_kwargs": {"headers": ["hf_" + "a1" * 17]}}, "model_init_kwargs.headers"),
    ],
)
def test_a_secret_at_any_depth_of_a_recipe_is_rejected(fields, key):
    recipe = {"model_name_or_path": "m", "dataset_name": "d", "output_dir": "out"} | fields
    message = rf"recipe: `{re.escape(key)}` contains what looks like a secret.* set an environment variable"
    with pytest.raises(UserError, match=message):
        make_recipe(recipe, "recipe")


@pytest.mark.parametrize(
    "args", [["--token", "SECRET"], ["--hub_token", "SECRET"], ["--model_init_kwargs", "{token: SECRET}"], []]
)
def test_a_secret_on_the_command_line_or_in_an_overlay_is_rejected(tmp_path, capsys, args):
    recipe, output = make_job(tmp_path)
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("" if args else "env+: {OPENAI_API_KEY: SECRET}\n")
    assert main(["train", "--config", str(recipe), str(overlay), *args]) == 2
    printed = capsys.readouterr().err
    assert "contains what looks like a secret" in printed
    assert "SECRET" not in printed
    assert not output.exists()


@pytest.mark.parametrize(
    ("group", "inner"),
    [
        ("overrides", {"env": {"HF_TOKEN": "x"}}),
        ("variants", {"a": {"model_init_kwargs": {"token": "x"}}}),
        ("evaluation", {"function": "a.b", "api_key": "x"}),
    ],
)
def test_a_secret_in_a_study_is_rejected(tmp_path, group, inner):
    content = {"output_dir": "out", "seeds": [0], "methods": {"a": {"config": "arithmetic"}}, group: inner}
    (tmp_path / "study.yaml").write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"study.yaml: `{group}\..*` contains what looks like a secret"):
        load_study(tmp_path / "study.yaml")


def test_a_secret_in_an_evaluation_is_rejected():
    for fields in ({"model": "https://me:pass@host/m"}, {"model": "m", "token": "x"}):
        with pytest.raises(UserError, match=rf"`{list(fields)[-1]}` contains what looks like a secret"):
            make_settings({"benchmarks": ["gsm8k"]} | fields, "file")
    with pytest.raises(UserError, match="`model` contains what looks like a secret"):
        EvaluationSettings(model="https://me:pass@host/m", benchmarks=["gsm8k"])


GENERATION = [name for name in vars(GenerationConfig()) if not name.startswith("_")]
OTHER_NAMES = (
    *("eos_token", "pad_token", "bos_token", "image_token", "think_end_token"),
    *("start_of_thinking_token", "fim_middle_token", "stop_tokens", "max_tokens", "thinking_token_budget"),
    *("token_level", "token_type_ids", "tokenizer", "tokens", "reward_per_token"),
    *("key", "cache_key", "primary_key", "pass_at_k", "HF_TOKEN_PATH"),
    *("api_key_env", "password_file", "TOKENIZERS_PARALLELISM", "SSH_AUTH_SOCK", "PWD"),
    "secretary",
)


def test_harmless_names_and_values_are_not_secrets():
    names = [name for name in recipe_fields() if name != "hub_token"]
    assert [name for name in (*names, *GENERATION, *OTHER_NAMES) if is_secret(name)] == []
    reject_secrets({"token": True, "password": None, "eos_token": "<|im_end|>", "x_token": 5, "secret": ""}, "file")
    reject_secrets({"text": "see https://host/@user?a=b@c, git@host:x, s3://bucket/x@y or a token=x, key: y"}, "file")


@pytest.mark.parametrize("kind", [None, "study", "accelerate", "evaluation"])
def test_no_shipped_file_trusts_remote_code_or_contains_a_secret(kind):
    assert shipped_files(kind)
    for file in shipped_files(kind).values():
        assert "trust_remote_code" not in file.read_text()
        reject_secrets(read_yaml(file), str(file))


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
    assert not output.exists() or [file.name for file in output.iterdir()] == [TRAINING_LOCK]


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
            imports = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert set(imports).isdisjoint(PICKLES), f"{file}: {imports}"


class Bomb:
    def __init__(self, sentinel):
        self.sentinel = sentinel

    def __reduce__(self):
        return os.mkdir, (str(self.sentinel),)


def test_pickled_weights_are_rejected_and_not_unpickled(tmp_path, capsys):
    recipe, _ = make_job(tmp_path)
    sentinel = tmp_path / "unpickled"
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Bomb(sentinel)}))
    assert main(["train", "--config", str(recipe)]) == 2
    assert "has no *.safetensors" in capsys.readouterr().err
    assert not sentinel.exists()
