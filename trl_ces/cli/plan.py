"""`trl-ces plan`: what a recipe asks of its machines, before anyone rents them. Nothing is loaded or downloaded but,
for a model that is not known here, its config.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.errors import UserError
from ..train.command_line import CommandLine, read_words
from ..train.shipped import find_accelerate_config, find_recipe, recipe_folders

if TYPE_CHECKING:
    from ..plan.report import Plan

USAGE = """usage: trl-ces plan --config RECIPE|FOLDER [--gpus N] [--gpu_memory GIB] [--accelerate_config NAME|FILE]
                    [--model_config FILE] [--prompt_length TOKENS] [--rows N] [--FIELD VALUE ...]

The arithmetic of a recipe before anyone rents a GPU: responses, prompts and steps of a rollout, steps in all, on- or
off-policy; memory of each device by part at the longest answers; whether it fits, and what to change if not.

  --config RECIPE|FOLDER  a recipe as for `trl-ces train`; of a folder under recipes/, a table with all its recipes
  --gpus N                processes, one for each device (default: 1)
  --gpu_memory GIB        memory of each device; without it nothing is said about fitting
  --accelerate_config     as for `trl-ces train`: single, ddp, zero2, zero3, zero3_offload or a file (default: DDP)
  --model_config FILE     config.json of a model whose shape is neither known here nor on this machine nor the Hub
  --prompt_length TOKENS  the longest prompt (default: what `vllm_max_model_length` leaves, else 512)
  --rows N                training prompts, where the recipe has no `max_train_samples`
  --FIELD VALUE           overrides a field of the recipe

  trl-ces plan --config DeepSeek-R1-Distill-Qwen-7B/ces --gpus 2 --gpu_memory 80 --accelerate_config zero3_offload
"""
OWN = ("gpus", "gpu_memory", "model_config", "prompt_length", "rows")


@dataclass(frozen=True)
class Asked:
    """The command's own flags."""

    gpus: int = 1
    gpu_memory: float | None = None
    model_config: str | None = None
    prompt_length: int | None = None
    rows: int | None = None


def run(argv: list[str]) -> int:
    """
    Prints the plan.

    Args:
        argv (`list[str]`):
            The words behind `trl-ces plan`.

    Returns:
        `int`: 0, whether it fits or not.

    Raises:
        UserError: if the input is refused.
    """
    if not argv or argv[0] in ("-h", "--help") or "--help" in argv:
        print(USAGE)
        return 0
    asked, words = take_own(argv)
    line = read_words(words)
    if line.config is None:
        raise UserError("No recipe is named: give `--config` a file, a shipped recipe or a folder of recipes/.")
    if line.accelerate_flags:
        flags = ", ".join(f"--{name}" for name in line.accelerate_flags)
        raise UserError(f"command line: {flags} changes no plan: give the processes with `--gpus`.")
    from ..plan.report import table, text

    folder = _folder(line.config)
    if folder is None:
        print(text(make_plan(line, asked, find_recipe(line.config), line.config)))
        return 0
    plans = [make_plan(line, asked, file, file.stem) for file in sorted(folder.glob("*.yaml"))]
    if not plans:
        raise UserError(f"{folder} holds no recipe.")
    first = plans[0]
    print(f"{folder.name}: {first.model}, {first.setup.engine.name}; GiB a device\n\n{table(plans)}")
    return 0


def take_own(argv: list[str]) -> tuple[Asked, list[str]]:
    """The command's own flags, and the words left for the recipe.

    Raises:
        UserError: if one of them lacks its value or has one that it cannot have.
    """
    found: dict[str, str] = {}
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("--") or name not in OWN:
            rest.append(word)
            continue
        if not equals:
            value = words.pop(0) if words and not words[0].startswith("--") else ""
        if not value:
            raise UserError(f"command line: `--{name}` needs a value.")
        found[name] = value
    return Asked(
        gpus=_whole("gpus", found.get("gpus", "1")),
        gpu_memory=_positive("gpu_memory", found["gpu_memory"]) if "gpu_memory" in found else None,
        model_config=found.get("model_config"),
        prompt_length=_whole("prompt_length", found["prompt_length"]) if "prompt_length" in found else None,
        rows=_whole("rows", found["rows"]) if "rows" in found else None,
    ), rest


def _whole(name: str, value: str) -> int:
    if value.isdigit() and int(value) > 0:
        return int(value)
    raise UserError(f"command line: `--{name}` is {value!r}: expected a whole number of at least 1.")


def _positive(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if 0 < number < float("inf"):
        return number
    raise UserError(f"command line: `--{name}` is {value!r}: expected GiB, a number above 0.")


def _folder(name: str) -> Path | None:
    for folder in (Path(name).expanduser(), *(home / name.removeprefix("recipes/") for home in recipe_folders())):
        if folder.is_dir():
            return folder
    return None


def make_plan(line: CommandLine, asked: Asked, recipe_file: Path, name: str) -> Plan:
    """
    One recipe's plan.

    Raises:
        UserError: as `trl-ces train` would for the recipe; or if the model's shape cannot be found, or a setting has
            no plan.
    """
    from ..plan.engine import read_engine
    from ..plan.memory import GIB
    from ..plan.report import Plan
    from ..plan.schedule import schedule, whole_run
    from ..plan.setup import make_setup, prompt_tokens
    from ..plan.shapes import find_shape
    from ..train.launch import read_accelerate_config
    from ..train.recipe import load_recipe

    recipe = load_recipe(recipe_file, line.overrides)
    settings = {}
    if line.accelerate_config is not None:
        settings = read_accelerate_config(find_accelerate_config(line.accelerate_config))
    engine = read_engine(settings, asked.gpus)
    config = whole_run(recipe, asked.gpus)
    script, model = recipe.script, str(recipe.model.model_name_or_path)
    plan = schedule(config, asked.gpus, asked.rows or script.max_train_samples)
    shape = find_shape(model, script.model_builder, asked.model_config)
    prompt, source = prompt_tokens(config, asked.prompt_length)
    device = None if asked.gpu_memory is None else int(asked.gpu_memory * GIB)
    return Plan(name, model, plan, make_setup(recipe, config, plan, shape, engine, device, prompt), source)
