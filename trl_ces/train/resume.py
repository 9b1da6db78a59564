"""Check what a start would overwrite, and which checkpoint and settings a resumed run may take."""

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
from .recipe import RECIPE, Recipe

# When a run resumes, these settings come from the optimizer's saved state, regardless of the recipe.
IN_OPTIMIZER = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "use_peft", "lora_r")
# Settings that determine batch sizes together with the number of processes; only the resulting sizes are compared.
BATCHES = (
    "responses_per_step", "responses_per_rollout", "per_device_train_batch_size", "gradient_accumulation_steps",
    "steps_per_generation", "generation_batch_size",
)  # fmt: skip
# Settings that may change on resuming: they control length, evaluation, saving, logging, pushing, memory, speed and
# the handling of failures, not what is trained.
FREE_PREFIXES = ("eval_", "save_", "log_", "logging_", "hub_", "trackio_", "ddp_", "vllm_server_")
FREE = {
    *START, "output_dir", "max_steps", "num_train_epochs", "num_eval_samples", "num_generations_eval",
    "per_device_eval_batch_size", "bf16_full_eval", "fp16_full_eval", "prediction_loss_only", "batch_eval_metrics",
    "include_for_metrics", "enable_jit_checkpoint", "disable_tqdm", "report_to", "run_name", "project",
    "include_num_input_tokens_seen", "num_completions_to_print", "skip_memory_metrics", "push_to_hub",
    "activation_checkpointing", "activation_checkpointing_kwargs", "gradient_checkpointing",
    "gradient_checkpointing_kwargs", "attn_implementation", "use_cpu", "torch_empty_cache_steps", "trim_padding",
    "arrange_by_length", "padding_free", "max_tokens_per_micro_batch", "vllm_group_port", "vllm_enable_sleep_mode",
    "vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_tensor_parallel_size", "on_reward_error",
    "max_nonfinite_steps", "stop_on_divergence", "dataloader_num_workers", "dataloader_pin_memory",
    "dataloader_persistent_workers", "dataloader_prefetch_factor",
}  # fmt: skip


def refuse_to_overwrite(recipe: Recipe) -> None:
    """Refuse an `output_dir` with checkpoints that the run neither continues nor may delete."""
    output_dir, resumed = Path(recipe.setting("output_dir")), recipe.setting(RESUME)
    if resumed is True or (resumed and Path(resumed).resolve().parent == output_dir.resolve()):
        return
    names = [folder.name for folder in list_checkpoints(output_dir)]
    if names and (resumed or not recipe.script.overwrite_output_dir):
        raise UserError(
            f"`output_dir` {output_dir} holds checkpoints of another run ({names[-1]}): continue it with "
            f"`--{RESUME} true`, name another `output_dir`, or delete them with `--overwrite_output_dir true`."
        )


def check_resume(recipe: Recipe, output_dir: Path, config: CESConfig) -> Path:
    """Return the checkpoint to resume from; refuse a damaged one, and settings that differ from those of its run."""
    value: Any = recipe.setting(RESUME)
    length = Length(config.max_steps, config.num_train_epochs)
    checkpoint = newest_checkpoint(output_dir, length) if value is True else Path(value)
    state = None if checkpoint is None else read_state(checkpoint)
    if checkpoint is None or state is None:
        raise UserError(
            f"`{RESUME}` is {value!r}, but {checkpoint or output_dir} has no complete checkpoint with steps left: "
            "name a checkpoint-N directory, remove the setting, or raise `max_steps`."
        )
    if is_finished(state, length):
        raise UserError(
            f"`{RESUME}` {value!r} is the end of a finished run, step {state['global_step']}: raise `max_steps` or "
            "`num_train_epochs` to train longer."
        )
    if not has_optimizer(checkpoint):
        raise UserError(
            f"{checkpoint} contains only the model (`save_only_model`), so Adam and the learning rate would restart: "
            "start a new run with it as `model_name_or_path`."
        )
    if value is not True and (damage := find_damage(checkpoint)):
        raise UserError(
            f"`{RESUME}` {value!r} is damaged ({damage}): name another checkpoint, or `true` for the newest complete "
            "one."
        )
    changes = changed_settings(checkpoint, recipe, config)
    for name in IN_OPTIMIZER:
        if name in changes:
            old, new = changes[name]
            raise UserError(
                f"`{name}` is {new} but was {old}, and the optimizer's saved state keeps the old value: restore the "
                "old value, or start a new run with the checkpoint as `model_name_or_path`."
            )
    if changes and not recipe.script.resume_with_changes:
        raise UserError(
            f"The run of {checkpoint} had other settings: {describe_changes(changes)}. Restore them, start a new run "
            "in another `output_dir`, or allow the changes with `--resume_with_changes true`."
        )
    return checkpoint


def changed_settings(checkpoint: Path, recipe: Recipe, config: CESConfig) -> dict[str, tuple[Any, Any]]:
    """
    Map each setting that affects training and differs from the run of `checkpoint` to its old and new value.

    The recipe saved in the checkpoint, or else beside it, is compared; without one, nothing is known to differ.
    """
    folder = _run_files(checkpoint)
    if folder is None:
        return {}
    before, now = read_yaml(folder / RECIPE), dict(recipe.given)
    if now.get("ces_tau") == AUTO:  # training replaces `auto` with a number
        now["ces_tau"] = before.get("ces_tau", AUTO)
    facts = read_facts(checkpoint).get("settings")
    free = {*FREE, *(BATCHES if facts else ())}
    changes = {}
    for name, entry in recipe_fields().items():
        old, new = before.get(name, entry.default), now.get(name, entry.default)
        if old != new and name not in free and not name.startswith(FREE_PREFIXES):
            changes[name] = (old, new)
    if facts:
        per_device = facts["per_device_train_batch_size"] * facts["world_size"]
        step = config.per_device_train_batch_size * config.gradient_accumulation_steps * config.world_size
        sizes = {
            "completions per step": (per_device * facts["gradient_accumulation_steps"], step),
            "completions per rollout": (per_device * facts["steps_per_generation"], config.generation_batch_size),
        }
        changes |= {name: pair for name, pair in sizes.items() if pair[0] != pair[1]}
    return changes


def _run_files(checkpoint: Path) -> Path | None:
    return next((folder for folder in (checkpoint, checkpoint.parent) if (folder / RECIPE).is_file()), None)


def read_facts(checkpoint: Path) -> dict[str, Any]:
    """Return the run.json of a checkpoint's run; empty if there is none."""
    folder = _run_files(checkpoint)
    file = None if folder is None else folder / FACTS
    return {} if file is None or not file.is_file() else json.loads(file.read_text(encoding="utf-8"))


def describe_changes(changes: dict[str, Any]) -> str:
    """List changed settings with their old and new values."""
    return ", ".join(f"`{name}` {reprlib.repr(old)} -> {reprlib.repr(new)}" for name, (old, new) in changes.items())
