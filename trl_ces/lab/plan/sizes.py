"""Compute a run's rollouts and steps, checkpoint sizes and model shape without loading the model."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...config import CESConfig
from ...support.errors import UserError, first_line, hub_errors
from ...support.hub import is_local, nearest_model, try_hub_once
from ...train.data import check_rows

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Schedule:
    """Sizes and counts of a run, for all processes together unless noted."""

    completions: int  # completions trained on per rollout; dynamic sampling may generate more
    prompts: int  # prompts per rollout
    completions_per_step: int  # completions per optimizer step
    passes: int  # training forward passes per process and rollout
    micro_batch: int  # completions per forward pass and process
    accumulation: int  # forward passes per process and optimizer step
    rounds: int  # maximum number of generation rounds per rollout; above 1 with dynamic sampling
    steps: int | None  # optimizer steps of the run; `None` if the number of rows is unknown
    rollouts: int | None  # rollouts of the run; `None` if `steps` is `None`

    @property
    def updates(self) -> int:
        """Optimizer steps per rollout."""
        return math.ceil(self.passes / self.accumulation)

    @property
    def policy(self) -> str:
        """Description of the updates as on- or off-policy."""
        if self.updates == 1:
            return "on-policy"
        return f"off-policy ({self.updates - 1} of {self.updates} updates)"


def make_schedule(config: CESConfig, processes: int, rows: int | None) -> Schedule:
    """Compute the schedule of TRL's sampler and the Trainer; `config` comes from [`Recipe.check_training`]."""
    completions = int(config.generation_batch_size or 0)
    prompts = completions // cast(int, config.num_generations)
    if rows is not None:
        check_rows(rows, prompts)
    accumulation = config.gradient_accumulation_steps
    passes = int(config.steps_per_generation or 1) * config.num_iterations
    steps = config.max_steps if config.max_steps > 0 else None
    if steps is None and rows is not None:
        # The sampler drops an incomplete last rollout; the Trainer rounds up the steps per epoch and the total.
        steps = math.ceil(config.num_train_epochs * max(math.ceil(rows // prompts * passes / accumulation), 1))
    return Schedule(
        completions=completions,
        prompts=prompts,
        completions_per_step=config.per_device_train_batch_size * accumulation,
        passes=passes,
        micro_batch=config.per_device_train_batch_size // processes,
        accumulation=accumulation,
        rounds=config.dynamic_sampling_max_rounds if config.dynamic_sampling else 1,
        steps=steps,
        rollouts=None if steps is None else math.ceil(steps * accumulation / passes),
    )


@dataclass(frozen=True)
class Disk:
    """Disk space of a run's checkpoints and final model."""

    model: int  # bytes of the model, or of its adapter
    checkpoint: int  # bytes of a checkpoint, which contains the model and the training state
    saves: int | None  # number of checkpoints that the run writes; `None` if unknown
    limit: int | None  # `save_total_limit`

    @property
    def max_checkpoints(self) -> int | None:
        """Maximum number of checkpoints on disk; the Trainer writes a new checkpoint before it deletes an old one."""
        if self.limit is None or self.saves is None:
            return self.saves if self.limit is None else self.limit + 1
        return min(self.saves, self.limit + 1)

    @property
    def peak(self) -> int:
        """Peak disk usage in bytes, including the final model; an unknown number of checkpoints counts as 1."""
        on_disk = 1 if self.max_checkpoints is None else self.max_checkpoints
        remaining = on_disk if self.limit is None else min(on_disk, self.limit)
        return max(on_disk * self.checkpoint, remaining * self.checkpoint + self.model)


def plan_disk(
    config: CESConfig,
    steps: int | None,
    *,
    weights: int,
    trained: int,
    width: int,
    zero_stage: int = 0,
    fsdp: bool = False,
) -> Disk:
    """
    Compute the number and size of the checkpoints of a run of `steps` optimizer steps.

    According to the source code of transformers 5.23 (`Trainer._save_checkpoint`), accelerate 1.15 and DeepSpeed
    0.19.8, a checkpoint contains the model or adapter in the dtype of the weights, and AdamW's two moments in the
    dtype of the `trained` weights, with `width` bytes per value. DeepSpeed writes 16-bit weights, float32 moments and
    float32 master weights. FSDP2, and DeepSpeed below stage 3, also write a second copy of the weights.
    """
    saved_weights = weights if trained == weights else trained
    model = saved_weights * (2 if zero_stage else width)
    states = trained * (12 if zero_stage else 2 * width)
    if config.save_only_model:
        states = 0
    elif fsdp or zero_stage in (1, 2):
        states += model
    saves: int | None = 0
    if config.save_strategy == "epoch":  # with `max_steps`, the number of epochs is unknown
        saves = None if config.max_steps > 0 else math.ceil(config.num_train_epochs)
    elif config.save_strategy != "no" and steps is None:
        saves = None
    elif config.save_strategy != "no" and steps is not None:
        interval = config.save_steps if config.save_steps >= 1 else math.ceil(config.save_steps * steps)
        saves = math.ceil(steps / interval)  # the Trainer also saves at the last step
    return Disk(model, model + states, saves, config.save_total_limit)


def shape_of(model_type: str, tied: bool, *numbers: int) -> dict[str, Any]:
    """Return a model's config.json as a mapping."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return {"model_type": model_type, "tie_word_embeddings": tied} | dict(
        zip((*names, "vocab_size"), numbers, strict=True)
    )


# These shapes are copied from the Hub, so that the shipped recipes can be planned offline. DeepSeek's distilled Qwen
# models have the shapes of Qwen2.5-Math with untied embeddings.
KNOWN_SHAPES = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": shape_of("qwen2", False, 1536, 8960, 28, 12, 2, 151936),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": shape_of("qwen2", False, 3584, 18944, 28, 28, 4, 152064),
    "HuggingFaceTB/SmolLM2-135M-Instruct": shape_of("llama", True, 576, 1536, 30, 9, 3, 49152),
}
# This shape belongs to the quickstart's base model, which is built on first use.
BUILT_SHAPES = {
    "trl_ces.lab.tasks.arithmetic_model.make_base_model": shape_of("llama", True, 96, 256, 3, 4, 4, 18),
}


@dataclass(frozen=True)
class ModelShape:
    """A model's configuration."""

    settings: str  # JSON with `model_type`; a string, because cache keys must be hashable

    def config(self) -> "PretrainedConfig":
        """Return a new configuration object."""
        from transformers import AutoConfig

        return AutoConfig.for_model(**json.loads(self.settings))


def find_shape(name: str, builder: str | None = None, config_file: str | None = None) -> ModelShape:
    """Return the shape of the model `name`; `config_file` is the model's config.json or the directory of that file."""
    from transformers import AutoConfig

    folder = Path(config_file or name).expanduser()
    if config_file is None:
        if name in KNOWN_SHAPES and not folder.exists():
            return ModelShape(json.dumps(KNOWN_SHAPES[name]))
        if builder in BUILT_SHAPES:
            return ModelShape(json.dumps(BUILT_SHAPES[str(builder)]))
        try_hub_once(name)
    config_errors: tuple[type[Exception], ...] = (*hub_errors(), ValueError, KeyError)
    try:
        if is_local(config_file or name) and not folder.exists():
            raise FileNotFoundError("this path does not exist")
        config = AutoConfig.from_pretrained(folder if folder.exists() else config_file or name)
    except config_errors as error:
        hint = nearest_model(name) if is_local(name) else ""
        raise UserError(
            f"Cannot read the model configuration of {config_file or name!r} ({first_line(error)}): set "
            f"`--model_config` to the model's config.json or to the directory of that file.{hint}"
        ) from error
    return ModelShape(json.dumps(config.to_diff_dict() | {"model_type": config.model_type}, default=str))
