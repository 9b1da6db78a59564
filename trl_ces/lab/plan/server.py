"""Memory of a vLLM server of its own.

`WORKSPACE` and `OUTSIDE` are estimates; the rest are parameter counts, and vLLM's documented defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

from .memory import GIB, WIDTHS, Setup, in_flight, sent_weights
from .step import count_step

# vLLM's activations, logits and CUDA graphs. An estimate: a server batches about twice the tokens of a colocated vLLM.
WORKSPACE = 4 * GIB
# CUDA and NCCL, outside vLLM's share. An estimate.
OUTSIDE = 1 * GIB
# Twentieths of a device: the plan gives vLLM no more, though its default share is larger in newer releases.
MOST = 18


@dataclass(frozen=True)
class Server:
    """What each device of a server holds, in bytes."""

    gpus: int  # devices
    tensor_parallel: int  # devices per copy of the model
    utilization: float | None  # vLLM's share of a device, 0 to 1; `None` if its size is unknown
    weights: int  # A copy's share, in bfloat16
    arriving: int  # the buffers of weights that arrive, outside vLLM's share
    cache: int | None  # key-value cache; `None` likewise
    answer: int  # what a completion of full length takes of it
    sequences: int  # completions that a rollout asks for

    @property
    def copies(self) -> int:
        """Copies of the model, vLLM's `--data-parallel-size`."""
        return self.gpus // self.tensor_parallel

    @property
    def full_answers(self) -> float:
        """Completions of full length that all caches hold; infinite if the size of a device is unknown."""
        return float("inf") if self.cache is None else self.copies * self.cache / self.answer

    @property
    def fits(self) -> bool:
        """Whether each copy has room for one completion of full length, without which vLLM does not start."""
        return self.full_answers >= self.copies

    @property
    def flags(self) -> str:
        """What `vllm serve` needs to use its devices like this."""
        flags = (
            ("--tensor-parallel-size", self.tensor_parallel, self.tensor_parallel > 1),
            ("--data-parallel-size", self.copies, self.copies > 1),
            ("--gpu-memory-utilization", f"{self.utilization:g}" if self.utilization else "", self.utilization),
        )
        return " ".join(f"{name} {value}" for name, value, given in flags if given)


def plan_server(setup: Setup, gpus: int) -> Server:
    """The most copies of the model that fit on a server's devices, which are as large as the training devices."""
    heads = setup.step.shape.config().get_text_config().num_attention_heads
    # What vLLM allows as devices per copy: a divisor of the devices and of the attention heads.
    ways = [parallel for parallel in range(1, gpus + 1) if gpus % parallel == 0 and heads % parallel == 0]
    tried = [_server(setup, gpus, parallel) for parallel in ways]
    return next((server for server in tried if server.fits), tried[-1])


def _server(setup: Setup, gpus: int, parallel: int) -> Server:
    count = count_step(setup.step)
    weights = WIDTHS["bfloat16"] * sent_weights(count, setup.step) // parallel
    arriving = in_flight(setup, count)
    # Heads of the cache are shared out too, but each device holds one at least.
    text = setup.step.shape.config().get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    answer = setup.generation.kv_bytes * setup.step.tokens // min(parallel, heads)
    utilization = cache = None
    if setup.device is not None:
        utilization = max(min(MOST, 20 * (setup.device - arriving - OUTSIDE) // setup.device), 0) / 20
        cache = max(int(setup.device * utilization) - weights - WORKSPACE, 0)
    return Server(gpus, parallel, utilization, weights, arriving, cache, answer, setup.generation.sequences)
