"""Compare FSDP2, as configured by the shipped accelerate file, with a single-process run.

accelerate starts FSDP2 only on GPUs. On a CPU, the same file would start DDP, which `trl-ces train` rejects. The CPU
test bypasses accelerate's GPU check (tests/helpers/cpu_engines.py) and shards the model over gloo.
"""

import json
import shutil
import subprocess

import pytest
from cpu_engines import FSDP2, launched_environment
from processes import run_processes
from safetensors.torch import load_file
from tiny import save_tiny

TIMEOUT = 600


def gpu_count():
    """Count the GPUs with nvidia-smi, because conftest.py hides them from torch."""
    if shutil.which("nvidia-smi") is None:
        return 0
    output = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return sum(line.startswith("GPU ") for line in output.splitlines())


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT)
@pytest.mark.skipif(gpu_count() < 2, reason="needs at least two GPUs")
def test_fsdp2_weights_match_a_single_process_run(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    save_tiny(tmp_path / "start")
    arguments = (str(tmp_path / "start"), json.dumps({"settings": {"use_cpu": False}}))
    run_processes("engine_processes.py", tmp_path / "two", 2, TIMEOUT, arguments, FSDP2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    run_processes("engine_processes.py", tmp_path / "one", 1, TIMEOUT, arguments)

    facts = json.loads((tmp_path / "two" / "facts.json").read_text())
    assert (facts["distributed_type"], facts["processes"]) == ("FSDP", 2)
    assert_same(tmp_path / "two" / "model", tmp_path / "one" / "model")


def assert_same(actual, expected):
    (file,) = [file.name for file in expected.glob("*.safetensors")]
    expected, actual = (load_file(folder / file) for folder in (expected, actual))
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert (actual[name] - value).norm() <= 1e-4 * value.norm(), name


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT)
@pytest.mark.parametrize("lora", [False, True], ids=["full", "LoRA"])
def test_fsdp2_on_two_cpu_processes_matches_a_single_process_run(tmp_path, lora):
    save_tiny(tmp_path / "start")
    sharded = {"lora": lora, "fsdp_on_cpu": True, "environment": launched_environment()}
    assert sharded["environment"]["ACCELERATE_USE_FSDP"] == "true"
    for name, processes, options in (("one", 1, {"lora": lora}), ("two", 2, sharded)):
        arguments = (str(tmp_path / "start"), json.dumps(options))
        run_processes("engine_processes.py", tmp_path / name, processes, TIMEOUT, arguments)

    one, two = (json.loads((tmp_path / name / "facts.json").read_text()) for name in ("one", "two"))
    assert (two["distributed_type"], two["processes"], two["sharded"]) == ("FSDP", 2, True)
    assert (one["distributed_type"], one["sharded"]) == ("NO", False)
    assert_same(tmp_path / "two" / "model", tmp_path / "one" / "model")
    for entry, expected in zip(two["log"], one["log"], strict=True):
        for name in ("ces/selected_tokens", "ces/group_accuracy", "entropy", "grad_norm"):
            assert entry[name] == pytest.approx(expected[name], rel=1e-4), name
