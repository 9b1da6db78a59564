"""Every check of a training run that needs no model, and no network but the way to its vLLM server."""

import shutil
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from ..config import CESConfig
from ..methods.group_reward import accuracy_column, is_group_reward
from ..support.errors import UserError, nearest
from ..support.files import is_disk_full, try_writing
from ..support.hub import check_repo, is_local
from ..support.imports import import_function, install_line
from ..support.reward_names import reward_name
from ..support.yaml import read_yaml
from .arguments import ScriptArguments
from .checkpoints import Length, has_optimizer, is_at_its_end, newest_checkpoint, read_state
from .command_line import CommandLine
from .data import check_source
from .disk import Disk, plan_disk
from .launch import Launch, make_launch
from .lookup import find_reward_functions
from .recipe import RECIPE, Recipe, recipe_fields
from .schedule import make_schedule
from .server import check_server
from .shapes import find_shape

# What the optimizer's state holds, and the Trainer on resuming takes from there whatever the recipe says.
IN_OPTIMIZER = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "use_peft", "lora_r")


def check(line: CommandLine, recipe: Recipe) -> Launch:
    """Checks a run, and says how to start it."""
    launch = make_launch(line, recipe)
    config = recipe.check_training(launch.num_processes)
    _check_rewards(recipe, config)
    model, output_dir = str(recipe.model.model_name_or_path), Path(recipe.setting("output_dir"))
    if recipe.script.model_builder is not None:
        import_function(recipe.script.model_builder, "model_builder")
    else:
        _check_model_path(model)
    _check_deepspeed(recipe.setting("deepspeed"))
    _check_loggers(recipe.setting("report_to"))
    if recipe.setting("use_vllm") and (recipe.model.load_in_4bit or recipe.model.load_in_8bit):
        raise UserError(
            "`use_vllm` with quantized weights would send vLLM an adapter merged into them, which rounding changes by "
            "as much as the adapter does: set `use_vllm: false`, or remove `load_in_4bit` and `load_in_8bit`."
        )
    bound, answer = recipe.setting("vllm_max_model_length"), recipe.setting("max_completion_length")
    colocated = recipe.setting("use_vllm") and recipe.setting("vllm_mode") == "colocate"
    if colocated and bound is not None and answer is not None and bound <= answer:
        raise UserError(
            f"`vllm_max_model_length` is {bound} and `max_completion_length` {answer}, so no prompt has room: raise "
            "the first, or lower the second."
        )
    if recipe.setting("use_vllm") and find_spec("vllm") is None:  # TRL's client of a server imports it, too
        raise UserError(f"`use_vllm` is true and vLLM is missing: {install_line('vllm')}, or set it to false.")
    _check_versions(bool(recipe.setting("use_vllm")), launch.distributed_type == "DEEPSPEED")
    _check_attention(recipe)
    _check_evaluation(recipe.script, recipe.setting("eval_strategy"))
    _check_output_dir(output_dir, _disk(recipe, launch, config))
    length = Length(recipe.setting("max_steps"), recipe.setting("num_train_epochs"))
    checkpoint = _check_resume(recipe.setting("resume_from_checkpoint"), output_dir, length)
    if checkpoint is not None and (checkpoint.parent / RECIPE).is_file():
        _check_optimizer(read_yaml(checkpoint.parent / RECIPE), recipe)
    check_source(recipe.script)
    if recipe.setting("push_to_hub"):
        check_repo(recipe.setting("hub_model_id") or output_dir.resolve().name)
    if recipe.setting("use_vllm") and recipe.setting("vllm_mode") == "server" and launch.machine_rank == 0:
        check_server(recipe)  # last: it may wait
    return launch


def _check_rewards(recipe: Recipe, config: CESConfig) -> None:
    """Weights, and which reward says "correct": the trainer looks once the model is loaded."""
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
    if not is_local(name):
        return
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise UserError(
            f"`model_name_or_path` {name!r} holds no config.json: name a saved model's directory or a Hub id."
        )
    if not any(folder.glob("*.safetensors")):
        problem = "pickled weights, which could run code" if any(folder.glob("*.bin")) else "no weights"
        raise UserError(
            f"`model_name_or_path` {name!r} holds {problem}: name a model saved as safetensors, as `save_pretrained` "
            "writes it."
        )


def _disk(recipe: Recipe, launch: Launch, config: CESConfig) -> Disk | None:
    """What the run writes; `None` for an adapter, and for a model whose size neither files here nor a cache tell."""
    from huggingface_hub import errors, get_local_safetensors_metadata

    name = str(recipe.model.model_name_or_path)
    if recipe.model.use_peft or recipe.script.model_builder is not None:
        return None
    try:
        if is_local(name):
            weights = sum(get_local_safetensors_metadata(Path(name).expanduser()).parameter_count.values())
        else:
            weights = find_shape(name, offline=True).weights()
    except (OSError, ValueError, errors.NotASafetensorsRepoError, errors.SafetensorsParsingError):
        return None
    steps = make_schedule(config, launch.num_processes, recipe.script.max_train_samples).steps
    width = 4 if recipe.model.dtype in (None, "float32") else 2
    stage = 3 if launch.distributed_type == "DEEPSPEED" else 0  # the stage that writes least
    fsdp = launch.distributed_type == "FSDP"
    return plan_disk(config, steps, weights=weights, trained=weights, width=width, zero_stage=stage, fsdp=fsdp)


def _check_output_dir(output_dir: Path, disk: Disk | None) -> None:
    """Writes in the nearest folder that exists, leaving nothing."""
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


def _check_deepspeed(file: Any) -> None:
    if isinstance(file, str) and not Path(file).expanduser().is_file():
        raise UserError(f"`deepspeed` {file!r} does not exist (searched from {Path.cwd()}).")
    if file is not None and find_spec("deepspeed") is None:
        raise UserError(f"`deepspeed` needs DeepSpeed: {install_line('deepspeed')}, or set it to null.")


def _check_loggers(wanted: str | list[str] | None) -> None:
    from transformers.integrations import integration_utils

    known = [*integration_utils.INTEGRATION_TO_CALLBACK, "all", "none"]
    for name in [wanted] if isinstance(wanted, str) else wanted or []:
        if name not in known:
            raise UserError(f"`report_to`: {name!r} is not one of {', '.join(known)}.{nearest(name, known)}")
        if name not in ("all", "none", *integration_utils.get_available_reporting_integrations()):
            raise UserError(f"`report_to` is {name!r}, which is not installed: install it, or set it to none.")


def _check_versions(vllm: bool, deepspeed: bool) -> None:
    """Packages that are there and do not go together; [`_check_attention`] looks at `kernels`."""
    asked = [("vllm", "trl", "vllm"), ("transformers", "vllm", ""), ("torch", "vllm", "")] if vllm else []
    asked += [("deepspeed", "trl_ces", "deepspeed")] if deepspeed else []
    for package, of, extra in asked:
        try:
            found, wanted = version(package), [Requirement(line) for line in requires(of) or ()]
        except PackageNotFoundError:
            continue
        for one in wanted:
            applies = one.name == package and (one.marker is None or one.marker.evaluate({"extra": extra}))
            if applies and not one.specifier.contains(found, prereleases=True):
                raise UserError(
                    f"{of} {version(of)} takes {package}{one.specifier}, and {package} {found} is installed: "
                    f"{install_line(extra or 'vllm')} -c constraints-gpu.txt (of this project: versions that fit)."
                )


def _check_attention(recipe: Recipe) -> None:
    from transformers.utils import is_kernels_available

    if not str(recipe.attention).startswith("flash_attention"):
        return
    if recipe.setting("use_cpu"):
        raise UserError(
            f"`attn_implementation` is {recipe.attention!r}, which needs a GPU, and `use_cpu` is true: "
            "give --attn_implementation sdpa."
        )
    if not (is_kernels_available() or find_spec("flash_attn") or find_spec("flash_attn_interface")):
        raise UserError(
            f"`attn_implementation` is {recipe.attention!r}, and neither `flash-attn` nor a `kernels` that this "
            f"transformers takes is installed: {install_line('flash')}, or give --attn_implementation sdpa."
        )


def _check_evaluation(script: ScriptArguments, strategy: str) -> None:
    has_data = script.num_eval_samples is not None or script.eval_dataset_name is not None
    if strategy != "no" and not has_data:
        raise UserError(
            f"`eval_strategy` is {strategy!r} without data: set `num_eval_samples` or `eval_dataset_name`."
        )
    if strategy == "no" and has_data:
        raise UserError("There is evaluation data and `eval_strategy` is no: set it to steps or epoch, or remove it.")


def _check_optimizer(before: dict[str, Any], recipe: Recipe) -> None:
    for name in IN_OPTIMIZER:
        kept, now = before.get(name, recipe_fields()[name].default), getattr(recipe.model, name, recipe.setting(name))
        if now != kept:
            raise UserError(
                f"`{name}` is {now} and was {kept}, which the checkpoint's optimizer keeps: leave it, or start a run "
                "from the checkpoint by `model_name_or_path`."
            )


def _check_resume(value: str | bool | None, output_dir: Path, length: Length) -> Path | None:
    """The checkpoint, if any."""
    if not value:
        return None
    checkpoint = newest_checkpoint(output_dir, length) if value is True else Path(value)
    if checkpoint is None:
        raise UserError(
            f"`resume_from_checkpoint` is true and {output_dir} holds no whole checkpoint with steps left: start "
            "without it, or raise `max_steps`."
        )
    state = read_state(checkpoint)
    if state is None:
        raise UserError(
            f"`resume_from_checkpoint` {value!r} holds no whole trainer_state.json: name a checkpoint-N directory."
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
    return checkpoint
