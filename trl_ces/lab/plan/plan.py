"""A recipe's plan, from its file and what only the user knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...support.errors import UserError
from ...train.launch import read_accelerate_config
from ...train.recipe import load_recipe
from ...train.shipped import find_accelerate_config
from .engine import read_engine
from .memory import GIB, Memory, Setup, plan_memory
from .server import Server, Transfer, plan_server, transfers
from .setup import Schedule, make_schedule, make_setup, prompt_tokens, whole_run
from .shapes import find_shape


@dataclass(frozen=True)
class Plan:
    """One recipe's plan."""

    name: str  # the recipe
    model: str  # its model
    schedule: Schedule  # its rollouts and steps
    setup: Setup  # what decides its memory
    prompt: str  # where the prompt's length comes from
    completion: int  # tokens of the longest answer
    server_gpus: int | None = None  # devices of the vLLM server; `None`: unknown, or vLLM is colocated
    bandwidth: float | None = None  # of a node's network, in Gbit/s

    @property
    def memory(self) -> Memory:
        return plan_memory(self.setup)

    @property
    def server(self) -> Server | None:
        return None if self.server_gpus is None else plan_server(self.setup, self.server_gpus)

    @property
    def transfers(self) -> list[Transfer]:
        return transfers(self.setup, self.schedule.updates, self.schedule.responses, self.completion)

    @property
    def fits(self) -> bool:
        """Whether training devices and server have the memory, as far as it is known."""
        return self.memory.fits and (self.server is None or self.server.fits)


def plan_recipe(
    names: Sequence[str],
    overrides: dict[str, list[str]],
    *,
    gpus: int = 1,
    gpu_memory: float | None = None,
    accelerate_config: str | None = None,
    model_config: str | None = None,
    prompt_length: int | None = None,
    rows: int | None = None,
    nodes: int | None = None,
    server_gpus: int | None = None,
    bandwidth: float | None = None,
) -> Plan:
    """Work out a recipe's schedule and what decides its memory."""
    recipe = load_recipe(names, overrides)
    accelerate = {}
    if accelerate_config is not None:
        accelerate = read_accelerate_config(find_accelerate_config(accelerate_config))
    engine = read_engine(accelerate, gpus, nodes)
    config = whole_run(recipe, gpus)
    model = str(recipe.model.model_name_or_path)
    schedule = make_schedule(config, gpus, rows or recipe.script.max_train_samples)
    shape = find_shape(model, recipe.script.model_builder, model_config)
    prompt, source = prompt_tokens(config, prompt_length)
    device = None if gpu_memory is None else int(gpu_memory * GIB)
    setup = make_setup(recipe, config, schedule, shape, engine, device, prompt)
    if server_gpus is not None and not setup.generation.server:
        raise UserError(
            "`--server_gpus` is for a recipe in server mode: add `--use_vllm true --vllm_mode server`, or remove it."
        )
    if bandwidth is not None and not setup.generation.server and engine.nodes == 1:
        raise UserError(
            "`--bandwidth` changes nothing here: without a vLLM server and on one node nothing goes over the network. "
            "Give `--nodes`, or remove it."
        )
    completion = setup.step.tokens - prompt
    return Plan(" ".join(names), model, schedule, setup, source, completion, server_gpus, bandwidth)
