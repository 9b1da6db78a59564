"""What goes over the network in each rollout: weights to vLLM, answers back, and the steps' own traffic between nodes.

Predicted from sizes: collectives by NCCL's rings, in which (P-1)/P of P processes' tensor enters each node, and twice
that where gradients are averaged. DeepSpeed and FSDP2 as in ZeRO (arXiv 1910.02054, section 7): weights are gathered
for the forward and again for the backward, and gradients are scattered once.
"""

from __future__ import annotations

from dataclasses import dataclass

from .memory import WIDTHS, Setup, sent_weights
from .step import StepCount, count_step

# JSON of a token: its id, its log-prob and the log-prob again by id. An estimate.
BYTES_PER_TOKEN = 100


@dataclass(frozen=True)
class Transfer:
    """One kind of traffic."""

    what: str  # in words
    size: int  # bytes per rollout; between nodes, into each node


def transfers(setup: Setup, updates: int, responses: int, completion: int) -> list[Transfer]:
    """Traffic of one rollout; none for one node without a server."""
    count, engine = count_step(setup.step), setup.engine
    sent = setup.sent_bytes * sent_weights(count, setup.step)
    dtype = next(name for name, width in WIDTHS.items() if width == setup.sent_bytes)
    found = []
    if setup.generation.server:
        found.append(Transfer(f"weights to vLLM ({dtype})", sent))
        found.append(Transfer("full-length answers from vLLM (estimate)", BYTES_PER_TOKEN * responses * completion))
    if engine.nodes > 1:
        if engine.shards_weights:
            found.append(Transfer("weights gathered from other nodes, for vLLM", _ring(sent, setup)))
        found.append(Transfer("weights and gradients between nodes, in the steps", _steps(setup, count, updates)))
    return found


def _ring(size: int, setup: Setup) -> int:
    """Bytes that enter a node while P processes gather, or scatter, a tensor of `size` bytes."""
    processes = setup.engine.processes
    return size * (processes - 1) // processes


def _steps(setup: Setup, count: StepCount, updates: int) -> int:
    """Bytes that enter a node in the optimizer steps of a rollout."""
    engine, size = setup.engine, WIDTHS[setup.step.dtype]
    passes = updates * setup.accumulation
    if engine.shards_weights:
        # FSDP2 keeps the LM head from the forward to its backward.
        gathered = 2 * count.weights - (count.head if engine.fsdp else 0)
        return _ring(size * (gathered + count.trained), setup) * passes
    if engine.zero_stage:
        scattered = passes if engine.zero_stage == 2 else updates
        return _ring(size * count.trained, setup) * (scattered + updates)
    return 2 * _ring(setup.trained_bytes * count.trained, setup) * updates
