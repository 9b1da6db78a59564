"""What each recipe costs: one row a set-up, from its plan. The shipped table, recipes/costs.md, is this one's text."""

from __future__ import annotations

from collections.abc import Iterable

from ...support.tables import markdown
from ...train.recipe import find_config
from .hours import Plan
from .plan import plan_recipe
from .text import between

# Marks the line of a recipe's header that says what has been run.
STATUS = "# Run so far: "
# Recipe and overlays, then options of `trl-ces plan`. By model, the smallest machine first.
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


def table(names: Iterable[str] = SETUPS) -> str:
    """The rows of these set-ups; takes some seconds for each."""
    rows = [row(plan_recipe(name.split(), {}, **SETUPS[name])) for name in names]
    header = ("`--config`", "GPUs", "accelerate file", "GiB of a GPU", "hours, predicted", "steps", "run so far")
    return markdown(header, rows)


def row(plan: Plan) -> tuple[str, ...]:
    """One set-up's figures, in the order of the table's header."""
    setup, given = plan.setup, SETUPS[plan.name]
    peak = max(plan.memory.training, plan.memory.generating) / 2**30
    served = "" if plan.server_gpus is None else f" + {plan.server_gpus}"
    return (
        plan.name,
        f"{setup.engine.processes}{served} x {plan.device}" if setup.step.gpu else "CPU",
        given.get("accelerate_config", "-"),
        f"{peak:.0f} of {given['gpu_memory']}" if setup.step.gpu else f"{peak:.1f}",
        "-" if plan.hours is None else between(*plan.hours, 0 if plan.hours[1] >= 10 else 1),
        f"{plan.schedule.steps:,}",
        _status(plan.name),
    )


def _status(name: str) -> str:
    lines = find_config(name.split()[0]).read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(STATUS)).removeprefix(STATUS)
