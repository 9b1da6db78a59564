"""A recipe's plan, from its file and what only the user knows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...support.errors import UserError
from ...support.hub import is_local
from ...train.arguments import ScriptArguments
from ...train.data import read_rows
from ...train.launch import read_accelerate_config
from ...train.recipe import find_config, load_recipe
from ...train.sizes import find_shape, make_schedule, plan_disk
from .engine import read_engine
from .hours import DEVICES, Plan
from .memory import GIB
from .setup import make_setup, prompt_tokens
from .step import count_step


def plan_recipe(
    names: Sequence[str],
    overrides: dict[str, list[str]],
    *,
    gpus: int = 1,
    gpu_memory: float | None = None,
    device: str = "A800",
    accelerate_config: str | None = None,
    model_config: str | None = None,
    prompt_length: int | None = None,
    rows: int | None = None,
    nodes: int | None = None,
    server_gpus: int | None = None,
    bandwidth: float | None = None,
) -> Plan:
    """Work out a recipe's schedule, what decides its memory, and what it writes."""
    if device not in DEVICES:
        raise UserError(f"`--device` is {device!r}: its hours are known for {', '.join(DEVICES)}.")
    recipe = load_recipe(names, overrides)
    accelerate = {}
    if accelerate_config is not None:
        accelerate = read_accelerate_config(find_config(accelerate_config, "accelerate"))
    engine = read_engine(accelerate, gpus, nodes)
    try:
        config = recipe.check_training(gpus)
    except UserError as error:
        raise UserError(str(error).replace("--num_processes", "--gpus") + _shared_by(names, overrides, gpus)) from None
    model = str(recipe.model.model_name_or_path)
    schedule = make_schedule(config, gpus, rows or _rows(recipe.script))
    shape = find_shape(model, recipe.script.model_builder, model_config)
    prompt, source = prompt_tokens(config, prompt_length)
    capacity = None if gpu_memory is None else int(gpu_memory * GIB)
    setup = make_setup(recipe, config, schedule, shape, engine, capacity, prompt)
    if server_gpus is not None and not setup.generation.server:
        raise UserError(
            "`--server_gpus` is for a recipe in server mode: add `--use_vllm true --vllm_mode server`, or remove it."
        )
    if bandwidth is not None and not setup.generation.server and engine.nodes == 1:
        raise UserError(
            "`--bandwidth` changes nothing here: without a vLLM server and on one node nothing goes over the network. "
            "Give `--nodes`, or remove it."
        )
    count = count_step(setup.step)
    sizes = {"weights": count.weights, "trained": count.trained, "width": setup.trained_bytes}
    disk = plan_disk(config, schedule.steps, **sizes, zero_stage=engine.zero_stage, fsdp=engine.fsdp)
    network = None if bandwidth is None else bandwidth * 1e9 / 8
    completion = setup.step.tokens - prompt
    return Plan(" ".join(names), model, schedule, setup, disk, source, completion, device, server_gpus, network)


def with_lora(plan: Plan, names: Sequence[str], overrides: dict[str, list[str]], **given: Any) -> Plan | None:
    """The plan of the same recipe with the overlay `lora`, if that fits where the recipe does not."""
    if plan.fits or plan.setup.step.lora is not None:
        return None
    try:
        other = plan_recipe([*names, "lora"], overrides, **given)
    except UserError:
        return None
    return other if other.fits else None


def _rows(script: ScriptArguments) -> int | None:
    """Training prompts: those that are asked for, or those of a local file that is there."""
    name = script.dataset_name
    is_here = name is not None and is_local(name) and Path(name).expanduser().exists()
    if script.max_train_samples is not None or name is None or not is_here:
        return script.max_train_samples
    held_out = 0 if script.eval_dataset_name else script.num_eval_samples or 0
    return len(read_rows(script, name, script.dataset_split).golds) - held_out


def _shared_by(names: Sequence[str], overrides: dict[str, list[str]], gpus: int) -> str:
    """A sentence with the overlay whose step these devices can share, where the recipe's cannot be."""
    for overlay in ("colocate", "server"):
        try:
            load_recipe([*names, overlay], overrides).check_training(gpus)
        except UserError:
            continue
        return f" Or add the overlay `{overlay}`: `--config {' '.join([*names, overlay])}`."
    return ""
