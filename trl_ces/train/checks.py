"""Checks of a training run that need no model, and no network except to its vLLM server."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..config import CESConfig
from ..methods.group_reward import accuracy_column, is_group_reward
from ..support.errors import UserError, nearest
from ..support.files import is_disk_full, try_writing
from ..support.hub import is_local
from ..support.imports import import_function, install_line
from ..support.reward_names import reward_name
from ..support.yaml import read_yaml
from .arguments import CommandLine, recipe_fields
from .checkpoints import Length, has_optimizer, is_at_its_end, newest_checkpoint, read_state
from .data import check_source
from .launch import Launch, make_launch
from .lookup import find_reward_functions
from .push import check_push
from .recipe import RECIPE, Recipe
from .server import check_server
from .sizes import Disk, find_shape, make_schedule, plan_disk

# The Trainer takes these from the optimizer's saved state, whatever the recipe says.
IN_OPTIMIZER = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "use_peft", "lora_r")


def check(line: CommandLine, recipe: Recipe) -> Launch:
    """Check a run, and return how to start it."""
    launch = make_launch(line, recipe)
    config = recipe.check_training(launch.num_processes)
    output_dir = Path(recipe.setting("output_dir"))
    _check_rewards(recipe, config)
    if recipe.script.model_builder is not None:
        import_function(recipe.script.model_builder, "model_builder")
    else:
        _check_model_path(str(recipe.model.model_name_or_path))
    _check_packages(recipe)
    _check_evaluation(recipe)
    _check_output_dir(output_dir, _disk(recipe, launch, config))
    _check_resume(recipe, output_dir)
    check_source(recipe.script)
    if recipe.setting("push_to_hub"):
        check_push(recipe.setting("hub_model_id") or output_dir.resolve().name, recipe.env)
    if recipe.setting("use_vllm") and recipe.setting("vllm_mode") == "server" and launch.machine_rank == 0:
        check_server(recipe)  # last: it may wait
    return launch


def _check_rewards(recipe: Recipe, config: CESConfig) -> None:
    """Check the weights, and which reward decides correctness, before the trainer loads the model."""
    funcs = find_reward_functions(recipe)
    names = list(map(reward_name, funcs))
    if config.reward_weights is not None and len(config.reward_weights) != len(names):
        raise UserError(
            f"`reward_weights` has {len(config.reward_weights)} numbers for {len(names)} rewards: give one for each "
            f"of {', '.join(names)}, in this order."
        )
    if config.needs_accuracy or any(map(is_group_reward, funcs)):
        try:
            accuracy_column(config.ces_accuracy_reward, names, funcs)
        except ValueError as error:
            raise UserError(f"{recipe.source}: {error}") from None


def _check_model_path(name: str) -> None:
    folder = Path(name).expanduser()
    if not is_local(name):
        return
    for pattern in ("config.json", "*.safetensors"):
        if not any(folder.glob(pattern)):
            raise UserError(
                f"`model_name_or_path` {name!r} holds no {pattern}: name a Hub id, or a model's directory as "
                "`save_pretrained` writes it."
            )


def _check_packages(recipe: Recipe) -> None:
    """Check that what the recipe uses is installed, and fits together."""
    from transformers.integrations import integration_utils
    from transformers.utils import is_kernels_available

    loggers = recipe.setting("report_to") or []
    known = [*integration_utils.INTEGRATION_TO_CALLBACK, "all", "none"]
    for name in [loggers] if isinstance(loggers, str) else loggers:
        if name not in known:
            raise UserError(f"`report_to`: {name!r} is not one of {', '.join(known)}.{nearest(name, known)}")
        if name not in ("all", "none", *integration_utils.get_available_reporting_integrations()):
            raise UserError(f"`report_to` is {name!r}, which is not installed: install it, or set it to none.")
    if recipe.setting("deepspeed") is not None and find_spec("deepspeed") is None:
        raise UserError(f"`deepspeed` needs DeepSpeed: {install_line('deepspeed')}, or set it to null.")
    has_flash = is_kernels_available() or find_spec("flash_attn") or find_spec("flash_attn_interface")
    if str(recipe.attention).startswith("flash_attention") and (recipe.setting("use_cpu") or not has_flash):
        raise UserError(
            f"`attn_implementation` is {recipe.attention!r}, which needs a GPU and `flash-attn` or `kernels`: "
            f"{install_line('flash')}, or give --attn_implementation sdpa."
        )
    if not recipe.setting("use_vllm"):
        return
    if recipe.model.load_in_4bit or recipe.model.load_in_8bit:
        raise UserError(
            "`use_vllm` with quantized weights would send vLLM an adapter merged into them, which rounding changes by "
            "as much as the adapter does: set `use_vllm: false`, or remove `load_in_4bit` and `load_in_8bit`."
        )
    bound, completion = recipe.setting("vllm_max_model_length"), recipe.setting("max_completion_length")
    if recipe.setting("vllm_mode") == "colocate" and bound and completion and bound <= completion:
        raise UserError(
            f"`vllm_max_model_length` is {bound} and `max_completion_length` {completion}, so no prompt has room: "
            "raise the first, or lower the second."
        )
    if find_spec("vllm") is None:  # TRL's client of a server imports it, too
        raise UserError(f"`use_vllm` is true and vLLM is missing: {install_line('vllm')}, or set it to false.")


def _disk(recipe: Recipe, launch: Launch, config: CESConfig) -> Disk | None:
    """Return what the run writes; `None` for an adapter, and for a model whose shape is not known offline."""
    if recipe.model.use_peft or recipe.script.model_builder is not None:
        return None
    try:
        weights = find_shape(str(recipe.model.model_name_or_path), offline=True).weights()
    except UserError:
        return None
    steps = make_schedule(config, launch.num_processes, recipe.script.max_train_samples).steps
    width = 4 if recipe.model.dtype in (None, "float32") else 2
    stage = 3 if launch.distributed_type == "DEEPSPEED" else 0  # the stage that writes least
    fsdp = launch.distributed_type == "FSDP"
    return plan_disk(config, steps, weights=weights, trained=weights, width=width, zero_stage=stage, fsdp=fsdp)


def _check_output_dir(output_dir: Path, disk: Disk | None) -> None:
    """Write in the nearest folder that exists, and compare its room with what the run writes."""
    try:
        free = shutil.disk_usage(try_writing(output_dir)).free
    except OSError as error:
        way_out = "make room, or name another" if is_disk_full(error, output_dir) else "name another"
        raise UserError(f"`output_dir` {str(output_dir)!r} cannot be written ({error.strerror}): {way_out}.") from None
    if disk is not None and disk.limit is not None:  # an earlier run's checkpoints make room as new ones come
        free += sum(file.stat().st_size for file in output_dir.glob("checkpoint-*/**/*") if file.is_file())
    if disk is not None and free < disk.peak:
        raise UserError(
            f"`output_dir` {str(output_dir)!r} has {free / 1e9:.1f} GB left and the run writes up to "
            f"{disk.peak / 1e9:.1f}, {disk.checkpoint / 1e9:.1f} a checkpoint: make room, name another, or keep fewer "
            f"(`save_total_limit` is {disk.limit})."
        )


def _check_evaluation(recipe: Recipe) -> None:
    strategy, script = recipe.setting("eval_strategy"), recipe.script
    has_data = script.num_eval_samples is not None or script.eval_dataset_name is not None
    if (strategy != "no") != has_data:
        raise UserError(
            f"`eval_strategy` is {strategy!r} {'with' if has_data else 'without'} evaluation data: set it to steps, "
            "epoch or no, and `num_eval_samples` or `eval_dataset_name` accordingly."
        )


def _check_resume(recipe: Recipe, output_dir: Path) -> None:
    value: Any = recipe.setting("resume_from_checkpoint")
    if not value:
        return
    length = Length(recipe.setting("max_steps"), recipe.setting("num_train_epochs"))
    checkpoint = newest_checkpoint(output_dir, length) if value is True else Path(value)
    state = None if checkpoint is None else read_state(checkpoint)
    if checkpoint is None or state is None:
        raise UserError(
            f"`resume_from_checkpoint` is {value!r} and {checkpoint or output_dir} holds no complete checkpoint with "
            "steps left: name a checkpoint-N directory, start without it, or raise `max_steps`."
        )
    if is_at_its_end(state, length):
        raise UserError(
            f"`resume_from_checkpoint` {value!r} is at the end of its run, step {state['global_step']}: it holds the "
            "trained model. Raise `max_steps` or `num_train_epochs` to train longer."
        )
    if not has_optimizer(checkpoint):
        raise UserError(
            f"{checkpoint} holds the model alone (`save_only_model`): Adam and the learning rate would start anew. "
            "Start a run from it by `model_name_or_path`."
        )
    file = checkpoint.parent / RECIPE
    before = read_yaml(file) if file.is_file() else recipe.given
    for name in IN_OPTIMIZER:
        default = recipe_fields()[name].default
        if recipe.given.get(name, default) != before.get(name, default):
            raise UserError(
                f"`{name}` is {recipe.given.get(name, default)} and was {before.get(name, default)}, which the "
                "checkpoint's optimizer keeps: leave it, or start a run from the checkpoint by `model_name_or_path`."
            )
