"""Training in one process, by a recipe that `trl-ces train` has already checked."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..rollout.reward_guard import RewardError
from ..support.errors import UserError, hub_errors
from ..support.files import is_disk_full, write_text
from .checkpoints import Length, newest_checkpoint
from .data import load_datasets
from .lookup import find_reward_functions, import_function
from .recipe import RECIPE, Recipe


class StoppedTraining(UserError):
    """A failure that a single rank can hit; every rank reports its own."""


def train(
    recipe: Recipe,
    num_processes: int,
    distributed_type: str | None,
    make_publisher: Callable[..., Any],
    save: Callable[..., None],
) -> None:
    """
    Loads data and model, trains and saves.

    Args:
        recipe ([`Recipe`]):
            The checked recipe.
        num_processes (`int`):
            Processes that the launcher meant to start.
        distributed_type (`str`, *optional*):
            `"DEEPSPEED"` or `"FSDP"` if the launcher meant to use it.
        make_publisher (`Callable`):
            Given the [`CESConfig`] of a run with `push_to_hub`, makes the callback that pushes; its `check(recipe)` is
            called once, before anything is loaded.
        save (`Callable`):
            Given trainer, recipe and publisher (or `None`) after the last step, on every process.

    Raises:
        UserError: if the processes, the data or the model are not what the recipe says.
    """
    config = recipe.training_config(num_processes)
    if config.world_size != num_processes:
        raise UserError(
            f"{num_processes} processes were to be started and {config.world_size} run: check `--num_processes` "
            "and the accelerate configuration."
        )
    from accelerate import PartialState
    from trl import get_peft_config, get_quantization_config

    from ..trainer import CESTrainer
    from .progress_callback import show_answers_in_progress_bar

    state = PartialState()
    publisher = make_publisher(config) if config.push_to_hub else None
    if publisher is not None and state.is_main_process:
        publisher.check(recipe)
    train_dataset, eval_dataset = load_datasets(recipe.script, say=lambda text: print(text, flush=True))
    reward_funcs: list[Any] = list(find_reward_functions(recipe.script, config.max_completion_length))
    model = model_path(recipe, state)
    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError, ImportError)
    try:
        trainer = CESTrainer(
            model=model,
            reward_funcs=reward_funcs,
            args=config,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            peft_config=get_peft_config(recipe.model),
            quantization_config=get_quantization_config(recipe.model),
        )
    except refusals as error:
        # A model that is not there, a reward that cannot be told, a missing package, a Hub that takes no push: the
        # sentence says it all.
        if os.environ.get("TRL_CES_DEBUG"):
            raise
        raise UserError(f"{error} (TRL_CES_DEBUG=1 shows where)") from error
    running = trainer.accelerator.distributed_type.value
    if distributed_type is not None and running != distributed_type:
        raise UserError(
            f"The accelerate configuration says {distributed_type} and {running} runs: check its `use_cpu`."
        )
    show_answers_in_progress_bar(trainer)
    if publisher is not None:
        trainer.add_callback(publisher)
    if run_to_its_end(trainer, recipe):
        save(trainer, recipe, publisher)


def run_to_its_end(trainer: Any, recipe: Recipe) -> bool:
    """
    Trains, from a checkpoint if the recipe says so; `False` if SIGTERM ended it before.

    Raises:
        StoppedTraining: if a reward function failed or the disk is full, with how to go on.
    """
    from safetensors import SafetensorError

    from .stopping import SaveOnSigterm

    output_dir, speaks = Path(str(trainer.args.output_dir)), trainer.accelerator.is_main_process
    checkpoint = trainer.args.resume_from_checkpoint
    length = Length(trainer.args.max_steps, trainer.args.num_train_epochs)
    if checkpoint is True:  # the Trainer's own choice would be the last folder, whole or not
        checkpoint = str(newest_checkpoint(output_dir, length))
        if speaks:
            print(f"Going on from {checkpoint}.", flush=True)
    if speaks and Path(recipe.source).resolve() != (output_dir / RECIPE).resolve():
        write_text(output_dir / RECIPE, recipe.to_yaml())
    stop = SaveOnSigterm(trainer.accelerator)
    trainer.add_callback(stop)
    try:
        trainer.train(resume_from_checkpoint=checkpoint)
    except RewardError as error:
        raise StoppedTraining(f"{error} {_way_on(output_dir, length)}") from error
    except (OSError, RuntimeError, SafetensorError) as error:
        if not is_disk_full(error, output_dir):
            raise
        raise StoppedTraining(f"The disk of {output_dir} is full ({error}). {_way_on(output_dir, length)}") from error
    if not stop.stopped or trainer.state.global_step >= trainer.state.max_steps:
        return True
    if speaks:
        print(f"Stopped by SIGTERM after step {trainer.state.global_step}. {_way_on(output_dir, length)}", flush=True)
    return False


def _way_on(output_dir: Path, length: Length) -> str:
    """How to go on after a stop."""
    checkpoint = newest_checkpoint(output_dir, length)
    if checkpoint is None:
        return "There is no checkpoint yet: start again."
    return f"Go on from {checkpoint} with the same line and `--resume_from_checkpoint true`."


def model_path(recipe: Recipe, state: Any) -> str:
    """The model to load; where the recipe has a builder, the first process of each machine makes it."""
    name = str(recipe.model.model_name_or_path)
    if recipe.script.model_builder is None:
        return name
    build = import_function(recipe.script.model_builder, "model_builder")
    settings = recipe.script.model_builder_kwargs or {}
    try:
        with state.local_main_process_first():
            return str(build(name, **settings))
    except (TypeError, ValueError) as error:
        raise UserError(f"`model_builder` {recipe.script.model_builder} with {settings}: {error}") from error
