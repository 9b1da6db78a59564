"""Checkpoints on disk with all parts and no run behind them."""

import json

import torch
from safetensors.torch import save_file


def checkpoint(folder, step, text=None, max_steps=20):
    """Write `checkpoint-STEP` with the parts that a resumed run needs; `text` replaces the Trainer's state."""
    place = folder / f"checkpoint-{step}"
    place.mkdir()
    (place / "trainer_state.json").write_text(
        json.dumps({"global_step": step, "max_steps": max_steps}) if text is None else text
    )
    save_file({"weight": torch.arange(100.0)}, place / "model.safetensors")
    (place / "config.json").write_text('{"model_type": "qwen2"}')
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"values": torch.arange(100.0)}, place / name)
    return place
