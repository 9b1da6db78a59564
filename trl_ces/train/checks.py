"""Check a training run without loading a model and without network access, except to the vLLM server."""

import sys
from importlib.util import find_spec
from pathlib import Path

from ..config import CESConfig
from ..methods.group_reward import check_rewards
from ..support.errors import UserError
from ..support.hub import is_local, nearest_model
from ..support.imports import import_path, install_line
from ..support.models import check_not_adapter, check_reward_model
from ..support.prompts import check_chat_template
from .arguments import RESUME
from .data import check_source
from .launch import Launch
from .lookup import find_reward_functions
from .push import check_push
from .recipe import Recipe
from .resume import check_resume
from .server import check_server


def check(recipe: Recipe, launch: Launch) -> Path | None:
    """Check a run and return the checkpoint to resume from, if any."""
    output_dir, script = Path(recipe.setting("output_dir")), recipe.script
    config = recipe.check_training(launch.num_processes)
    _check_rewards(recipe, config)
    _check_model(recipe)
    _check_packages(recipe)
    strategy, has_data = recipe.setting("eval_strategy"), bool(script.num_eval_samples or script.eval_dataset_name)
    if (strategy != "no") != has_data:
        raise UserError(
            f"`eval_strategy` is {strategy!r} {'with' if has_data else 'without'} evaluation data: set it to steps or "
            "epoch if `num_eval_samples` or `eval_dataset_name` is set, and to no otherwise."
        )
    checkpoint = check_resume(recipe, output_dir, config) if recipe.setting(RESUME) else None
    prompt, model = check_source(script), str(recipe.model.model_name_or_path)
    if script.model_builder is None and is_local(model):  # the trainer checks models on the Hub
        check_chat_template(prompt, model, trust_remote_code=recipe.setting("trust_remote_code"))
    if recipe.setting("push_to_hub"):
        check_push(recipe.setting("hub_model_id") or output_dir.resolve().name)
    if recipe.setting("use_vllm") and recipe.setting("vllm_mode") == "server" and launch.machine_rank == 0:
        check_server(recipe)  # last, because this check may wait
    return checkpoint


def _check_rewards(recipe: Recipe, config: CESConfig) -> None:
    """Check the rewards and the settings that depend on rewards."""
    funcs, reward_model = find_reward_functions(recipe), recipe.script.reward_model_name_or_path
    try:
        check_rewards(config, funcs)
    except ValueError as error:
        raise UserError(f"{recipe.source}: {error}") from None
    if reward_model is not None and is_local(reward_model):
        check_reward_model(reward_model)


def _check_model(recipe: Recipe) -> None:
    name = str(recipe.model.model_name_or_path)
    if recipe.script.model_builder is not None:
        import_path(recipe.script.model_builder, "model_builder")
    elif is_local(name):
        check_not_adapter(name)
        for pattern in ("config.json", "*.safetensors"):
            if not any(Path(name).glob(pattern)):
                raise UserError(
                    f"`model_name_or_path` {name!r} has no {pattern}: use a Hub id or a directory written by "
                    f"`save_pretrained`.{nearest_model(name)}"
                )
    elif Path(name).parent != Path() and Path(name).parent.is_dir() and (hint := nearest_model(name)):
        print(f"Note: the directory {name!r} does not exist; reading the model from the Hub.{hint}", file=sys.stderr)


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
            f"`attn_implementation` is {recipe.attention!r}, which needs a GPU and `flash-attn` or `kernels`: run "
            f"`{install_line('flash')}`, or pass `--attn_implementation sdpa`."
        )
    if recipe.setting("use_vllm") and (recipe.model.load_in_4bit or recipe.model.load_in_8bit):
        raise UserError(
            "`use_vllm` would merge the adapter into quantized weights, and the rounding error would be as large as "
            "the adapter's change: set `use_vllm: false`, or remove `load_in_4bit` and `load_in_8bit`."
        )
    if recipe.setting("use_vllm") and find_spec("vllm") is None:  # also needed by TRL's server client
        command = install_line("vllm")
        raise UserError(f"`use_vllm` is true, but vLLM is missing: run `{command}`, or set `use_vllm: false`.")
