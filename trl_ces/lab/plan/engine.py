"""How processes share weights, gradients and optimizer state, read from an accelerate configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...support.errors import UserError
from ...train.launch import whole_number


@dataclass(frozen=True)
class Engine:
    """One process, DDP, DeepSpeed or FSDP2."""

    processes: int  # number of processes over all nodes, one per device
    zero_stage: int = 0  # 0 without DeepSpeed; 1 shards the optimizer, 2 also the gradients, 3 also the weights
    offload_optimizer: bool = False  # whether the optimizer is in host memory
    offload_weights: bool = False  # whether ZeRO-3's shards of the weights are, too
    fsdp: bool = False  # FSDP2, which shards weights, gradients and optimizer
    loads_once: bool = False  # whether one process per node reads the weights, FSDP's `cpu_ram_efficient_loading`
    nodes: int = 1  # machines that train, with equally many processes each

    @property
    def shards_weights(self) -> bool:
        """Whether a device holds only its share of the weights: ZeRO-3 and FSDP2."""
        return self.fsdp or self.zero_stage == 3

    @property
    def name(self) -> str:
        """The engine in a table: `ZeRO-3, optimizer offloaded on 16 processes, 2 nodes`."""
        if self.fsdp:
            kind = "FSDP2"
        elif self.zero_stage:
            offloaded = (("optimizer", self.offload_optimizer), ("weights", self.offload_weights))
            kind = f"ZeRO-{self.zero_stage}" + "".join(f", {word} offloaded" for word, on in offloaded if on)
        elif self.processes == 1:
            return "one process"
        else:
            kind = "DDP"
        nodes = f", {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{kind} on {self.processes} process{'' if self.processes == 1 else 'es'}{nodes}"


def read_engine(settings: dict[str, Any], processes: int, nodes: int | None = None) -> Engine:
    """The engine that an accelerate configuration starts."""
    machines = whole_number(settings.get("num_machines", 1), "num_machines") if nodes is None else nodes
    if processes % machines:
        raise UserError(
            f"`--gpus` is {processes}, which cannot be spread evenly over {machines} nodes: give the processes of all "
            f"nodes together, a multiple of {machines}, or other `--nodes`."
        )
    kind = settings.get("distributed_type", "NO")
    if kind in ("NO", "MULTI_GPU", "MULTI_CPU"):
        return Engine(processes, nodes=machines)
    if kind not in ("FSDP", "DEEPSPEED"):
        raise UserError(
            f"There is no plan for `distributed_type: {kind}`: one process, DDP, DeepSpeed and FSDP2 have one."
        )
    given = settings.get(f"{kind.lower()}_config") or {}
    engine = _read_fsdp(given, processes) if kind == "FSDP" else _read_deepspeed(given, processes)
    return replace(engine, nodes=machines)


def _read_fsdp(given: dict[str, Any], processes: int) -> Engine:
    planned = {"fsdp_version": 2, "fsdp_offload_params": False, "fsdp_reshard_after_forward": True}
    defaults = {**planned, "fsdp_version": 1}  # accelerate's
    for name, value in planned.items():
        if given.get(name, defaults[name]) != value:
            raise UserError(f"There is no plan for FSDP without `{name}: {str(value).lower()}`.")
    return Engine(processes, fsdp=True, loads_once=bool(given.get("fsdp_cpu_ram_efficient_loading", True)))


def _read_deepspeed(given: dict[str, Any], processes: int) -> Engine:
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
