"""Check whether a new run would overwrite checkpoints, and which checkpoint and settings a resumed run can use."""

import json
import reprlib
from pathlib import Path
from typing import Any

from ..config import CESConfig
from ..methods.ces import AUTO
from ..support.errors import UserError
from ..support.yaml import read_yaml
from .arguments import RESUME, START, recipe_fields
from .card import FACTS
from .checkpoints import (
    Length,
    find_damage,
    has_optimizer,
    is_finished,
    list_checkpoints,
    newest_checkpoint,
    read_state,
)
from .recipe import BATCHES, COUNTS, RECIPE, Recipe

# A resumed run restores these settings from the optimizer's saved state and ignores the recipe's values.
IN_OPTIMIZER = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "use_peft", "lora_r")
# Settings that may change when a run is resumed, because they do not affect what is trained: length, evaluation,
# saving, logging, pushing, memory, speed and error handling. Batch sizes are compared in total over all processes.
FREE_PREFIXES = ("eval_", "save_", "log_", "logging_", "hub_", "trackio_", "ddp_", "vllm_server_")
FREE = {
    *START, *COUNTS, BATCHES, "responses_per_rollout", "per_device_train_batch_size", "output_dir", "max_steps",
    "num_train_epochs", "num_eval_samples", "num_generations_eval", "per_device_eval_batch_size", "bf16_full_eval",
    "fp16_full_eval", "prediction_loss_only", "batch_eval_metrics", "include_for_metrics", "enable_jit_checkpoint",
    "disable_tqdm", "report_to", "run_name", "project", "use_cpu", "include_num_input_tokens_seen",
    "num_completions_to_print", "skip_memory_metrics", "push_to_hub", "activation_checkpointing",
    "activation_checkpointing_kwargs", "gradient_checkpointing", "gradient_checkpointing_kwargs",
    "attn_implementation", "torch_empty_cache_steps", "trim_padding",
    "arrange_by_length", "packing", "max_tokens_per_micro_batch", "vllm_group_port", "vllm_enable_sleep_mode",
    "vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_tensor_parallel_size", "on_reward_error",
    "max_nonfinite_steps", "stop_on_divergence", "dataloader_num_workers", "dataloader_pin_memory",
    "dataloader_persistent_workers", "dataloader_prefetch_factor",
}  # fmt: skip


def check_output_dir(recipe: Recipe) -> None:
    """Raise `UserError` if `output_dir` has checkpoints that the run neither resumes nor is allowed to delete."""
    output_dir, resumed = Path(recipe.setting("output_dir")), recipe.setting(RESUME)
    folders = list_checkpoints(output_dir)
    if resumed is True or not folders or (recipe.script.overwrite_output_dir and not resumed):
        return
    if not resumed or Path(resumed).resolve().parent != output_dir.resolve():
        raise UserError(
            f"`output_dir` {output_dir} contains checkpoints of another run ({folders[-1].name}): resume it with "
            f"`--{RESUME} true`, set another `output_dir`, or delete its checkpoints (`--overwrite_output_dir true`)."
        )


def check_resume(recipe: Recipe, output_dir: Path, config: CESConfig) -> Path:
    """Return the checkpoint to resume from; raise `UserError` if it is damaged or its settings are different."""
    value: Any = recipe.setting(RESUME)
    length = Length(config.max_steps, config.num_train_epochs)
    checkpoint = newest_checkpoint(output_dir, length) if value is True else Path(value)
    state = None if checkpoint is None else read_state(checkpoint)
    if checkpoint is None or state is None:
        raise UserError(
            f"`{RESUME}` is {value!r}, but {checkpoint or output_dir} has no complete checkpoint with steps left: "
            f"specify a checkpoint-N directory, remove `{RESUME}`, or raise `max_steps`."
        )
    if is_finished(state, length):
        raise UserError(
            f"`{RESUME}` {value!r} is the last checkpoint of a finished run (step {state['global_step']}): raise "
            "`max_steps` or `num_train_epochs` to train for longer."
        )
    if not has_optimizer(checkpoint):
        raise UserError(
            f"{checkpoint} contains only the model (`save_only_model`), so Adam and the learning rate would restart: "
            "start a new run with this directory as `model_name_or_path`."
        )
    if value is not True and (damage := find_damage(checkpoint)):
        raise UserError(
            f"`{RESUME}` {value!r} is damaged ({damage}): choose another checkpoint, or set `{RESUME}` to true to use "
            "the newest complete checkpoint."
        )
    changes = changed_settings(checkpoint, recipe, config)
    for name in filter(changes.get, IN_OPTIMIZER):
        old, new = changes[name]
        raise UserError(
            f"`{name}` is {new} but was {old}, and the optimizer's saved state keeps the old value: restore the "
            "old value, or start a new run with the checkpoint as `model_name_or_path`."
        )
    if changes and not recipe.script.resume_with_changes:
        differences = ", ".join(
            f"`{name}` {reprlib.repr(old)} -> {reprlib.repr(new)}" for name, (old, new) in changes.items()
        )
        raise UserError(
            f"{checkpoint} was saved with different settings: {differences}. Restore the old settings, start a new "
            "run in another `output_dir`, or allow the changes with `--resume_with_changes true`."
        )
    return checkpoint


def changed_settings(checkpoint: Path, recipe: Recipe, config: CESConfig) -> dict[str, tuple[Any, Any]]:
    """Return the old and new value of each setting that affects training and has changed since `checkpoint`."""
    old_recipe, new_recipe = read_yaml(checkpoint / RECIPE), dict(recipe.given)
    old = _read_facts(checkpoint)["settings"]
    if new_recipe.get("ces_tau") == AUTO:  # training replaces `auto` with a number
        new_recipe["ces_tau"] = old_recipe.get("ces_tau", AUTO)
    values = {
        name: (old_recipe.get(name, entry.default), new_recipe.get(name, entry.default))
        for name, entry in recipe_fields().items()
    }
    pairs = {name: pair for name, pair in values.items() if name not in FREE and not name.startswith(FREE_PREFIXES)}
    rows = old["per_device_train_batch_size"] * old["world_size"]
    step = config.per_device_train_batch_size * config.gradient_accumulation_steps * config.world_size
    pairs["completions per step"] = (rows * old["gradient_accumulation_steps"], step)
    pairs["completions per rollout"] = (rows * old["steps_per_generation"], config.generation_batch_size)
    if not config.rows_are_independent():
        pairs["completions per micro-batch"] = (rows, config.per_device_train_batch_size * config.world_size)
    if new_recipe.get("max_train_samples") is None:  # held-out rows reduce the number of training rows
        recipes = [{} if recipe.get("eval_dataset_name") else recipe for recipe in (old_recipe, new_recipe)]
        pairs["held-out rows"] = (recipes[0].get("num_eval_samples") or 0, recipes[1].get("num_eval_samples") or 0)
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def list_changes(checkpoint: Path, recipe: Recipe, config: CESConfig) -> list[dict[str, Any]]:
    """Return the step and the old and new values for each resume with changed settings, including this resume."""
    changes = _read_facts(checkpoint)["changes"]
    if new := changed_settings(checkpoint, recipe, config):
        changes.append({"step": (read_state(checkpoint) or {}).get("global_step"), "settings": new})
    return changes


def _read_facts(checkpoint: Path) -> dict[str, Any]:
    return json.loads((checkpoint / FACTS).read_text(encoding="utf-8"))
