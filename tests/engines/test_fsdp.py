"""FSDP2, which accelerate starts on GPUs only: on a CPU the same file runs DDP, and `trl-ces train` refuses that."""

import json
import shutil
import subprocess

import pytest
import yaml
from processes import run_processes
from safetensors.torch import load_file
from tiny import tiny_model, tiny_tokenizer

FSDP2 = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "fsdp_config": {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": True,
        "fsdp_state_dict_type": "FULL_STATE_DICT",
    },
    "num_machines": 1,
    "machine_rank": 0,
    "main_training_function": "main",
    "mixed_precision": "no",
    "use_cpu": False,
}
TIMEOUT = 600


def gpus():
    """GPUs of this machine; conftest.py hides them from torch."""
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return sum(line.startswith("GPU ") for line in listed.splitlines())


@pytest.mark.slow
@pytest.mark.timeout(2 * TIMEOUT)
@pytest.mark.skipif(gpus() < 2, reason="FSDP2 shares a model over two GPUs at least, and this machine has fewer")
def test_fsdp2_ends_with_the_weights_of_one_process(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    tiny_model().save_pretrained(tmp_path / "start")
    tiny_tokenizer().save_pretrained(tmp_path / "start")
    (tmp_path / "fsdp2.yaml").write_text(yaml.safe_dump(FSDP2))
    arguments = (str(tmp_path / "start"), json.dumps({"settings": {"use_cpu": False}}))
    run_processes("engines/train.py", tmp_path / "two", 2, TIMEOUT, arguments, tmp_path / "fsdp2.yaml")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    run_processes("engines/train.py", tmp_path / "one", 1, TIMEOUT, arguments)

    facts = json.loads((tmp_path / "two" / "facts.json").read_text())
    assert (facts["distributed_type"], facts["processes"]) == ("FSDP", 2)
    expected, found = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "two"))
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert (found[name] - value).norm() <= 1e-4 * value.norm(), name
