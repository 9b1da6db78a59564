"""Plans as text: one at length, a folder's as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..support.tables import markdown
from .advice import advise
from .memory import GIB, Memory, Setup, plan_memory
from .plan import Plan

HEADER = ("recipe", "responses", "steps a rollout", "steps", "training", "generating", "answers in the cache", "fits")


def text(plan: Plan) -> str:
    """One plan: schedule, memory by part, and what to change if it does not fit."""
    memory, setup = plan.memory, plan.setup
    lines = [
        f"{plan.name}: {plan.model}, {setup.engine.name}",
        "",
        *_schedule_lines(plan),
        "",
        *_memory_lines(plan, memory),
    ]
    if memory.host:
        lines += ["", f"The machine's own memory: {_gib(memory.host)} GiB for what is offloaded."]
    if memory.device is None:
        lines += ["", "Give the memory of a device with --gpu_memory to see whether this fits."]
    elif memory.fits:
        share = max(memory.training, memory.generating) / memory.device
        lines += ["", f"Fits: {100 * share:.0f} % of {_gib(memory.device)} GiB at the most." + _tight(share)]
    else:
        lines += ["", *_change_lines(setup, memory)]
    return "\n".join(
        [*lines, "", "Memory is worked out, not measured on such devices; docs/recipes.md says how far it is off."]
    )


def folder_text(name: str, plans: Sequence[Plan]) -> str:
    """A table with a line per plan, under a line that names the folder and the first plan's model and engine."""
    table = markdown(HEADER, [_row(plan) for plan in plans])
    return f"{name}: {plans[0].model}, {plans[0].setup.engine.name}; GiB a device\n\n{table}"


def _gib(size: float) -> str:
    """Bytes as GiB: two decimals below 1, else one."""
    return f"{size / GIB:.2f}" if size < GIB else f"{size / GIB:.1f}"


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _row(plan: Plan) -> tuple[str, ...]:
    memory = plan.memory
    answers = (
        ""
        if memory.full_answers == float("inf")
        else f"{memory.full_answers:.0f} of {plan.setup.generation.sequences}"
    )
    verdict = "" if memory.device is None else "yes" if memory.fits else "no"
    schedule = plan.schedule
    rounds = f" (to {schedule.responses * schedule.rounds})" if schedule.rounds > 1 else ""
    return (
        plan.name,
        f"{schedule.responses}{rounds}",
        str(schedule.updates),
        _number(schedule.steps),
        _gib(memory.training),
        _gib(memory.generating),
        answers,
        verdict,
    )


def _schedule_lines(plan: Plan) -> list[str]:
    schedule, step = plan.schedule, plan.setup.step
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
        f"at most      {step.tokens:,} tokens a row (prompt: {plan.prompt})",
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


def _tight(share: float) -> str:
    return " That is tight: shorter answers or a smaller micro-batch would give room." if share > 0.95 else ""


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
    if not changes:
        return [f"Does not fit: {problem}", f"What is left is {shorter}."]
    return [
        f"Does not fit: {problem}",
        f"Not after {listed} either ({_gib(after.excess)} GiB missing): what is left is {shorter}.",
    ]
