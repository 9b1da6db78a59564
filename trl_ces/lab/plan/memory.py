"""Memory of one device by part, in bytes, at the longest completions: what the engine holds plus one step's tensors.

Exact by construction: parameter counts, and the tensors of a forward and backward pass (`step.py`). From DeepSpeed's
and vLLM's documented defaults: buckets, the weights that ZeRO-3 gathers, and the buffers that weights are sent in.
Estimates: `RESERVE`, `RESERVE_CPU`, `VLLM_WORKSPACE` and `VLLM_ASLEEP`.
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
# vLLM's activations for 4,096 batched tokens and its CUDA graphs, which since 0.21 leave its cache less room
# (`Worker.determine_available_memory` in vllm/v1/worker/gpu_worker.py); the graphs stay while it sleeps.
VLLM_WORKSPACE = 2 * GIB
VLLM_ASLEEP = 1 * GIB
# DeepSpeed's defaults, in parameters: reduce_bucket_size and stage3_max_live_parameters.
BUCKET = 500_000_000
LIVE_WEIGHTS = 1_000_000_000
# vLLM's defaults for weights on their way to a server: bytes after which a buffer is sent, and buffers in flight.
PACKED = 1 * GIB
PACKED_BUFFERS = 2

WIDTHS = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Generation:
    """How completions are generated."""

    vllm: bool  # vLLM on the training devices; `False`: transformers' `generate`, or a server
    utilization: float  # vLLM's share of the device, 0 to 1
    sleeps: bool  # whether vLLM frees its memory during training
    tensor_parallel: int  # devices per vLLM engine
    sequences: int  # completions generated at a time, by one process or by the server
    kv_bytes: int  # bytes of key-value cache per token on one device; of a server, in one engine
    server: bool = False  # vLLM runs on other devices, see `plan_server`
    corrected: bool = False  # whether the policy scores every rollout, `vllm_importance_sampling_correction`


@dataclass(frozen=True)
class Setup:
    """Everything that decides memory."""

    step: StepSettings  # one forward and backward pass
    engine: Engine  # how processes share weights, gradients and optimizer state
    accumulation: int  # passes per optimizer step; from the second on, gradients coexist with activations
    generation: Generation  # how completions are generated
    device: int | None  # bytes of a device
    reference: bool = False  # whether the KL term asks the model before training, a second one unless LoRA is trained
    loaded: str | None = None  # dtype of the weights as loaded. `None`: that of the computation
    trained: str | None = None  # dtype in which trained weights and their gradients are kept
    # Fields that make a micro-batch one row and leave a step as it is; none if the loss couples its rows.
    one_row: tuple[tuple[str, str], ...] = ()

    @property
    def loaded_bytes(self) -> int:
        """Bytes of a weight as loaded."""
        return WIDTHS[self.loaded or self.step.dtype]

    @property
    def frozen_bytes(self) -> int:
        """Bytes of a weight that is not trained: as loaded, but DeepSpeed casts the whole model."""
        return WIDTHS[self.step.dtype] if self.engine.zero_stage else self.loaded_bytes

    @property
    def trained_bytes(self) -> int:
        """Bytes of a trained weight and of its gradient; DeepSpeed's float32 masters are the optimizer's."""
        return self.frozen_bytes if self.trained is None else WIDTHS[self.trained]

    @property
    def sent_bytes(self) -> int:
        """Bytes of a weight on its way to vLLM: TRL sends weights as kept, adapters merged into the frozen ones."""
        return self.trained_bytes if self.step.lora is None else self.frozen_bytes


@dataclass(frozen=True)
class Memory:
    """Bytes of one device."""

    parts: dict[str, int]  # peak of each part
    training: int  # peak while the policy trains; below the sum, since not all parts peak together
    generating: int  # peak while completions are generated
    host: int  # host memory of a node for what is offloaded
    loading: int  # host memory of a node while its processes load the model
    full_answers: float  # completions of full length that vLLM's cache holds; infinite without vLLM
    device: int | None  # capacity of the device

    @property
    def excess(self) -> int:
        """Missing bytes, 0 if it fits; at least 1 if vLLM cannot hold one full completion, as it would not start."""
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
    weights, gradients, optimizer, host = _states(count, setup)
    if setup.reference and step.lora is None:
        weights += setup.frozen_bytes * count.weights // (engine.processes if engine.shards_weights else 1)
    buffers = _buffers(count, setup)
    if engine.zero_stage or engine.fsdp or setup.accumulation > 1:
        step_peak = gradients + count.peak
    else:
        step_peak = max(gradients, count.peak_with_gradients)
    resident = weights + optimizer + buffers
    reserve = RESERVE if step.gpu else RESERVE_CPU
    vllm, in_training, full_answers = _vllm(setup, count)
    training = resident + step_peak + reserve + in_training
    generating = resident + (gradients if engine.zero_stage else 0) + reserve
    cache = sending = 0
    if setup.generation.vllm:
        generating += vllm + gathered_to_send(setup, count)
    elif setup.generation.server:
        # Of the first process. What is gathered waits until a buffer is full.
        collected = in_flight(setup, count, buffers=1) if engine.shards_weights else 0
        sending = max(gathered_to_send(setup, count), collected) + in_flight(setup, count)
        generating += sending
    else:
        cache = setup.generation.kv_bytes * setup.generation.sequences * step.tokens
        generating += cache + (setup.frozen_bytes * count.weights if engine.zero_stage == 3 else 0)
    parts = {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "engine's buffers": buffers,
        "activations": count.peak,
        "vLLM": vllm,
        "weights on their way to vLLM": sending,
        "key-value cache": cache,
        "reserve (estimate)": reserve,
    }
    return Memory(parts, training, generating, host, _loading(count, setup), full_answers, setup.device)


def sent_weights(count: StepCount, step: StepSettings) -> int:
    """Number of weights that TRL sends to vLLM: adapters are merged, and skipped."""
    return count.weights if step.lora is None else count.weights - count.trained


def gathered_to_send(setup: Setup, count: StepCount) -> int:
    """Bytes that each device gathers while TRL sends weights: a tensor at a time; with LoRA under ZeRO-3, all."""
    if setup.engine.zero_stage == 3 and setup.step.lora is not None:
        return setup.frozen_bytes * count.weights
    return setup.sent_bytes * count.largest if setup.engine.shards_weights else 0


def in_flight(setup: Setup, count: StepCount, buffers: int = PACKED_BUFFERS) -> int:
    """Bytes of the buffers that weights are sent in, at either end; a tensor may start in one that is almost full."""
    buffer = PACKED + setup.sent_bytes * count.largest
    return min(buffers * buffer, setup.sent_bytes * sent_weights(count, setup.step))


def _states(count: StepCount, setup: Setup) -> tuple[int, int, int, int]:
    """Bytes of weights, gradients and optimizer on a device, and of all that a node offloads to the host."""
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
    of_a_node = processes // engine.nodes
    if engine.offload_optimizer:
        # Stages 2 and 3 then gather the gradients on the host, too, and Adam reads a float32 copy of them.
        host += (optimizer + gradients + 4 * count.trained // processes) * of_a_node
        optimizer = gradients = 0
    if engine.offload_weights and stage == 3:
        host += weights * of_a_node
        weights = 0
    return weights, gradients, optimizer, host


def _loading(count: StepCount, setup: Setup) -> int:
    """Bytes of a node's host memory while transformers loads the model: none if it loads onto the one device."""
    engine = setup.engine
    if not setup.step.gpu or (engine.processes == 1 and not engine.zero_stage):
        return 0
    weights = sent_weights(count, setup.step)
    if engine.zero_stage == 3:
        return WIDTHS["bfloat16"] * weights  # the first process reads the checkpoint, and scatters it
    copies = 1 if engine.loads_once else engine.processes // engine.nodes
    return copies * setup.loaded_bytes * weights


def _buffers(count: StepCount, setup: Setup) -> int:
    engine, size = setup.engine, WIDTHS[setup.step.dtype]
    if engine.fsdp:
        # In the dtype of the computation: a layer, the next one on its way, the layer's gradients, and those of the
        # unit before, on their way out. Or the LM head, gathered from the forward to its backward.
        return size * (3 * count.layer + max(count.layer, count.head))
    if not engine.zero_stage:
        # DDP's buckets are a second copy of the gradients.
        return setup.trained_bytes * count.trained if engine.processes > 1 else 0
    bucket = size * min(BUCKET, count.trained)
    if engine.zero_stage < 3:
        return bucket
    # The gathered layers, and the LM head, which TRL gathers separately.
    return bucket + size * min(LIVE_WEIGHTS + count.largest, count.weights)


def _vllm(setup: Setup, count: StepCount) -> tuple[int, int, float]:
    """vLLM's bytes while generating and while training, and how many full completions its cache holds."""
    generation = setup.generation
    if not generation.vllm or setup.device is None:
        return 0, 0, float("inf")
    whole = int(generation.utilization * setup.device)
    room = whole - 2 * count.weights // generation.tensor_parallel - VLLM_WORKSPACE
    full_answers = max(room, 0) / (generation.kv_bytes * setup.step.tokens)
    return whole, VLLM_ASLEEP if generation.sleeps else whole, full_answers
