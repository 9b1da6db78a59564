"""What to change in a recipe that does not fit: the usual changes are tried in turn, and those that help are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .memory import Memory, Setup, plan_memory

# Fields or flags with their values, and the setup with them.
Change = tuple[dict[str, str], Setup]
# (accelerate file, ZeRO stage, optimizer offloaded), from the one that shards least.
ENGINES = (("zero2", 2, False), ("zero3", 3, False), ("zero3_offload", 3, True))
# The same over several nodes, where a file is shipped for them; the others take accelerate's flags.
OVER_NODES = {"zero3": "zero3_multinode"}


def advise(setup: Setup) -> tuple[dict[str, str], Memory]:
    """Changes that make a setup fit, starting with those that leave training unchanged."""
    taken: dict[str, str] = {}
    memory = plan_memory(setup)
    # Utilization twice: sharding the optimizer makes room for vLLM's cache.
    for kind in (_checkpointing, _sleep, _utilization, _micro_batch, _engine, _utilization, _attention):
        for fields, changed in kind(setup):
            tried = plan_memory(changed)
            if tried.excess < memory.excess:
                setup, memory = changed, tried
                taken |= fields
            if memory.fits:
                return taken, memory
    return taken, memory


def _with_step(setup: Setup, **changes) -> Setup:
    return replace(setup, step=replace(setup.step, **changes))


def _checkpointing(setup: Setup) -> Iterator[Change]:
    if not setup.step.checkpointing:
        yield {"gradient_checkpointing": "true"}, _with_step(setup, checkpointing=True)


def _sleep(setup: Setup) -> Iterator[Change]:
    if setup.generation.vllm and not setup.generation.sleeps:
        yield {"vllm_enable_sleep_mode": "true"}, replace(setup, generation=replace(setup.generation, sleeps=True))


def _utilization(setup: Setup) -> Iterator[Change]:
    """The largest share, in twentieths, that fits."""
    for twentieths in range(19, 0, -1) if setup.generation.vllm else ():
        changed = replace(setup, generation=replace(setup.generation, utilization=twentieths / 20))
        if plan_memory(changed).fits:
            yield {"vllm_gpu_memory_utilization": f"{twentieths / 20:g}"}, changed
            return


def _micro_batch(setup: Setup) -> Iterator[Change]:
    rows = setup.step.rows
    if rows > 1 and setup.one_row:
        yield dict(setup.one_row), replace(_with_step(setup, rows=1), accumulation=setup.accumulation * rows)


def _engine(setup: Setup) -> Iterator[Change]:
    engine = setup.engine
    if not setup.step.gpu or engine.processes == 1:
        return
    for name, stage, offload in ENGINES:
        sharded = 3 if engine.fsdp else engine.zero_stage
        if (stage, offload) > (sharded, engine.offload_optimizer):
            deepspeed = replace(engine, zero_stage=stage, offload_optimizer=offload, fsdp=False, loads_once=False)
            changed = replace(setup, engine=deepspeed, trained=None)  # its masters are the optimizer's
            if setup.step.autocast:  # DeepSpeed computes from bfloat16 weights
                changed = _with_step(changed, dtype="bfloat16", autocast=False)
            yield {"--accelerate_config": OVER_NODES.get(name, name) if engine.nodes > 1 else name}, changed


def _attention(setup: Setup) -> Iterator[Change]:
    if not setup.step.flash_attention and setup.step.gpu:
        yield {"attn_implementation": "flash_attention_2"}, _with_step(setup, flash_attention=True)
