"""A checked recipe's `Setup`: everything that decides its memory."""

from __future__ import annotations

import json
import math
from typing import Any, cast

from trl import get_peft_config

from ...config import CESConfig
from ...support.errors import UserError
from ...train.recipe import Recipe
from ...train.sizes import ModelShape, Schedule
from .engine import Engine
from .memory import Generation, Setup
from .step import StepSettings

# Tokens, where nothing in the recipe bounds prompt and completion.
ASSUMED_PROMPT = 512


def prompt_tokens(config: CESConfig, given: int | None) -> tuple[int, str]:
    """Tokens of the longest prompt to plan for, and where the number comes from."""
    answer = config.max_completion_length
    if answer is None:
        raise UserError("`max_completion_length` is null: a plan needs the longest completion.")
    if given is not None:
        return given, "--prompt_length"
    if config.use_vllm and config.vllm_max_model_length is not None:
        room = config.vllm_max_model_length - answer
        if room < 1:
            raise UserError(
                f"`vllm_max_model_length` is {config.vllm_max_model_length} and `max_completion_length` {answer}: "
                "no room is left for the prompt; raise the first."
            )
        return room, "vllm_max_model_length - max_completion_length"
    return ASSUMED_PROMPT, "assumed; --prompt_length says otherwise"


def make_setup(
    recipe: Recipe,
    config: CESConfig,
    schedule: Schedule,
    shape: ModelShape,
    engine: Engine,
    device: int | None,
    prompt: int,
) -> Setup:
    """Gather what decides a recipe's memory."""
    _refuse_what_no_plan_covers(recipe, engine)
    half = bool(config.bf16 or config.fp16)
    named = str(shape.config().dtype).removeprefix("torch.") if recipe.model.dtype == "auto" else recipe.model.dtype
    loaded = "float32" if named in (None, "float32") else "bfloat16"
    tokens = prompt + cast(int, config.max_completion_length)
    lora = get_peft_config(recipe.model)
    rows = schedule.micro_batch
    if config.max_tokens_per_micro_batch is not None:  # a row above the budget is a piece of its own
        rows = max(1, min(rows, config.max_tokens_per_micro_batch // tokens))
    step = StepSettings(
        shape=shape,
        rows=rows,
        tokens=tokens,
        checkpointing=bool(config.gradient_checkpointing),
        dtype="bfloat16" if half and (engine.zero_stage or engine.fsdp) else loaded,
        autocast=half and not (engine.zero_stage or engine.fsdp),
        flash_attention="flash" in (recipe.attention or ""),
        gpu=not recipe.training.get("use_cpu"),
        lora=None if lora is None else json.dumps(lora.to_dict(), default=sorted),  # peft keeps some lists as sets
    )
    upcast = not engine.zero_stage and (lora is not None or (engine.fsdp and half))  # by peft, or by accelerate
    return Setup(
        step=step,
        engine=engine,
        accumulation=schedule.accumulation * math.ceil(schedule.micro_batch / rows),
        generation=_generation(config, schedule, shape, engine, step.dtype),
        device=device,
        reference=config.beta != 0.0,
        loaded=loaded,
        trained="float32" if upcast else None,
        one_row=_one_row(recipe, config, schedule),
    )


def _refuse_what_no_plan_covers(recipe: Recipe, engine: Engine) -> None:
    if recipe.model.load_in_4bit or recipe.model.load_in_8bit:
        raise UserError("There is no plan for quantized weights: remove `load_in_4bit` and `load_in_8bit`.")
    if recipe.attention == "eager":
        raise UserError(
            "There is no plan for `attn_implementation: eager`, which keeps every attention score: use sdpa."
        )
    if engine.fsdp and recipe.training.get("use_cpu"):
        raise UserError("There is no plan for FSDP2 on a CPU: accelerate starts it on GPUs only.")


def _generation(config: CESConfig, schedule: Schedule, shape: ModelShape, engine: Engine, dtype: str) -> Generation:
    colocated = bool(config.use_vllm) and config.vllm_mode == "colocate"
    server = bool(config.use_vllm) and not colocated
    parallel = config.vllm_tensor_parallel_size if colocated else 1
    if engine.processes % parallel:
        raise UserError(
            f"`vllm_tensor_parallel_size` is {parallel}, and {engine.processes} GPUs are no multiple of it: choose a "
            "divisor."
        )
    # TRL asks a server for the whole rollout in one request.
    answers = schedule.responses if server else schedule.responses // engine.processes * parallel
    kv_width = 2 if config.use_vllm or dtype == "bfloat16" else 4
    return Generation(
        vllm=colocated,
        utilization=config.vllm_gpu_memory_utilization,
        sleeps=config.vllm_enable_sleep_mode,
        tensor_parallel=parallel,
        sequences=answers,
        kv_bytes=kv_width * _kv_numbers(shape.config(), parallel),
        server=server,
        corrected=bool(config.use_vllm and config.vllm_importance_sampling_correction),
    )


def _one_row(recipe: Recipe, config: CESConfig, schedule: Schedule) -> tuple[tuple[str, str], ...]:
    if not config.rows_are_independent():
        return ()
    fields = {"per_device_train_batch_size": 1}
    if recipe.script.responses_per_step is None:  # else the other two follow
        fields["gradient_accumulation_steps"] = schedule.accumulation * schedule.micro_batch
        if recipe.training.get("steps_per_generation") is not None:
            fields["steps_per_generation"] = recipe.training["steps_per_generation"] * schedule.micro_batch
    return tuple((name, str(value)) for name, value in fields.items())


def _kv_numbers(config: Any, parallel: int) -> int:
    """Numbers per token in a device's key-value cache if no layer slides its window; it holds one head at least."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * max(heads // parallel, 1) * width
