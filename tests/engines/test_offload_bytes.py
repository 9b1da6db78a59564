"""Check the bytes per parameter that `trl-ces plan` assumes for an offloaded optimizer against DeepSpeed."""

import os
import subprocess
import sys

import pytest
from processes import free_port

SCRIPT = """
import gc, deepspeed, torch

model = torch.nn.Sequential(*(torch.nn.Linear(256, 256, bias=False) for _ in range(4)))
count = sum(parameter.numel() for parameter in model.parameters())
settings = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 1000},
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
}
engine, *_ = deepspeed.initialize(model=model, config=settings)
for _ in range(2):
    row = torch.randn(1, 256, dtype=torch.bfloat16, device=engine.device)
    engine.backward(engine(row).float().pow(2).mean())
    engine.step()
gc.collect()
storages = {}
for value in gc.get_objects():
    if isinstance(value, torch.Tensor) and value.untyped_storage().nbytes() >= count:
        storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
print("bytes per parameter:", sum(storages.values()) / count)
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_offloaded_optimizer_and_gradients_take_18_bytes_per_parameter():
    pytest.importorskip("deepspeed")
    single = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    environment = {**os.environ, **single, "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=1100)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("bytes per parameter")]
    # This run also counts the bf16 weights (2 bytes per parameter), which are on the GPU if one is available.
    assert float(line.split(":")[1]) == 2 + 18
