"""Launch `trl-ces train` with each shipped accelerate file and check the settings that its workers report."""

import json
import subprocess

import psutil
import pytest
from cpu_engines import ACCELERATE
from processes import environment, free_port

from trl_ces.train import launch
from trl_ces.train.arguments import read_words
from trl_ces.train.recipe import make_recipe

CORES = 12
ZERO3 = {"zero": 3, "save 16-bit": True, "optimizer device": "none", "precision": "bf16"}
FSDP2 = {"fsdp": 2, "state dict": "FULL_STATE_DICT", "reshards": True, "precision": "no"}
FILES = {
    "single": {},
    "ddp": {},
    "zero2": {**ZERO3, "zero": 2, "save 16-bit": False},
    "zero3": ZERO3,
    "zero3_multinode": ZERO3,
    "zero3_offload": {**ZERO3, "optimizer device": "cpu"},
    "fsdp2": FSDP2,
    "fsdp2_multinode": FSDP2,
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_every_shipped_file_is_tested():
    assert set(FILES) == {file.stem for file in ACCELERATE.glob("*.yaml")}


def test_workers_share_all_cores_if_the_cpu_affinity_is_unknown(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: CORES)
    monkeypatch.delattr(psutil.Process, "cpu_affinity")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert launch._share_cores(2) == {"OMP_NUM_THREADS": str(CORES // 2)}


@pytest.mark.parametrize("name", FILES)
def test_workers_use_the_configured_engine_and_share_the_cores(tmp_path, monkeypatch, name):
    if name.startswith("zero"):
        pytest.importorskip("deepspeed", reason="make test-slow installs it")
    processes = 1 if name == "single" else 2
    monkeypatch.setattr(launch, "WORKER", "accelerate_probe")
    monkeypatch.setattr(launch, "device_count", lambda: processes)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: CORES)
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: range(2 * CORES))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    args = ["--accelerate_config", name, "--num_processes", str(processes), "--main_process_port", str(free_port())]
    args += ["--num_machines", "1", "--machine_rank", "0"] if name.endswith("multinode") else []
    recipe = make_recipe({"model_name_or_path": "m", "output_dir": "out", "dataset_name": "d"}, "my.yaml")
    worker = launch.make_launch(read_words(args), recipe)
    variables = {key: value for key, value in environment(PROBE=str(tmp_path)).items() if key != "OMP_NUM_THREADS"}
    result = subprocess.run(
        worker.command, env={**variables, **worker.env}, capture_output=True, text=True, timeout=500
    )
    assert result.returncode == 0, result.stderr[-3000:]
    expected = {"threads": str(CORES // processes), "processes": str(processes), **FILES[name]}
    for rank in range(processes):
        info, arguments = json.loads((tmp_path / f"{rank}.json").read_text())
        assert info == expected
        assert arguments[:2] == ["--expect_processes", str(processes)]
    assert len(list(tmp_path.iterdir())) == processes
