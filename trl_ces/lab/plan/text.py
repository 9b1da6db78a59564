"""Format a plan as text, and the costs of the shipped recipes as a table (recipes/costs.md)."""

from __future__ import annotations

from ...train.recipe import find_config
from ..evaluation.tables import markdown
from .memory import GIB
from .plan import Plan, plan_recipe, rollout_seconds

REMEDIES = (
    "Try `gradient_checkpointing: true`, a smaller `per_device_train_batch_size`, `--accelerate_config zero3` on more "
    "devices or `zero3_offload`, a shorter `max_completion_length`, or the `lora` overlay."
)
# Prefix of the line in a recipe's header that states how the recipe was tested.
STATUS = "# Tested: "
# Recipe and overlays -> options of `trl-ces plan`, and the number of devices of a vLLM server. For each model, the
# smallest machine comes first.
SETUPS: dict[str, dict] = {
    "R1-7B lora": {"gpu_memory": 48, "device": "L40S"},
    "R1-7B": {"gpus": 2, "gpu_memory": 80, "accelerate_config": "zero3_offload"},
    "R1-7B colocate": {"gpus": 8, "gpu_memory": 80, "accelerate_config": "zero3"},
    "R1-7B server_paper": {"gpus": 4, "server_gpus": 4, "gpu_memory": 80, "accelerate_config": "zero3"},
    "R1-7B server": {"gpus": 8, "server_gpus": 8, "gpu_memory": 80, "accelerate_config": "zero3"},
    "R1-1.5B lora": {"gpu_memory": 24, "device": "RTX4090"},
    "R1-1.5B": {"gpus": 2, "gpu_memory": 80, "accelerate_config": "zero3"},
    "R1-1.5B colocate": {"gpus": 8, "gpu_memory": 80, "accelerate_config": "zero2"},
    "R1-1.5B server": {"gpus": 8, "server_gpus": 8, "gpu_memory": 80, "accelerate_config": "zero2"},
    "smollm2_135m": {"prompt_length": 64},
    "arithmetic": {"prompt_length": 64},
}


def plan_text(plan: Plan) -> str:
    """Format a plan as text."""
    lines = [f"{plan.name}: {plan.model}, {plan.setup.engine.name}", "", *_schedule_lines(plan), ""]
    lines += [*_memory_lines(plan), "", _disk_line(plan), "", *_hours_lines(plan), "", _fit_line(plan), ""]
    return "\n".join([*lines, "docs/plan.md compares planned and measured memory."])


def format_range(low: float, high: float, digits: int) -> str:
    """Format a range as `3 to 5`, or as `3` if both ends round to 3."""
    ends = f"{low:,.{digits}f}", f"{high:,.{digits}f}"
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _gib(size: float) -> str:
    """Format bytes as GiB, with two decimals below 1 GiB and one decimal otherwise."""
    return f"{size / GIB:.2f}" if size < GIB else f"{size / GIB:.1f}"


def _schedule_lines(plan: Plan) -> list[str]:
    schedule = plan.schedule
    rollout = f"{schedule.completions} completions for {schedule.prompts} prompts"
    if schedule.rounds > 1:
        rollout += f"; dynamic sampling generates up to {schedule.rounds * schedule.completions} completions"
    total = "unknown, because the number of rows is unknown: set --rows N"
    if schedule.steps is not None:
        total = f"{schedule.rollouts:,} rollouts, {schedule.steps:,} steps"
    return [
        f"rollout      {rollout}",
        f"step         {schedule.completions_per_step} completions = {schedule.micro_batch} per pass x "
        f"{schedule.accumulation} accumulated x {plan.setup.engine.processes} devices",
        f"per rollout  {schedule.updates} steps, {schedule.policy}",
        f"total        {total}",
        f"row length   at most {plan.setup.step.tokens:,} tokens (prompt: {plan.prompt})",
    ]


def _memory_lines(plan: Plan) -> list[str]:
    memory, generation = plan.memory, plan.setup.generation
    rows = [(part, _gib(size)) for part, size in sorted(memory.parts.items(), key=lambda part: -part[1]) if size]
    rows.append(("peak while training", _gib(memory.training)))
    if not generation.server:
        rows.append(("peak while generating", _gib(memory.generating)))
    lines = markdown(("GiB per device", ""), rows).splitlines()
    lines.append(
        "Parts peak at different times: vLLM and the policy alternate, and the backward pass frees activations."
    )
    if generation.server:
        lines.append("The memory of the vLLM server's devices is not included.")
    elif memory.full_completions != float("inf"):
        requested, fitting = generation.sequences, memory.full_completions
        margin = f"{100 * (fitting / requested - 1):.0f} % to spare" if fitting >= requested else "the rest are queued"
        lines.append(
            f"vLLM's cache fits {fitting:.1f} full-length completions at a time; {requested} are requested ({margin})."
        )
    if memory.host:
        lines += ["", f"Host memory per node: {_gib(memory.host)} GiB for offloaded state."]
    return lines


def _disk_line(plan: Plan) -> str:
    disk = plan.disk
    if disk.saves == 0:
        return f"Disk: {disk.model / 1e9:.1f} GB for the trained model."
    size = f"{disk.checkpoint / 1e9:.1f} GB"
    if disk.max_checkpoints is None:
        return f"Disk: {size} per checkpoint; all are kept (set `save_total_limit` to keep fewer)."
    return f"Disk: {disk.peak / 1e9:.1f} GB at the peak, with at most {disk.max_checkpoints} checkpoints of {size}."


def _hours_lines(plan: Plan) -> list[str]:
    if plan.hours is None:
        return [
            "Hours are not estimated: the estimate requires colocated vLLM on one node and a known number of rows."
        ]
    low, high = rollout_seconds(plan)
    phases = ", ".join(f"{name} {format_range(low[name], high[name], 0)}" for name in low if high[name])
    return [
        f"Hours on {plan.device}: {format_range(*plan.hours, 1)}, a rough estimate. Seconds per rollout: {phases}.",
        "Not included: the optimizer (which takes seconds if offloaded), transfers, checkpoints and start-up.",
    ]


def _fit_line(plan: Plan) -> str:
    memory, device = plan.memory, plan.setup.device
    if device is None:
        return "Set --gpu_memory to the number of GiB per device to check whether the run fits."
    if memory.full_completions < 1:
        return f"Does not fit: vLLM's cache cannot hold one full-length completion. {REMEDIES}"
    if memory.peak > device:
        return f"Does not fit: each device needs {_gib(memory.peak - device)} GiB more. {REMEDIES}"
    return f"Fits: {100 * memory.peak / device:.0f} % of {_gib(device)} GiB at the peak."


def costs_table(names: list[str] | None = None) -> str:
    """Format the costs of all `SETUPS`, or of the recipes in `names`, as a table; each row takes a few seconds."""
    header = ("`--config`", "GPUs", "accelerate config", "GiB per GPU", "hours, predicted", "steps", "tested")
    return markdown(header, [_costs_row(name) for name in names or SETUPS])


def _costs_row(name: str) -> tuple[str, ...]:
    options = dict(SETUPS[name])
    server_gpus = options.pop("server_gpus", None)
    plan = plan_recipe(name.split(), {}, **options)
    peak, gpu = plan.memory.peak / GIB, plan.setup.step.gpu
    memory = f"{peak:.0f} of {options['gpu_memory']}" if gpu else f"{peak:.1f}"
    server = f" + {server_gpus}" if server_gpus else ""
    lines = find_config(name.split()[0]).read_text(encoding="utf-8").splitlines()
    return (
        name,
        f"{plan.setup.engine.processes}{server} x {plan.device}" if gpu else "CPU",
        options.get("accelerate_config", "-"),
        "-" if server_gpus else memory,
        "-" if plan.hours is None else format_range(*plan.hours, 0 if plan.hours[1] >= 10 else 1),
        f"{plan.schedule.steps:,}",
        next(line for line in lines if line.startswith(STATUS)).removeprefix(STATUS),
    )
