"""Seconds of a rollout by phase, predicted: each phase takes as long as the one resource that bounds it.

Decoding is bound by memory bandwidth (weights and cached keys), forwards and backwards by FLOP/s, the rest by a link,
a disk or the host. Nothing here was measured: a data sheet gives the peaks, and what none says is a fast and a slow
guess in `Rates`, with its source. Completions have the lengths that DeepSeek-R1's have.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass
from statistics import NormalDist, mean

from ...layers.arrangement import arrange
from ...train.sizes import Disk, Schedule
from .memory import WIDTHS, Memory, Setup, plan_memory, sent_weights
from .server import Server, plan_server
from .step import count_step


@dataclass(frozen=True)
class Device:
    """NVIDIA's data sheet."""

    flops: float  # bf16, dense
    memory: float  # bytes/s
    link: float  # bytes/s between GPUs of a node, one way: NVLink, else PCIe
    pcie: float  # bytes/s to the host, one way


DEVICES = {
    "A800": Device(312e12, 2039e9, 200e9, 32e9),
    "A100": Device(312e12, 2039e9, 300e9, 32e9),
    "H100": Device(989e12, 3350e9, 450e9, 64e9),
    "L40S": Device(362e12, 864e9, 32e9, 32e9),
    "RTX4090": Device(165e12, 1008e9, 32e9, 32e9),
}


@dataclass(frozen=True)
class Rates:
    """What no data sheet says; "assumed" where no source was found."""

    # Share of the peak in forwards and backwards. Llama 3 had 0.38 to 0.43 (arXiv 2407.21783, section 3.3).
    flops: float
    memory: float  # share of the bandwidth in decoding and in AdamW on a GPU; assumed
    links: float  # share of NVLink's, PCIe's and the network's; assumed
    token: float  # seconds of scheduling and sampling per decoded token of a batch; assumed
    # Seconds of CPU Adam per billion weights of a node. Fast: 30 bytes a weight at 0.6 of two sockets of 8 channels of
    # DDR4-3200, 410 GB/s. Slow: 10 s for 72 billion on 4 nodes of A100s (DeepSpeed issue 6834). It needs all cores.
    host_adam: float
    nap: float  # seconds of vLLM's sleep and waking (vLLM's blog, 2025-10-26: 0.1 to 6 s to wake, by model and level)
    tensor: float  # seconds of Python per tensor that is gathered and loaded; assumed
    network: float  # bytes/s into a node, where `--bandwidth` is not given: 400 and 100 Gbit/s
    disk: float  # bytes/s written: an NVMe disk, and a network disk; assumed
    start: float  # seconds until the first rollout: weights, vLLM's compilation and CUDA graphs; assumed


FAST = Rates(0.45, 0.75, 0.75, 0.001, 0.12, 1, 0.001, 50e9, 2e9, 120)
SLOW = Rates(0.3, 0.5, 0.5, 0.003, 0.55, 6, 0.01, 12.5e9, 0.5e9, 600)
# A question in tokens, and the lengths of R1's completions at a limit of 12,000: exp(N(ln 3200, 0.7)), at least 200.
PROMPT, MEDIAN, SPREAD, LEAST, LIMIT = 180, 3200, 0.7, 200, 12_000
# Bytes that AdamW reads and writes per weight: float32 weight and moments both ways, gradient, 16-bit weight.
ADAM_BYTES = 30


@dataclass(frozen=True)
class Plan:
    """One recipe's plan."""

    name: str  # the recipe
    model: str  # its model
    schedule: Schedule  # its rollouts and steps
    setup: Setup  # what decides its memory
    disk: Disk  # what it writes
    prompt: str  # where the prompt's length comes from
    completion: int  # tokens of the longest completion
    device: str  # one of `DEVICES`
    server_gpus: int | None = None  # devices of the vLLM server; `None`: unknown, or vLLM is colocated
    network: float | None = None  # bytes/s into a node, one way

    @property
    def memory(self) -> Memory:
        return plan_memory(self.setup)

    @property
    def server(self) -> Server | None:
        return None if self.server_gpus is None else plan_server(self.setup, self.server_gpus)

    @property
    def fits(self) -> bool:
        """Whether training devices and server have the memory, as far as it is known."""
        return self.memory.fits and (self.server is None or self.server.fits)

    @property
    def one_machine(self) -> bool:
        """Whether training and server may be on one machine, of 8 devices."""
        return self.setup.engine.nodes == 1 and self.setup.engine.processes + (self.server_gpus or 0) <= 8

    @property
    def phases(self) -> tuple[dict[str, float], dict[str, float]] | None:
        """Seconds of a rollout by phase, fast and slow; `None` unless vLLM generates on a known number of GPUs."""
        generation = self.setup.generation
        if not self.setup.step.gpu or not (generation.vllm or self.server_gpus):
            return None
        fast, slow = (rollout_seconds(self, DEVICES[self.device], rates) for rates in (FAST, SLOW))
        return fast, slow

    @property
    def hours(self) -> tuple[float, float] | None:
        """Of the whole run, fast and slow; `None` where the phases or the rollouts are unknown."""
        if self.phases is None or self.schedule.rollouts is None:
            return None
        fast, slow = (
            (rates.start + self.schedule.rollouts * sum(phases.values())) / 3600
            for rates, phases in zip((FAST, SLOW), self.phases, strict=True)
        )
        return fast, slow


def answer_lengths(count: int, longest: int) -> list[int]:
    """`count` quantiles of the lengths, scaled to a limit of `longest`, in an order that is always the same."""
    normal = NormalDist(math.log(MEDIAN), SPREAD)
    drawn = [math.exp(normal.inv_cdf((place + 0.5) / count)) for place in range(count)]
    lengths = [max(1, round(min(max(length, LEAST), LIMIT) * longest / LIMIT)) for length in drawn]
    random.Random(0).shuffle(lengths)
    return lengths


def decoding(
    lengths: list[int], slots: float, weights: int, kv_bytes: int, memory: float, flops: float
) -> tuple[float, int]:
    """Seconds, without overhead, and steps in which one engine writes these completions, at most `slots` at a time."""
    waiting, now, context, seconds = list(lengths), 0, 0, 0.0
    alive: list[tuple[int, int]] = []  # when a completion ends, and its length
    while waiting or alive:
        while waiting and len(alive) < max(slots, 1):
            length = waiting.pop()
            heapq.heappush(alive, (now + length, length))
            context += PROMPT
        steps, rows = alive[0][0] - now, len(alive)
        read = steps * 2 * weights + kv_bytes * (steps * context + rows * steps**2 / 2)
        seconds += max(read / memory, steps * 2 * weights * rows / flops)
        now, context = now + steps, context + rows * steps
        context -= PROMPT + heapq.heappop(alive)[1]
    return seconds, now


def rollout_seconds(plan: Plan, device: Device, rates: Rates, lengths: list[int] | None = None) -> dict[str, float]:
    """Seconds of each phase of a rollout, which follow one another; of these `lengths`, or else of R1's."""
    setup, schedule, engine, count = plan.setup, plan.schedule, plan.setup.engine, count_step(plan.setup.step)
    lengths = lengths or answer_lengths(schedule.responses, plan.completion)
    within = device.link if engine.nodes == 1 else plan.network or rates.network
    link, pcie = within * rates.links, device.pcie * rates.links
    forwards = _forwards(plan, lengths) / (device.flops * rates.flops)
    passes = schedule.responses / (schedule.micro_batch * engine.processes)  # over a rollout once
    gathered = _ring(WIDTHS[setup.step.dtype] * count.weights, plan) / link if engine.shards_weights else 0.0
    # A backward is two forwards, or one where the base needs no gradient; checkpointing repeats the forward.
    turns = (3 if setup.step.lora is None else 2) + setup.step.checkpointing
    share = count.trained / engine.processes
    if engine.offload_optimizer:
        # DeepSpeed's stage3.py, a weight of a process's share: gradients in 16 bits to the host and back in each pass,
        # in float32 to the host at the end, weights in 16 bits to the GPU.
        optimizer = (
            rates.host_adam * count.trained / 1e9 / engine.nodes + share * (6 + 4 * schedule.accumulation) / pcie
        )
    else:
        moved = share if engine.zero_stage or engine.fsdp else count.trained
        optimizer = ADAM_BYTES * moved / (device.memory * rates.memory)
    disk = plan.disk
    scored = schedule.updates > 1 or setup.generation.corrected
    saves = 0 if disk.saves is None or schedule.rollouts is None else disk.saves / schedule.rollouts
    return {
        "generation": _generation(plan, lengths, device, rates),
        "old log-probs": forwards + passes * gathered if scored else 0.0,
        "reference log-probs": forwards + passes * gathered if setup.reference else 0.0,
        "update": schedule.uses / passes * turns * forwards + _traffic(plan) / link,
        "optimizer": schedule.uses / schedule.accumulation * optimizer,
        "weights to vLLM": _sync(plan, device, rates),
        "checkpoints": saves * disk.checkpoint / rates.disk,
    }


def _ring(size: float, plan: Plan) -> float:
    """Bytes that enter a process, and over nodes a node, while all gather or scatter a tensor of `size` bytes."""
    processes = plan.setup.engine.processes
    return size * (processes - 1) / processes


def _generation(plan: Plan, lengths: list[int], device: Device, rates: Rates) -> float:
    generation, server = plan.setup.generation, plan.server
    if server is not None:
        parallel, engines, full = server.tensor_parallel, server.copies, server.full_answers / server.copies
        kv_bytes = generation.kv_bytes
    else:
        parallel = generation.tensor_parallel
        engines, full = plan.setup.engine.processes // parallel, plan.memory.full_answers
        kv_bytes = generation.kv_bytes * parallel
    # A completion takes as much of the cache as it has tokens, on average half of its length.
    slots = full * plan.setup.step.tokens / (PROMPT + mean(lengths) / 2)
    weights = sent_weights(count_step(plan.setup.step), plan.setup.step)
    memory, flops = device.memory * rates.memory * parallel, device.flops * rates.flops * parallel
    return max(
        seconds + steps * rates.token
        for seconds, steps in (
            decoding(lengths[number::engines], slots, weights, kv_bytes, memory, flops) for number in range(engines)
        )
    )


def _forwards(plan: Plan, lengths: list[int]) -> float:
    """FLOPs of one forward over a rollout on the slowest process, because engines wait for it in every pass."""
    step, schedule = plan.setup.step, plan.schedule
    weights, text = count_step(step).weights, step.shape.config().get_text_config()
    packed, total = step.flash_attention, 0.0
    for start in range(0, schedule.responses, schedule.responses_per_step):
        rows = [PROMPT + length for length in lengths[start : start + schedule.responses_per_step]]
        placed = arrange(rows, plan.setup.engine.processes, schedule.accumulation, packed)
        for together in zip(*placed, strict=True):
            sizes = [[rows[row] if packed else max(rows[r] for r in batch) for row in batch] for batch in together]
            # Causal attention counts as half of its square.
            total += max(
                sum(2 * weights * size + 2 * text.num_hidden_layers * text.hidden_size * size**2 for size in batch)
                for batch in sizes
            )
    return total


def _traffic(plan: Plan) -> float:
    """Bytes of weights and gradients that enter a process in the steps of a rollout, as in ZeRO (arXiv 1910.02054)."""
    engine, count, passes = plan.setup.engine, count_step(plan.setup.step), plan.schedule.uses
    size, updates = WIDTHS[plan.setup.step.dtype], passes / plan.schedule.accumulation
    if engine.shards_weights:
        # Weights for the forward and the backward, gradients once. FSDP2 keeps the LM head between the two.
        return _ring(size * (2 * count.weights - engine.fsdp * count.head + count.trained), plan) * passes
    if engine.zero_stage:
        return _ring(size * count.trained, plan) * ((passes if engine.zero_stage == 2 else updates) + updates)
    return 2 * _ring(plan.setup.trained_bytes * count.trained, plan) * updates


def _sync(plan: Plan, device: Device, rates: Rates) -> float:
    """vLLM's waking, the weights on their way to it, and its sleep."""
    setup, engine, count = plan.setup, plan.setup.engine, count_step(plan.setup.step)
    network, within = plan.network or rates.network, device.link
    sent = setup.sent_bytes * sent_weights(count, setup.step)
    seconds = count.tensors * rates.tensor
    if engine.shards_weights:
        seconds += _ring(sent, plan) / (rates.links * (within if engine.nodes == 1 else network))
    if setup.generation.server:
        return seconds + sent / (rates.links * (within if plan.one_machine else network))
    if setup.step.lora is not None and not engine.shards_weights:  # the frozen base waits on the host, see FrozenBase
        seconds += 2 * sent / (device.pcie * rates.links)
    return seconds + 2 * sent / (device.memory * rates.memory) + rates.nap * setup.generation.sleeps
