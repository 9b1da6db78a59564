"""Every check of a training run that needs neither a model nor the network."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..support.errors import UserError, nearest
from ..support.files import is_disk_full, try_writing
from ..support.hub import check_repo
from .arguments import ScriptArguments
from .checkpoints import Length, is_at_its_end, newest_checkpoint, read_state
from .command_line import CommandLine
from .data import check_source
from .launch import Launch, make_launch
from .lookup import find_reward_functions, import_function
from .recipe import Recipe


def check(line: CommandLine, recipe: Recipe, recipe_file: Path | None) -> Launch:
    """Every check that needs neither a model nor the network.

    Args:
        line ([`CommandLine`]):
            The sorted words.
        recipe ([`Recipe`]):
            The recipe with the words' overrides.
        recipe_file (`Path`, *optional*):
            Its file, which the training processes read again.

    Returns:
        [`Launch`]

    Raises:
        UserError: naming the field, its value and the way out.
    """
    launch = make_launch(line, recipe, recipe_file)
    recipe.check_training(launch.num_processes)
    training = recipe.training
    find_reward_functions(recipe.script, training.get("max_completion_length", 512))
    if recipe.script.model_builder is not None:
        import_function(recipe.script.model_builder, "model_builder")
    else:
        _check_model_path(str(recipe.model.model_name_or_path))
    _check_services(training)
    if training.get("use_vllm") and training.get("vllm_mode", "colocate") == "colocate" and find_spec("vllm") is None:
        raise UserError('`use_vllm` is true and vLLM is missing: pip install "trl_ces[vllm]", or set it to false.')
    _check_evaluation(recipe.script, training.get("eval_strategy", "no"))
    _check_output_dir(Path(training["output_dir"]).expanduser(), _weight_bytes(str(recipe.model.model_name_or_path)))
    length = Length(training.get("max_steps", -1), training.get("num_train_epochs", 3.0))
    _check_resume(training.get("resume_from_checkpoint"), Path(training["output_dir"]), length)
    check_source(recipe.script)
    if training.get("push_to_hub"):
        check_repo(training.get("hub_model_id") or Path(training["output_dir"]).resolve().name)
    return launch


def _check_model_path(name: str) -> None:
    folder = Path(name).expanduser()
    if not name.startswith((".", "/", "~")) and not folder.is_dir():
        return
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


def _weight_bytes(name: str) -> int:
    """What the weights of a local model take, 0 for one that is not here."""
    return sum(file.stat().st_size for file in Path(name).expanduser().glob("*.safetensors"))


def _check_output_dir(output_dir: Path, model_bytes: int) -> None:
    """Writes in the nearest folder that exists, leaving nothing: not to be found out after hours."""
    try:
        free = shutil.disk_usage(try_writing(output_dir)).free
    except OSError as error:
        way_out = "make room, or name another" if is_disk_full(error, output_dir) else "name another"
        raise UserError(f"`output_dir` {str(output_dir)!r} cannot be written ({error.strerror}): {way_out}.") from None
    if free < model_bytes:
        raise UserError(
            f"`output_dir` {str(output_dir)!r} has {free / 1e9:.1f} GB left and the model alone takes "
            f"{model_bytes / 1e9:.1f}: make room, or name another."
        )


def _check_services(training: dict[str, Any]) -> None:
    """Where the run is to be logged, and DeepSpeed's own file."""
    deepspeed = training.get("deepspeed")
    if isinstance(deepspeed, str) and not Path(deepspeed).expanduser().is_file():
        raise UserError(f"`deepspeed` {deepspeed!r} does not exist (searched from {Path.cwd()}).")
    from transformers.integrations import integration_utils

    wanted = training.get("report_to") or []
    known = [*integration_utils.INTEGRATION_TO_CALLBACK, "all", "none"]
    for name in [wanted] if isinstance(wanted, str) else wanted:
        if name not in known:
            raise UserError(f"`report_to`: {name!r} is not one of {', '.join(known)}.{nearest(name, known)}")
        if name not in ("all", "none", *integration_utils.get_available_reporting_integrations()):
            raise UserError(f"`report_to` is {name!r}, which is not installed: install it, or set it to none.")


def _check_evaluation(script: ScriptArguments, strategy: str) -> None:
    has_data = script.num_eval_samples is not None or script.eval_dataset_name is not None
    if strategy != "no" and not has_data:
        raise UserError(
            f"`eval_strategy` is {strategy!r} without data: set `num_eval_samples` or `eval_dataset_name`."
        )
    if strategy == "no" and has_data:
        raise UserError(
            "Evaluation data are given and `eval_strategy` is no: set it to steps or epoch, or remove them."
        )


def _check_resume(value: str | bool | None, output_dir: Path, length: Length) -> None:
    if not value:
        return
    if value is True:
        if newest_checkpoint(output_dir, length) is None:
            raise UserError(
                f"`resume_from_checkpoint` is true and {output_dir} holds no whole checkpoint with steps left: start "
                "without it, or give more `max_steps`."
            )
        return
    state = read_state(Path(value))
    if state is None:
        raise UserError(
            f"`resume_from_checkpoint` {value!r} holds no whole trainer_state.json: name a checkpoint-N directory."
        )
    if is_at_its_end(state, length):
        raise UserError(
            f"`resume_from_checkpoint` {value!r} is at the end of its run, step {state['global_step']}: it holds the "
            "trained model, nothing is left to do. More `max_steps` or `num_train_epochs` make the run longer."
        )
