"""Compute the peak memory per device, by part and in bytes, for completions of maximum length.

Parameter counts and the tensors of a forward and backward pass (`step.py`) are exact. The sizes of buckets and of the
weights that ZeRO-3 gathers follow from the documented defaults of DeepSpeed and vLLM. `RESERVE`, `RESERVE_CPU`,
`VLLM_WORKSPACE` and `VLLM_SLEEPING` are estimates. The memory of a vLLM server's devices is not included.
"""

from __future__ import annotations

from dataclasses import dataclass

from .step import StepCount, StepSettings, count_step

GIB = 2**30
# Estimates.
RESERVE = 3 * GIB  # CUDA context, NCCL buffers and allocator fragmentation
RESERVE_CPU = 1 * GIB  # Python, torch and other libraries, on a CPU
# vLLM's activations for 4,096 batched tokens, and its CUDA graphs. Since vLLM 0.21, the graphs reduce the size of the
# cache (`Worker.determine_available_memory` in vllm/v1/worker/gpu_worker.py). The graphs stay allocated in sleep mode.
VLLM_WORKSPACE = 2 * GIB
VLLM_SLEEPING = 1 * GIB
# DeepSpeed's defaults, in parameters: reduce_bucket_size and stage3_max_live_parameters.
BUCKET = 500_000_000
LIVE_WEIGHTS = 1_000_000_000

WIDTHS = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Engine:
    """Distribution of weights, gradients and optimizer state: one process, DDP, DeepSpeed or FSDP2."""

    processes: int  # number of processes on all nodes, one per device
    zero_stage: int = 0  # 0 without DeepSpeed; 1 shards the optimizer state, 2 also gradients, 3 also weights
    offload_optimizer: bool = False  # whether the optimizer state is in host memory
    offload_weights: bool = False  # whether ZeRO-3's weight shards are in host memory
    fsdp: bool = False  # whether FSDP2 shards weights, gradients and optimizer state
    nodes: int = 1  # number of machines, each with the same number of processes

    @property
    def shards_weights(self) -> bool:
        """Whether each device stores only a shard of the weights (ZeRO-3 and FSDP2)."""
        return self.fsdp or self.zero_stage == 3

    @property
    def name(self) -> str:
        """Description of the engine, such as `ZeRO-3, optimizer offloaded on 16 processes, 2 nodes`."""
        kind = "FSDP2" if self.fsdp else f"ZeRO-{self.zero_stage}" if self.zero_stage else "DDP"
        kind += ", optimizer offloaded" * self.offload_optimizer + ", weights offloaded" * self.offload_weights
        nodes = f", {self.nodes} nodes" if self.nodes > 1 else ""
        return (
            "one process" if self.processes == 1 and kind == "DDP" else f"{kind} on {self.processes} processes{nodes}"
        )


@dataclass(frozen=True)
class Generation:
    """Settings for generating completions."""

    vllm: bool  # whether colocated vLLM generates, instead of transformers or a vLLM server
    server: bool = False  # whether a vLLM server generates, on devices that are not included
    utilization: float = 0.0  # vLLM's fraction of the device memory, 0 to 1
    sleeps: bool = False  # whether vLLM frees its memory during training
    tensor_parallel: int = 1  # number of devices per vLLM engine
    sequences: int = 0  # number of completions that one engine or process generates at a time
    kv_bytes: int = 0  # bytes of key-value cache per token on one device


@dataclass(frozen=True)
class Setup:
    """Settings that determine memory."""

    step: StepSettings  # one forward and backward pass
    engine: Engine  # distribution of weights, gradients and optimizer state
    accumulation: int  # passes per optimizer step; if above 1, gradients and activations coexist
    generation: Generation  # settings for generating completions
    frozen_bytes: int  # bytes per frozen weight, in the loaded dtype unless DeepSpeed casts the model
    trained_bytes: int  # bytes per trained weight and per gradient, without DeepSpeed's float32 master weights
    device: int | None = None  # bytes of memory per device; `None` if unknown
    reference: bool = False  # whether a KL term needs a reference model (a second model unless LoRA is used)

    @property
    def sent_bytes(self) -> int:
        """Bytes per weight sent to vLLM. TRL keeps the stored dtype and merges adapters into the frozen weights."""
        return self.trained_bytes if self.step.lora is None else self.frozen_bytes


@dataclass(frozen=True)
class Memory:
    """Memory of one device and of its node's host, in bytes."""

    parts: dict[str, int]  # peak of each part
    training: int  # peak while training; less than the sum of the parts, which peak at different times
    generating: int  # peak while completions are generated; 0 if a server generates them
    host: int  # host memory per node for offloaded state
    full_completions: float  # number of full-length completions that fit in vLLM's cache; infinite without vLLM

    @property
    def peak(self) -> int:
        return max(self.training, self.generating)


def plan_memory(setup: Setup) -> Memory:
    """Compute the memory of one device and of its node's host."""
    count, engine, step, generation = count_step(setup.step), setup.engine, setup.step, setup.generation
    weights, gradients, optimizer, host = _states(count, setup)
    if setup.reference and step.lora is None:
        weights += setup.frozen_bytes * count.weights // (engine.processes if engine.shards_weights else 1)
    buffers = _buffers(count, setup)
    if engine.zero_stage or engine.fsdp or setup.accumulation > 1:
        step_peak = gradients + count.peak
    else:
        step_peak = max(gradients, count.peak_with_gradients)
    reserve = RESERVE if step.gpu else RESERVE_CPU
    resident = weights + optimizer + buffers + reserve
    generating = resident + (gradients if engine.zero_stage else 0)
    vllm, vllm_in_training, full_completions = _vllm(setup, count)
    cache = 0
    if generation.server:
        generating = 0
    elif generation.vllm:
        # TRL gathers and sends one tensor at a time, except with LoRA under ZeRO-3, where TRL gathers all tensors.
        if engine.zero_stage == 3 and step.lora is not None:
            gathered = setup.frozen_bytes * count.weights
        else:
            gathered = setup.sent_bytes * count.largest if engine.shards_weights else 0
        generating += vllm + gathered
    else:
        cache = generation.kv_bytes * generation.sequences * step.tokens
        generating += cache + (setup.frozen_bytes * count.weights if engine.zero_stage == 3 else 0)
    parts = {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "engine's buffers": buffers,
        "activations": count.peak,
        "vLLM": vllm,
        "key-value cache": cache,
        "reserve (estimate)": reserve,
    }
    training = resident + step_peak + vllm_in_training
    return Memory(parts, training, generating, host, full_completions)


def _states(count: StepCount, setup: Setup) -> tuple[int, int, int, int]:
    """Return the bytes of weights, gradients and optimizer state per device, and the offloaded bytes per node."""
    engine = setup.engine
    processes, stage = engine.processes, 3 if engine.fsdp else engine.zero_stage
    weights = setup.frozen_bytes * (count.weights - count.trained) + setup.trained_bytes * count.trained
    gradients = setup.trained_bytes * count.trained
    # Adam's two moments have the weights' dtype; DeepSpeed keeps moments and master weights in float32.
    optimizer = (12 if engine.zero_stage else 2 * setup.trained_bytes) * count.trained
    if stage >= 1:
        optimizer //= processes
    if stage >= 2:
        gradients //= processes
    if stage >= 3:
        weights //= processes
    host = 0
    per_node = processes // engine.nodes
    if engine.offload_optimizer:
        # With offloading, stages 2 and 3 also move the gradients to the host, where Adam reads a float32 copy.
        host += (optimizer + gradients + 4 * count.trained // processes) * per_node
        optimizer = gradients = 0
    if engine.offload_weights and stage == 3:
        host += weights * per_node
        weights = 0
    return weights, gradients, optimizer, host


def _buffers(count: StepCount, setup: Setup) -> int:
    engine, size = setup.engine, WIDTHS[setup.step.dtype]
    if engine.fsdp:
        # FSDP2 allocates a layer, the prefetched next layer, the layer's gradients, and either the previous unit's
        # gradients during their reduction, or the LM head, which remains gathered until its backward pass.
        return size * (3 * count.layer + max(count.layer, count.head))
    if not engine.zero_stage:
        # DDP's buckets are a second copy of the gradients.
        return setup.trained_bytes * count.trained if engine.processes > 1 else 0
    bucket = size * min(BUCKET, count.trained)
    if engine.zero_stage < 3:
        return bucket
    # DeepSpeed gathers layers, and TRL gathers the LM head separately.
    return bucket + size * min(LIVE_WEIGHTS + count.largest, count.weights)


def _vllm(setup: Setup, count: StepCount) -> tuple[int, int, float]:
    """Return vLLM's bytes in generation and training, and the number of full-length completions in its cache."""
    generation = setup.generation
    if not generation.vllm or setup.device is None:
        return 0, 0, float("inf")
    reserved = int(generation.utilization * setup.device)
    cache = reserved - 2 * count.weights // generation.tensor_parallel - VLLM_WORKSPACE
    full_completions = max(cache, 0) / (generation.kv_bytes * setup.step.tokens)
    return reserved, VLLM_SLEEPING if generation.sleeps else reserved, full_completions
