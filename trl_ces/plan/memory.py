"""Memory of one device by part, in bytes, at the longest answers: what the engine holds plus one step's tensors.

Exact by construction: parameter counts, and the tensors of a forward and backward pass (`step.py`). From DeepSpeed's
documented defaults: its buckets and the weights that ZeRO-3 gathers. Estimates: `RESERVE`, `RESERVE_CPU`,
`VLLM_WORKSPACE` and `VLLM_ASLEEP`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .engine import Engine
from .step import StepCount, StepSettings, count_step

GIB = 2**30
# Estimates. CUDA context, NCCL buffers and allocator fragmentation:
RESERVE = 3 * GIB
# Python, torch and other libraries, on a CPU:
RESERVE_CPU = 1 * GIB
# vLLM's activations for 4,096 batched tokens and its CUDA graphs; the graphs stay while it sleeps.
VLLM_WORKSPACE = 2 * GIB
VLLM_ASLEEP = 1 * GIB
# DeepSpeed's defaults, in parameters: reduce_bucket_size and stage3_max_live_parameters.
BUCKET = 500_000_000
LIVE_WEIGHTS = 1_000_000_000


@dataclass(frozen=True)
class Generation:
    """
    How answers are generated.

    Args:
        vllm (`bool`): vLLM on the training devices; `False`: transformers' `generate`, or a server.
        utilization (`float`): vLLM's share of the device, 0 to 1.
        sleeps (`bool`): Whether vLLM frees its memory during training.
        tensor_parallel (`int`): Devices per vLLM engine.
        sequences (`int`): Answers that one process generates at a time.
        kv_bytes (`int`): Bytes of key-value cache per token on one device.
        server (`bool`): vLLM runs on other devices, which are not counted.
    """

    vllm: bool
    utilization: float
    sleeps: bool
    tensor_parallel: int
    sequences: int
    kv_bytes: int
    server: bool = False


@dataclass(frozen=True)
class Setup:
    """
    Everything that decides memory.

    Args:
        step ([`StepSettings`]): One forward and backward pass.
        engine ([`Engine`]): How processes share weights, gradients and optimizer state.
        accumulation (`int`): Passes per optimizer step; from the second on, gradients coexist with activations.
        generation ([`Generation`]): How answers are generated.
        device (`int`, *optional*): Bytes of a device.
        reference_model (`bool`): Whether a second model is loaded for the KL term.
    """

    step: StepSettings
    engine: Engine
    accumulation: int
    generation: Generation
    device: int | None
    reference_model: bool = False


@dataclass(frozen=True)
class Memory:
    """
    Bytes of one device.

    Args:
        parts (`dict[str, int]`): Peak of each part.
        training (`int`): Peak while the policy trains; below the sum, since not all parts peak together.
        generating (`int`): Peak while answers are generated.
        host (`int`): Host memory of all processes together.
        full_answers (`float`): Answers of full length that vLLM's cache holds; infinite without vLLM.
        device (`int`, *optional*): Capacity of the device.
    """

    parts: dict[str, int]
    training: int
    generating: int
    host: int
    full_answers: float
    device: int | None

    @property
    def excess(self) -> int:
        """Missing bytes, 0 if it fits; at least 1 if vLLM cannot hold one full answer, as it would not start."""
        if self.device is None:
            return 0
        missing = max(self.training, self.generating) - self.device
        return max(missing, 1 if self.full_answers < 1 else 0, 0)

    @property
    def fits(self) -> bool:
        return self.excess == 0


def plan_memory(setup: Setup) -> Memory:
    """Memory of one device under `setup`."""
    count, engine, step = count_step(setup.step), setup.engine, setup.step
    size = 2 if step.dtype == "bfloat16" else 4
    weights, gradients, optimizer, host = _states(count, engine, size)
    if setup.reference_model:
        weights += size * count.weights // (engine.processes if engine.zero_stage == 3 else 1)
    buffers = _buffers(count, engine, size)
    if engine.zero_stage or setup.accumulation > 1:
        step_peak = gradients + count.peak
    else:
        step_peak = max(gradients, count.peak_with_gradients)
    resident = weights + optimizer + buffers
    reserve = RESERVE if step.gpu else RESERVE_CPU
    vllm, in_training, full_answers = _vllm(setup, count)
    training = resident + step_peak + reserve + in_training
    generating = resident + (gradients if engine.zero_stage else 0) + reserve
    cache = 0
    if setup.generation.vllm:
        generating += vllm + (size * count.largest if engine.zero_stage == 3 else 0)
    elif not setup.generation.server:
        cache = setup.generation.kv_bytes * setup.generation.sequences * step.tokens
        generating += cache + (size * count.weights if engine.zero_stage == 3 else 0)
    parts = {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "engine's buffers": buffers,
        "activations": count.peak,
        "vLLM" if setup.generation.vllm else "key-value cache": vllm if setup.generation.vllm else cache,
        "reserve (estimate)": reserve,
    }
    return Memory(parts, training, generating, host, full_answers, setup.device)


def _states(count: StepCount, engine: Engine, size: int) -> tuple[int, int, int, int]:
    """Bytes of weights, gradients and optimizer on a device, and of all that is offloaded to the host."""
    processes, stage = engine.processes, engine.zero_stage
    weights = size * count.weights
    gradients = size * count.trained
    # Adam's two moments have the weights' dtype; DeepSpeed keeps moments and master weights in float32.
    optimizer = (12 if stage else 2 * size) * count.trained
    if stage >= 1:
        optimizer //= processes
    if stage >= 2:
        gradients //= processes
    if stage >= 3:
        weights //= processes
    host = 0
    if engine.offload_optimizer:
        # Stages 2 and 3 then gather the gradients on the host, too.
        host += (optimizer + gradients) * processes
        optimizer = gradients = 0
    if engine.offload_weights and stage == 3:
        host += weights * processes
        weights = 0
    return weights, gradients, optimizer, host


def _buffers(count: StepCount, engine: Engine, size: int) -> int:
    if not engine.zero_stage:
        # DDP's buckets are a second copy of the gradients.
        return size * count.trained if engine.processes > 1 else 0
    bucket = size * min(BUCKET, count.trained)
    if engine.zero_stage < 3:
        return bucket
    # The gathered layers, and the LM head, which TRL gathers separately.
    return bucket + size * min(LIVE_WEIGHTS + count.largest, count.weights)


def _vllm(setup: Setup, count: StepCount) -> tuple[int, int, float]:
    """vLLM's bytes while generating and while training, and how many full answers its cache holds."""
    generation = setup.generation
    if not generation.vllm or setup.device is None:
        return 0, 0, float("inf")
    whole = int(generation.utilization * setup.device)
    room = whole - 2 * count.weights // generation.tensor_parallel - VLLM_WORKSPACE
    full_answers = max(room, 0) / (generation.kv_bytes * setup.step.tokens)
    return whole, VLLM_ASLEEP if generation.sleeps else whole, full_answers
