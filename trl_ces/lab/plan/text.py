"""A plan as text."""

from __future__ import annotations

from dataclasses import replace

from ...support.tables import markdown
from .advice import advise
from .hours import FAST, SLOW, Plan
from .memory import GIB, Memory, Setup, plan_memory
from .server import WORKSPACE, Server

SERVER_TOO_SMALL = (
    "Does not fit: with a copy of the model, the server has no room for a completion of full length. Give it "
    "more devices with --server_gpus, or take a shorter `max_completion_length`."
)
# Below this share to spare, a recipe fits barely: estimates are in the sum.
SPARE = 0.1


def text(plan: Plan, instead: Plan | None = None) -> str:
    """One plan as text; if it does not fit, with what to change, or to run `instead`."""
    memory, setup = plan.memory, plan.setup
    lines = [f"{plan.name}: {plan.model}, {setup.engine.name}", "", *_schedule_lines(plan), ""]
    lines += [*_memory_lines(plan, memory), *_host_lines(setup, memory), *_disk_lines(plan)]
    if setup.generation.server:
        lines += ["", *_server_lines(plan.server)]
    lines += ["", *_hours_lines(plan)]
    if memory.device is None:
        lines += ["", "Give the memory of a device with --gpu_memory to see whether this fits."]
    elif memory.fits and not plan.fits:
        lines += ["", SERVER_TOO_SMALL]
    elif memory.fits:
        share = max(memory.training, memory.generating) / memory.device
        server = "" if plan.server is None else " So does the server."
        barely = " barely" if share > 1 - SPARE else ""
        lines += ["", f"Fits{barely}: {100 * share:.0f} % of {_gib(memory.device)} GiB at the most.{server}"]
    else:
        lines += ["", *_change_lines(setup, memory)]
    if instead is not None:
        peak = _gib(max(instead.memory.training, instead.memory.generating))
        lines.append(f"`--config {instead.name}` fits, with {peak} GiB: it trains an adapter.")
    return "\n".join(
        [*lines, "", "Nothing here was measured on such devices. docs/plan.md compares planned with measured memory."]
    )


def _gib(size: float) -> str:
    """Bytes as GiB: two decimals below 1, else one."""
    return f"{size / GIB:.2f}" if size < GIB else f"{size / GIB:.1f}"


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _schedule_lines(plan: Plan) -> list[str]:
    schedule = plan.schedule
    rollout = f"{schedule.responses} completions for {schedule.prompts} prompts"
    if schedule.rounds > 1:
        rollout += f"; dynamic sampling generates up to {schedule.rounds} times as many"
    unknown = "" if schedule.steps is not None else "; how many rows there are is not known here: give --rows"
    return [
        f"rollout      {rollout}",
        f"step         {schedule.responses_per_step} completions = {schedule.micro_batch} in a pass x "
        f"{schedule.accumulation} accumulated x {plan.setup.engine.processes} devices",
        f"a rollout    {schedule.updates} steps, {schedule.policy}",
        f"in all       {_number(schedule.rollouts)} rollouts, {_number(schedule.steps)} steps{unknown}",
        f"at most      {plan.setup.step.tokens:,} tokens a row (prompt: {plan.prompt})",
    ]


def _memory_lines(plan: Plan, memory: Memory) -> list[str]:
    largest_first = sorted(memory.parts.items(), key=lambda part: -part[1])
    rows = [(part, _gib(size)) for part, size in largest_first if size]
    step = plan.setup.step
    other = plan_memory(replace(plan.setup, step=replace(step, checkpointing=not step.checkpointing)))
    word = "without" if step.checkpointing else "with"
    rows.append((f"(activations {word} checkpointing)", _gib(other.parts["activations"])))
    rows += [("most while training", _gib(memory.training)), ("most while generating", _gib(memory.generating))]
    lines = markdown(("GiB a device", ""), rows).splitlines()
    lines.append("Not all parts peak together: vLLM sleeps or the policy waits, and activations go as gradients come.")
    if memory.full_answers != float("inf"):
        wanted, fit = plan.setup.generation.sequences, memory.full_answers
        margin = f"{100 * (fit / wanted - 1):.0f} % to spare" if fit >= wanted else "the others wait"
        lines.append(f"vLLM's cache: {wanted} full-length completions are wanted at a time, {fit:.1f} fit: {margin}.")
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
    holds = "" if server.cache is None else f"Its caches hold {server.full_answers:.1f} full-length completions. "
    return [
        *lines,
        f"{holds}A full-length completion takes {_gib(server.answer)} GiB; a rollout asks for {server.sequences}.",
    ]


def _disk_lines(plan: Plan) -> list[str]:
    disk = plan.disk
    if disk.saves == 0:
        return ["", f"Disk: {disk.model / 1e9:.1f} GB, the model at the end."]
    each = f"a checkpoint takes {disk.checkpoint / 1e9:.1f} GB"
    if disk.most is None:
        return ["", f"Disk: {each}, and all are kept: set `save_total_limit`."]
    return ["", f"Disk: {disk.peak / 1e9:.1f} GB at the peak: {each}; at most {disk.most} at a time."]


def _hours_lines(plan: Plan) -> list[str]:
    if plan.phases is None:
        why = ": vLLM does not generate on a GPU here."
        if plan.setup.generation.server:
            why = ": give the server's devices with --server_gpus."
        elif not plan.setup.step.gpu:
            words = f"--max_steps {plan.schedule.updates} --output_dir runs/timed"
            why = f" for a CPU: train one rollout with `{words}`; `train_runtime` at its end is in seconds."
        return [f"No hours are predicted{why}"]
    fast, slow = plan.phases
    rollouts = plan.schedule.rollouts

    def row(name: str, low: float, high: float) -> tuple[str, str, str]:
        hours = "" if rollouts is None else between(rollouts * low / 3600, rollouts * high / 3600, 1)
        return name, between(low, high, 0), hours

    rows = [row(name, fast[name], slow[name]) for name in fast if slow[name] >= 0.5]
    if plan.hours is not None:
        rows.append(("start", "", between(FAST.start / 3600, SLOW.start / 3600, 1)))
        rows.append(("in all", between(sum(fast.values()), sum(slow.values()), 0), between(*plan.hours, 1)))
    lines = markdown((f"predicted for {plan.device}", "seconds a rollout", "hours"), rows).splitlines()
    lines.append("Each range spans a fast and a slow guess of rates that no data sheet gives.")
    if plan.schedule.rounds > 1:
        lines.append("For one round of generation a rollout; dynamic sampling may take more.")
    if plan.server is not None:
        writes = [100 * phases["generation"] / sum(phases.values()) for phases in plan.phases]
        busy = [
            100 * (phases["generation"] + phases["weights to vLLM"]) / sum(phases.values()) for phases in plan.phases
        ]
        trains, serves = between(min(writes), max(writes), 0), between(100 - max(busy), 100 - min(busy), 0)
        lines.append(
            f"Training and server work in turns: the devices that train idle {trains} % of the time, the server's "
            f"{serves} %."
        )
    return lines


def between(low: float, high: float, digits: int) -> str:
    """`3 to 5`, or `3` where both are printed alike."""
    ends = f"{low:,.{digits}f}", f"{high:,.{digits}f}"
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _change_lines(setup: Setup, memory: Memory) -> list[str]:
    if memory.full_answers < 1:
        problem = "vLLM's cache cannot hold one completion of full length, so vLLM would not start."
    else:
        problem = f"{_gib(memory.excess)} GiB a device are missing."
    changes, after = advise(setup)
    listed = ", ".join(
        f"`{name} {value}`" if name.startswith("-") else f"`{name}: {value}`" for name, value in changes.items()
    )
    if after.fits:
        peak = _gib(max(after.training, after.generating))
        return [f"Does not fit: {problem}", f"It fits, with {peak} GiB, after: {listed}."]
    shorter = "a shorter `max_completion_length`, more devices (`--gpus`) or larger ones, or LoRA (`use_peft: true`)"
    tried = f"Not after {listed} either ({_gib(after.excess)} GiB missing). " if changes else ""
    return [f"Does not fit: {problem}", f"{tried}What is left is {shorter}."]
