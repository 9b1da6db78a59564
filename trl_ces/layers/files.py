"""Save and load micro-batches, to resume in the middle of a rollout or to inspect a batch with a non-finite gradient.

Each process writes one safetensors file: tensors as `NUMBER.NAME`, and everything else as JSON in the header.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..support.files import atomic_file


def save_micro_batches(file: Path, micro_batches: Sequence[dict[str, Any]], extra: dict[str, Any]) -> None:
    """Atomically write `extra` and micro-batches of tensors and JSON values; raise `TypeError` for other values."""
    tensors, others = {}, []
    for number, batch in enumerate(micro_batches):
        for name, values in batch.items():
            if isinstance(values, torch.Tensor):  # copied, because micro-batches may be views of one tensor
                tensors[f"{number}.{name}"] = values.detach().cpu().clone(memory_format=torch.contiguous_format)
        others.append({name: values for name, values in batch.items() if not isinstance(values, torch.Tensor)})
    header = {"others": json.dumps(others), "more": json.dumps(extra)}
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as partial:
        save_file(tensors, partial, metadata=header)


def load_micro_batches(file: Path, device: Any = "cpu") -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """Load a file written by [`save_micro_batches`] onto `device`; return `None` if the file is missing or damaged."""
    try:
        with safe_open(file, framework="pt") as reader:
            header = reader.metadata() or {}
            micro_batches, extra = json.loads(header["others"]), json.loads(header["more"])
            for key in reader.keys():  # noqa: SIM118 (not a dict)
                number, name = key.split(".", 1)
                micro_batches[int(number)][name] = reader.get_tensor(key).to(device)
    except (OSError, SafetensorError, KeyError, ValueError, IndexError):
        return None
    return micro_batches, extra
