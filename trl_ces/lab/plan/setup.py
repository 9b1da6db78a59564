"""Convert a recipe and an accelerate configuration to a `Setup`, the input of the memory plan."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

from trl import get_peft_config

from ...config import CESConfig
from ...support.errors import UserError, first_line
from ...train.launch import whole_number
from ...train.recipe import Recipe
from .memory import WIDTHS, Engine, Generation, Setup
from .sizes import ModelShape, Schedule, make_schedule
from .step import StepSettings

# Prompt length in tokens, used if the recipe does not limit the total length of prompt and completion.
ASSUMED_PROMPT = 512
OFFLOADED = ("offload_optimizer", "offload_param")  # DeepSpeed fields


def read_engine(settings: dict[str, Any], processes: int, nodes: int | None = None) -> Engine:
    """Return the engine that an accelerate configuration selects."""
    nodes = whole_number(settings.get("num_machines", 1), "num_machines") if nodes is None else nodes
    if processes % nodes:
        raise UserError(
            f"`--gpus` is {processes}, which is not divisible by the number of nodes ({nodes}): set `--gpus` to the "
            "number of processes on all nodes, or change `--nodes`."
        )
    kind = settings.get("distributed_type") or "NO"
    fields = settings.get(f"{kind.lower()}_config") or {}
    if kind in ("NO", "MULTI_GPU", "MULTI_CPU"):
        return Engine(processes, nodes=nodes)
    if kind == "FSDP":
        # Use accelerate's defaults.
        shards, offloads = fields.get("fsdp_reshard_after_forward", True), fields.get("fsdp_offload_params", False)
        if fields.get("fsdp_version", 1) != 2 or offloads or not shards:
            raise UserError("For FSDP, `trl-ces plan` supports only FSDP2, with resharding and without offloading.")
        return Engine(processes, fsdp=True, nodes=nodes)
    if kind != "DEEPSPEED":
        raise UserError(f"`trl-ces plan` does not support `distributed_type: {kind}`: use DDP, DeepSpeed or FSDP2.")
    if (file := fields.get("deepspeed_config_file")) is not None:
        try:
            zero = dict(json.loads(Path(file).expanduser().read_text(encoding="utf-8")).get("zero_optimization") or {})
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"`deepspeed_config_file` is {file!r}, which cannot be read ({first_line(error)}): use a JSON "
                "file with DeepSpeed's configuration."
            ) from None
        fields = {f"{name}_device": (zero.get(name) or {}).get("device") for name in OFFLOADED}
        fields["zero_stage"] = zero.get("stage", 0)
    stage = fields.get("zero_stage", 2)
    if stage not in (1, 2, 3):
        raise UserError(f"`trl-ces plan` does not support DeepSpeed's ZeRO stage {stage!r}: choose 1, 2 or 3.")
    optimizer, weights = (fields.get(f"{name}_device") not in ("none", None) for name in OFFLOADED)
    return Engine(processes, stage, optimizer, weights, nodes=nodes)


def prompt_tokens(config: CESConfig, prompt_length: int | None) -> tuple[int, str]:
    """Return the maximum prompt length in tokens and its source."""
    if config.max_completion_length is None:
        raise UserError(
            "`max_completion_length` is null, but `trl-ces plan` needs a limit: set the length in tokens of the "
            "longest expected completion."
        )
    if prompt_length is not None:
        return prompt_length, "--prompt_length"
    if config.use_vllm and config.vllm_max_model_length is not None:
        available = config.vllm_max_model_length - config.max_completion_length
        return available, "vllm_max_model_length - max_completion_length"
    return ASSUMED_PROMPT, "assumed; set it with --prompt_length"


def make_setup(
    recipe: Recipe, config: CESConfig, shape: ModelShape, engine: Engine, prompt: int, device: int | None = None
) -> Setup:
    """Build a recipe's [`Setup`] for prompts of at most `prompt` tokens and a device of `device` bytes.

    `config` is the result of [`Recipe.check_training`] for the engine's number of processes.
    """
    if recipe.model.load_in_4bit or recipe.model.load_in_8bit or recipe.attention == "eager":
        raise UserError(
            "`trl-ces plan` does not support quantized weights or eager attention: remove `load_in_4bit` and "
            "`load_in_8bit`, and set `attn_implementation: sdpa`."
        )
    if (name := recipe.script.reward_model_name_or_path) is not None:
        raise UserError(
            f"`reward_model_name_or_path` is {name!r}, but `trl-ces plan` does not include reward models: set this "
            "field to null, and add the reward model's memory to the plan."
        )
    schedule = make_schedule(config, engine.processes, None)
    half, sharded = bool(config.bf16 or config.fp16), bool(engine.zero_stage or engine.fsdp)
    dtype_name = (
        str(shape.config().dtype).removeprefix("torch.") if recipe.model.dtype == "auto" else recipe.model.dtype
    )
    loaded_dtype = "float32" if dtype_name in (None, "float32") else "bfloat16"
    tokens = prompt + cast(int, config.max_completion_length)
    lora = get_peft_config(recipe.model)
    rows = schedule.micro_batch
    if config.max_tokens_per_micro_batch is not None:  # a row that exceeds the budget forms its own micro-batch
        rows = max(1, min(rows, config.max_tokens_per_micro_batch // tokens))
    step = StepSettings(
        shape=shape,
        rows=rows,
        tokens=tokens,
        checkpointing=bool(config.gradient_checkpointing),
        dtype="bfloat16" if half and sharded else loaded_dtype,
        autocast=half and not sharded,
        flash_attention="flash" in (recipe.attention or ""),
        gpu=not recipe.training.get("use_cpu"),
        lora=None if lora is None else json.dumps(lora.to_dict(), default=sorted),  # peft stores some lists as sets
    )
    frozen = step.dtype if engine.zero_stage else loaded_dtype
    upcast = not engine.zero_stage and (
        lora is not None or (engine.fsdp and half)
    )  # peft or accelerate casts trained weights to float32
    return Setup(
        step=step,
        engine=engine,
        accumulation=schedule.accumulation * math.ceil(schedule.micro_batch / rows),
        generation=_generation(config, schedule, shape, engine, step.dtype),
        frozen_bytes=WIDTHS[frozen],
        trained_bytes=WIDTHS["float32" if upcast else frozen],
        device=device,
        reference=config.beta != 0.0,
    )


def _generation(config: CESConfig, schedule: Schedule, shape: ModelShape, engine: Engine, dtype: str) -> Generation:
    colocated = bool(config.use_vllm) and config.vllm_mode == "colocate"
    parallel = config.vllm_tensor_parallel_size if colocated else 1
    if engine.processes % parallel:
        raise UserError(
            f"`vllm_tensor_parallel_size` is {parallel}: choose a divisor of the number of GPUs ({engine.processes})."
        )
    # Count the cached elements per token and device without sliding windows. Each device holds at least one head.
    text = shape.config().get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    elements = 2 * text.num_hidden_layers * max(heads // parallel, 1) * width
    return Generation(
        vllm=colocated,
        server=bool(config.use_vllm) and not colocated,
        utilization=config.vllm_gpu_memory_utilization,
        sleeps=config.vllm_enable_sleep_mode,
        tensor_parallel=parallel,
        sequences=schedule.completions // engine.processes * parallel,
        kv_bytes=elements * (2 if config.use_vllm or dtype == "bfloat16" else 4),
    )
