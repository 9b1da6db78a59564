"""Write complete checkpoints without training."""

import json

import torch
from safetensors.torch import save_file

from trl_ces.support.files import write_json
from trl_ces.support.yaml import dump_yaml
from trl_ces.train.checkpoints import write_manifest

RUN = {"model_name_or_path": "m", "dataset_name": "d", "max_steps": 20, "learning_rate": 1e-3}
SIZES = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "steps_per_generation": 1}


def checkpoint(folder, step, text=None, recipe=RUN, sizes=SIZES, world_size=1):
    """Write a complete `checkpoint-STEP` for a run of 20 steps; `text` replaces trainer_state.json."""
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    (path / "trainer_state.json").write_text(
        json.dumps({"global_step": step, "max_steps": 20}) if text is None else text
    )
    save_file({"weight": torch.arange(100.0)}, path / "model.safetensors")
    (path / "config.json").write_text('{"model_type": "qwen2"}')
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"values": torch.arange(100.0)}, path / name)
    (path / "recipe.yaml").write_text(dump_yaml(recipe))
    write_json(path / "run.json", {"settings": {**sizes, "world_size": world_size}, "changes": []})
    write_manifest(path)
    return path
