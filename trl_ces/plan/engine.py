"""How processes share weights, gradients and optimizer state, read from an accelerate configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support.errors import UserError


@dataclass(frozen=True)
class Engine:
    """
    One process, DDP or DeepSpeed.

    Args:
        processes (`int`): Number of processes, one per device.
        zero_stage (`int`): 0 without DeepSpeed; 1 shards the optimizer, 2 also the gradients, 3 also the weights.
        offload_optimizer (`bool`): Whether the optimizer is in host memory.
        offload_weights (`bool`): Whether ZeRO-3's shards of the weights are, too.
    """

    processes: int
    zero_stage: int = 0
    offload_optimizer: bool = False
    offload_weights: bool = False

    @property
    def name(self) -> str:
        """The engine in a table: `ZeRO-3, optimizer offloaded on 2 processes`."""
        if not self.zero_stage:
            return "one process" if self.processes == 1 else f"DDP on {self.processes} processes"
        offloaded = [
            word for word, on in (("optimizer", self.offload_optimizer), ("weights", self.offload_weights)) if on
        ]
        stage = f"ZeRO-{self.zero_stage}" + "".join(f", {word} offloaded" for word in offloaded)
        return f"{stage} on {self.processes} process{'' if self.processes == 1 else 'es'}"


def read_engine(settings: dict[str, Any], processes: int) -> Engine:
    """
    The engine that an accelerate configuration starts.

    Args:
        settings (`dict`): The configuration; empty for none.
        processes (`int`): Number of processes.

    Raises:
        UserError: if no plan covers the configuration, or a file that it names cannot be read.
    """
    kind = settings.get("distributed_type", "NO")
    if kind in ("NO", "MULTI_GPU", "MULTI_CPU"):
        return Engine(processes)
    if kind != "DEEPSPEED":
        raise UserError(f"There is no plan for `distributed_type: {kind}`: one process, DDP and DeepSpeed have one.")
    given = settings.get("deepspeed_config") or {}
    file = given.get("deepspeed_config_file")
    if file is not None:
        try:
            zero = json.loads(Path(file).expanduser().read_text(encoding="utf-8")).get("zero_optimization", {})
        except (OSError, ValueError) as error:
            raise UserError(f"The DeepSpeed file {file} cannot be read ({error}).") from None
        stage = zero.get("stage", 0)
        optimizer = (zero.get("offload_optimizer") or {}).get("device", "none")
        weights = (zero.get("offload_param") or {}).get("device", "none")
    else:
        stage = given.get("zero_stage", 2)
        optimizer = given.get("offload_optimizer_device", "none")
        weights = given.get("offload_param_device", "none")
    if stage not in (1, 2, 3):
        raise UserError(f"There is no plan for DeepSpeed's ZeRO stage {stage!r}: choose 1, 2 or 3.")
    return Engine(processes, stage, optimizer not in ("none", None), weights not in ("none", None))
