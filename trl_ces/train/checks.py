"""Check a training run without loading a model and without network access, except to its vLLM server."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..config import CESConfig
from ..methods.group_reward import accuracy_column, is_group_reward
from ..support.errors import UserError
from ..support.hub import is_local
from ..support.imports import import_path, install_line
from ..support.prompts import check_chat_template
from ..support.reward_names import reward_name
from ..support.yaml import read_yaml
from .arguments import CommandLine, recipe_fields
from .checkpoints import Length, has_optimizer, is_finished, newest_checkpoint, read_state
from .data import check_source
from .launch import Launch, make_launch
from .lookup import find_reward_functions
from .push import check_push
from .recipe import RECIPE, Recipe
from .server import check_server

# When a run resumes, these settings come from the optimizer's saved state, regardless of the recipe.
IN_OPTIMIZER = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "use_peft", "lora_r")


def check(line: CommandLine, recipe: Recipe) -> Launch:
    """Check a run and return its launch settings."""
    launch = make_launch(line, recipe)
    output_dir, script = Path(recipe.setting("output_dir")), recipe.script
    _check_rewards(recipe, recipe.check_training(launch.num_processes))
    _check_model(recipe)
    _check_packages(recipe)
    strategy, has_data = recipe.setting("eval_strategy"), bool(script.num_eval_samples or script.eval_dataset_name)
    if (strategy != "no") != has_data:
        raise UserError(
            f"`eval_strategy` is {strategy!r} {'with' if has_data else 'without'} evaluation data: set it to steps, "
            "epoch or no, and `num_eval_samples` or `eval_dataset_name` accordingly."
        )
    if recipe.setting("resume_from_checkpoint"):
        _check_resume(recipe, output_dir)
    prompt, model = check_source(script), str(recipe.model.model_name_or_path)
    if script.model_builder is None and is_local(model):  # the trainer checks those of the Hub
        check_chat_template(prompt, model, trust_remote_code=recipe.setting("trust_remote_code"))
    if recipe.setting("push_to_hub"):
        check_push(recipe.setting("hub_model_id") or output_dir.resolve().name, recipe.env)
    if recipe.setting("use_vllm") and recipe.setting("vllm_mode") == "server" and launch.machine_rank == 0:
        check_server(recipe)  # last, because it may wait
    return launch


def _check_rewards(recipe: Recipe, config: CESConfig) -> None:
    """Check the reward weights and the accuracy reward before the trainer loads the model."""
    funcs = find_reward_functions(recipe)
    names = list(map(reward_name, funcs))
    if config.reward_weights is not None and len(config.reward_weights) != len(names):
        raise UserError(
            f"`reward_weights` has {len(config.reward_weights)} numbers for {len(names)} rewards: give one number for "
            f"each of {', '.join(names)}, in this order."
        )
    if config.needs_accuracy or any(map(is_group_reward, funcs)):
        try:
            accuracy_column(config.ces_accuracy_reward, names, funcs)
        except ValueError as error:
            raise UserError(f"{recipe.source}: {error}") from None


def _check_model(recipe: Recipe) -> None:
    name = str(recipe.model.model_name_or_path)
    if recipe.script.model_builder is not None:
        import_path(recipe.script.model_builder, "model_builder")
    elif is_local(name):
        for pattern in ("config.json", "*.safetensors"):
            if not any(Path(name).glob(pattern)):
                raise UserError(
                    f"`model_name_or_path` {name!r} has no {pattern}: name a Hub id, or a directory written by "
                    "`save_pretrained`."
                )


def _check_packages(recipe: Recipe) -> None:
    """Check that the required packages are installed and that the recipe's settings are compatible with them."""
    from transformers.integrations import integration_utils
    from transformers.utils import is_kernels_available

    loggers = recipe.setting("report_to") or []
    known = ["all", "none", *integration_utils.get_available_reporting_integrations()]
    for name in [loggers] if isinstance(loggers, str) else loggers:
        if name not in known:
            raise UserError(f"`report_to` is {name!r}, which is not installed: choose one of {', '.join(known)}.")
    has_flash = is_kernels_available() or find_spec("flash_attn") or find_spec("flash_attn_interface")
    if str(recipe.attention).startswith("flash_attention") and (recipe.setting("use_cpu") or not has_flash):
        raise UserError(
            f"`attn_implementation` is {recipe.attention!r}, which needs a GPU and `flash-attn` or `kernels`: "
            f"{install_line('flash')}, or set --attn_implementation sdpa."
        )
    if recipe.setting("use_vllm") and (recipe.model.load_in_4bit or recipe.model.load_in_8bit):
        raise UserError(
            "`use_vllm` with quantized weights merges the adapter into them, with a rounding error as large as the "
            "adapter's change: set `use_vllm: false`, or remove `load_in_4bit` and `load_in_8bit`."
        )
    if recipe.setting("use_vllm") and find_spec("vllm") is None:  # TRL's server client also imports it
        raise UserError(f"`use_vllm` is true, but vLLM is missing: {install_line('vllm')}, or set it to false.")


def _check_resume(recipe: Recipe, output_dir: Path) -> None:
    value: Any = recipe.setting("resume_from_checkpoint")
    length = Length(recipe.setting("max_steps"), recipe.setting("num_train_epochs"))
    checkpoint = newest_checkpoint(output_dir, length) if value is True else Path(value)
    state = None if checkpoint is None else read_state(checkpoint)
    if checkpoint is None or state is None:
        raise UserError(
            f"`resume_from_checkpoint` is {value!r}, but {checkpoint or output_dir} has no complete checkpoint with "
            "steps left: name a checkpoint-N directory, remove the setting, or raise `max_steps`."
        )
    if is_finished(state, length):
        raise UserError(
            f"`resume_from_checkpoint` {value!r} is the end of a finished run, step {state['global_step']}: raise "
            "`max_steps` or `num_train_epochs` to train longer."
        )
    if not has_optimizer(checkpoint):
        raise UserError(
            f"{checkpoint} contains only the model (`save_only_model`), so Adam and the learning rate would restart: "
            "start a new run with it as `model_name_or_path`."
        )
    file = checkpoint.parent / RECIPE
    before = read_yaml(file) if file.is_file() else recipe.given
    for name in IN_OPTIMIZER:
        default = recipe_fields()[name].default
        old, new = before.get(name, default), recipe.given.get(name, default)
        if old != new:
            raise UserError(
                f"`{name}` is {new} but was {old}, and the optimizer's saved state keeps the old value: restore the "
                "old value, or start a new run with the checkpoint as `model_name_or_path`."
            )
