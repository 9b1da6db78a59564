"""A plan as text."""

from __future__ import annotations

from dataclasses import replace

from ...support.tables import markdown
from .advice import advise
from .memory import GIB, Memory, Setup, plan_memory
from .plan import Plan
from .server import WORKSPACE, Server

SERVER_TOO_SMALL = (
    "Does not fit: with a copy of the model, the server has no room for an answer of full length. Give it more "
    "devices with --server_gpus, or take a shorter `max_completion_length`."
)


def text(plan: Plan) -> str:
    """One plan: schedule, memory by part, server and network, and what to change if it does not fit."""
    memory, setup = plan.memory, plan.setup
    lines = [f"{plan.name}: {plan.model}, {setup.engine.name}", "", *_schedule_lines(plan), ""]
    lines += [*_memory_lines(plan, memory), *_host_lines(setup, memory)]
    if setup.generation.server:
        lines += ["", *_server_lines(plan.server)]
    if plan.transfers:
        lines += ["", *_network_lines(plan)]
    if memory.device is None:
        lines += ["", "Give the memory of a device with --gpu_memory to see whether this fits."]
    elif memory.fits and not plan.fits:
        lines += ["", SERVER_TOO_SMALL]
    elif memory.fits:
        share = max(memory.training, memory.generating) / memory.device
        server = "" if plan.server is None else " So does the server."
        percent = f"{100 * share:.0f} % of {_gib(memory.device)} GiB at the most"
        lines += ["", f"Fits: {percent}.{server}"]
    else:
        lines += ["", *_change_lines(setup, memory)]
    return "\n".join(
        [*lines, "", "Memory is worked out, not measured on such devices; docs/plan.md says how far it is off."]
    )


def _gib(size: float) -> str:
    """Bytes as GiB: two decimals below 1, else one."""
    return f"{size / GIB:.2f}" if size < GIB else f"{size / GIB:.1f}"


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _schedule_lines(plan: Plan) -> list[str]:
    schedule = plan.schedule
    rollout = f"{schedule.responses} responses to {schedule.prompts} prompts"
    if schedule.rounds > 1:
        rollout += f"; dynamic sampling generates up to {schedule.rounds} times as many"
    unknown = "" if schedule.steps is not None else "; the recipe does not say how many rows there are: give --rows"
    return [
        f"rollout      {rollout}",
        f"step         {schedule.responses_per_step} responses = {schedule.micro_batch} in a pass x "
        f"{schedule.accumulation} accumulated x {plan.setup.engine.processes} devices",
        f"a rollout    {schedule.updates} steps, {schedule.policy}",
        f"in all       {_number(schedule.rollouts)} rollouts, {_number(schedule.steps)} steps{unknown}",
        f"at most      {plan.setup.step.tokens:,} tokens a row (prompt: {plan.prompt})",
    ]


def _memory_lines(plan: Plan, memory: Memory) -> list[str]:
    rows = [(part, _gib(size)) for part, size in memory.parts.items() if size]
    step = plan.setup.step
    other = plan_memory(replace(plan.setup, step=replace(step, checkpointing=not step.checkpointing)))
    word = "without" if step.checkpointing else "with"
    rows.append((f"(activations {word} checkpointing)", _gib(other.parts["activations"])))
    rows += [("most while training", _gib(memory.training)), ("most while generating", _gib(memory.generating))]
    lines = markdown(("GiB a device", ""), rows).splitlines()
    lines.append("Not all parts peak together: vLLM sleeps or the policy waits, and activations go as gradients come.")
    if memory.full_answers != float("inf"):
        lines.append(
            f"vLLM's cache holds {memory.full_answers:.1f} answers of full length; {plan.setup.generation.sequences} "
            "are generated at a time, the others wait."
        )
    return lines


def _host_lines(setup: Setup, memory: Memory) -> list[str]:
    whose = "The machine's" if setup.engine.nodes == 1 else "Each node's"
    lines = []
    if memory.host:
        lines += ["", f"{whose} own memory: {_gib(memory.host)} GiB for what is offloaded."]
    if memory.loading:
        if setup.engine.zero_stage == 3 and setup.engine.nodes > 1:  # its first process reads for all
            whose = "The first node's"
        lines += ["", f"{whose} own memory while the model loads: {_gib(memory.loading)} GiB."]
    return lines


def _server_lines(server: Server | None) -> list[str]:
    if server is None:
        return ["vLLM's server is not counted: give the number of its devices with --server_gpus."]
    copies = "a copy" if server.copies == 1 else f"{server.copies} copies"
    devices = "one device" if server.gpus == 1 else f"{server.gpus} devices"
    flags = f" `{server.flags}`" if server.flags else ""
    lines = [f"vLLM's server: {copies} of the model on {devices}.{flags}", ""]
    rows = [("weights", _gib(server.weights))]
    if server.cache is not None:
        rows.append(("key-value cache", _gib(server.cache)))
    rows += [("vLLM's own work (estimate)", _gib(WORKSPACE)), ("weights that arrive, at most", _gib(server.arriving))]
    lines += markdown(("GiB a device of the server", ""), rows).splitlines()
    holds = "" if server.cache is None else f"Its caches hold {server.full_answers:.1f} answers of full length. "
    return [
        *lines,
        f"{holds}An answer of full length takes {_gib(server.answer)} GiB; a rollout asks for {server.sequences}.",
    ]


def _network_lines(plan: Plan) -> list[str]:
    header = ["over the network, each rollout", "GB"]
    rows = [[transfer.what, f"{transfer.size / 1e9:.1f}"] for transfer in plan.transfers]
    if plan.bandwidth is not None:
        header.append(f"seconds at {plan.bandwidth:g} Gbit/s")
        for row, transfer in zip(rows, plan.transfers, strict=True):
            row.append(f"{8 * transfer.size / (1e9 * plan.bandwidth):.1f}")
    return [
        *markdown(header, rows).splitlines(),
        "Predicted from sizes, at the full bandwidth and without what overlaps with computing.",
    ]


def _change_lines(setup: Setup, memory: Memory) -> list[str]:
    if memory.full_answers < 1:
        problem = "vLLM's cache cannot hold one answer of full length, so vLLM would not start."
    else:
        problem = f"{_gib(memory.excess)} GiB a device are missing."
    changes, after = advise(setup)
    listed = ", ".join(
        f"`{name} {value}`" if name.startswith("-") else f"`{name}: {value}`" for name, value in changes.items()
    )
    if after.fits:
        peak = _gib(max(after.training, after.generating))
        return [f"Does not fit: {problem}", f"It fits, with {peak} GiB, after: {listed}."]
    shorter = "a shorter `max_completion_length`, more or larger devices, or LoRA (`use_peft: true`)"
    tried = f"Not after {listed} either ({_gib(after.excess)} GiB missing). " if changes else ""
    return [f"Does not fit: {problem}", f"{tried}What is left is {shorter}."]
