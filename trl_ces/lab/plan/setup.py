"""A checked recipe's schedule, and its `Setup`: everything that decides its memory."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, cast

from trl import get_peft_config

from ...config import CESConfig
from ...support.errors import UserError
from ...train.recipe import Recipe
from .engine import Engine
from .memory import Generation, Setup
from .shapes import ModelShape
from .step import StepSettings

# Tokens, where nothing in the recipe bounds prompt and answer.
ASSUMED_PROMPT = 512


@dataclass(frozen=True)
class Schedule:
    """A run's counts, over all processes."""

    responses: int  # responses trained on per rollout; dynamic sampling may generate more
    prompts: int  # prompts per rollout
    responses_per_step: int  # responses per optimizer step
    updates: int  # optimizer steps per rollout
    micro_batch: int  # responses per forward pass of one process
    accumulation: int  # forward passes per step of one process
    rounds: int  # maximum rounds of generation per rollout; above 1 with dynamic sampling
    steps: int | None  # optimizer steps of the run; `None` if the number of rows is unknown
    rollouts: int | None  # rollouts of the run; `None` likewise

    @property
    def policy(self) -> str:
        """On- or off-policy, in words."""
        if self.updates == 1:
            return "on-policy"
        return f"off-policy ({self.updates - 1} of {self.updates} updates)"


def whole_run(recipe: Recipe, processes: int) -> CESConfig:
    """The recipe's settings, with TRL's defaults, as if one process did the work of all."""
    recipe.check_training(processes)
    script = replace(recipe.script, responses_per_step=None, responses_per_rollout=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return replace(recipe, script=script, training=recipe.as_one_process(processes)).training_config(1)


def make_schedule(config: CESConfig, processes: int, rows: int | None) -> Schedule:
    """Count as TRL's sampler and transformers' Trainer do."""
    responses = int(config.generation_batch_size or 0)
    prompts = responses // cast(int, config.num_generations)
    steps_per_generation = int(config.steps_per_generation or 1)
    accumulation = config.gradient_accumulation_steps
    uses = steps_per_generation * config.num_iterations
    updates = max(math.ceil(uses / accumulation), 1)
    steps: int | None = None
    if config.max_steps > 0:
        steps = config.max_steps
    elif rows is not None:
        # The sampler drops prompts that do not fill a rollout; the Trainer rounds up twice.
        micro_steps = rows // prompts * uses
        steps = math.ceil(config.num_train_epochs * max(math.ceil(micro_steps / accumulation), 1))
    return Schedule(
        responses=responses,
        prompts=prompts,
        responses_per_step=config.per_device_train_batch_size * accumulation,
        updates=updates,
        micro_batch=config.per_device_train_batch_size // processes,
        accumulation=accumulation,
        rounds=config.dynamic_sampling_max_rounds if config.dynamic_sampling else 1,
        steps=steps,
        rollouts=None if steps is None else math.ceil(steps * accumulation / uses),
    )


def prompt_tokens(config: CESConfig, given: int | None) -> tuple[int, str]:
    """Tokens of the longest prompt to plan for, and where the number comes from."""
    answer = config.max_completion_length
    if answer is None:
        raise UserError("`max_completion_length` is null: a plan needs the longest answer.")
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
    loaded = "float32" if recipe.model.dtype in (None, "float32") else "bfloat16"
    tokens = prompt + cast(int, config.max_completion_length)
    lora = get_peft_config(recipe.model)
    rows = schedule.micro_batch
    if config.max_tokens_per_micro_batch is not None:  # a row above the budget is a piece of its own
        rows = max(1, min(rows, config.max_tokens_per_micro_batch // tokens))
    step = StepSettings(
        shape=shape,
        rows=rows,
        tokens=tokens,
        checkpointing=bool(config.activation_checkpointing),
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
        reference_model=config.beta != 0.0 and step.lora is None,
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
    # TRL asks a server for the whole rollout in one request.
    answers = schedule.responses if server else schedule.responses // engine.processes * parallel
    kv_width = 2 if config.use_vllm or dtype == "bfloat16" else 4
    return Generation(
        vllm=colocated,
        utilization=config.vllm_gpu_memory_utilization,
        sleeps=config.vllm_enable_sleep_mode,
        tensor_parallel=parallel,
        sequences=answers,
        kv_bytes=kv_width * _kv_numbers(shape.config()) // parallel,
        server=server,
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


def _kv_numbers(config: Any) -> int:
    """Numbers per token in the key-value cache if no layer slides its window: an upper bound."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * heads * width
