"""Memory of one device by part, in bytes, at the longest answers: what the engine holds, and one step's tensors.

Exact by construction: numbers of weights, and the tensors of a forward and backward pass (`step.py`). From DeepSpeed's
documented defaults: its buckets and the weights that ZeRO-3 gathers. Estimates, named as such: `RESERVE`,
`RESERVE_CPU`, `VLLM_WORKSPACE` and `VLLM_ASLEEP`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .engine import Engine
from .step import StepCount, StepSettings, count_step

GIB = 2**30
# Estimates. CUDA's context, NCCL's buffers and gaps between the allocator's blocks:
RESERVE = 3 * GIB
# Python, torch and the libraries, on a CPU:
RESERVE_CPU = 1 * GIB
# vLLM's activations for 4,096 batched tokens, and its CUDA graphs; the graphs stay when it sleeps.
VLLM_WORKSPACE = 2 * GIB
VLLM_ASLEEP = 1 * GIB
# DeepSpeed's defaults, numbers of weights: reduce_bucket_size and stage3_max_live_parameters.
BUCKET = 500_000_000
LIVE_WEIGHTS = 1_000_000_000


@dataclass(frozen=True)
class Generation:
    """
    Who writes the answers.

    Args:
        vllm (`bool`): vLLM on the training devices; `False`: transformers' `generate`. A server holds its own memory.
        utilization (`float`): vLLM's share of the device.
        sleeps (`bool`): vLLM gives its memory back during training.
        tensor_parallel (`int`): Devices that share one vLLM.
        sequences (`int`): Answers that one process generates at a time.
        kv_bytes (`int`): Bytes of the key-value cache for each token, on one device.
        server (`bool`): vLLM runs elsewhere: nothing here.
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
        engine ([`Engine`]): How the processes share weights, gradients and the optimizer.
        accumulation (`int`): Passes of an optimizer step: from the second on, gradients lie beside the activations.
        generation ([`Generation`]): Who writes the answers.
        device (`int`, *optional*): Bytes of a device.
        reference_model (`bool`): A second model, for the KL term.
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
        parts (`dict[str, int]`): By part, each at its largest.
        training (`int`): Most at a time while the policy trains. Below the sum: not all parts peak together.
        generating (`int`): Most at a time while answers are written.
        host (`int`): Of the machine's memory, for all processes together.
        full_answers (`float`): Answers of full length that the key-value cache holds; infinite without vLLM.
        device (`int`, *optional*): What the device has.
    """

    parts: dict[str, int]
    training: int
    generating: int
    host: int
    full_answers: float
    device: int | None

    @property
    def excess(self) -> int:
        """Bytes by which the device is too small, 0 if it is not; a vLLM that holds no whole answer never starts."""
        if self.device is None:
            return 0
        missing = max(self.training, self.generating) - self.device
        return max(missing, 1 if self.full_answers < 1 else 0, 0)

    @property
    def fits(self) -> bool:
        return self.excess == 0


def plan_memory(setup: Setup) -> Memory:
    """
    Memory of one device.

    Args:
        setup ([`Setup`]): What is planned.

    Returns:
        [`Memory`]
    """
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
    """Bytes of weights, gradients and optimizer on a device, and of what is offloaded on the whole machine."""
    processes, stage = engine.processes, engine.zero_stage
    weights = size * count.weights
    gradients = size * count.trained
    # Adam's two moments have the weights' type; DeepSpeed keeps moments and master weights in float32.
    optimizer = (12 if stage else 2 * size) * count.trained
    if stage >= 1:
        optimizer //= processes
    if stage >= 2:
        gradients //= processes
    if stage >= 3:
        weights //= processes
    host = 0
    if engine.offload_optimizer:
        # Stages 2 and 3 then gather the gradients in the machine's memory too.
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
    # The gathered layers, and the LM head, which TRL gathers by itself.
    return bucket + size * min(LIVE_WEIGHTS + count.largest, count.weights)


def _vllm(setup: Setup, count: StepCount) -> tuple[int, int, float]:
    """vLLM's bytes while it generates and while the policy trains, and how many full answers its cache holds."""
    generation = setup.generation
    if not generation.vllm or setup.device is None:
        return 0, 0, float("inf")
    whole = int(generation.utilization * setup.device)
    room = whole - 2 * count.weights // generation.tensor_parallel - VLLM_WORKSPACE
    full_answers = max(room, 0) / (generation.kv_bytes * setup.step.tokens)
    return whole, VLLM_ASLEEP if generation.sleeps else whole, full_answers
