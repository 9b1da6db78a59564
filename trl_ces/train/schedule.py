"""A run's rollouts and optimizer steps, counted as TRL's sampler and transformers' Trainer do."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import cast

from ..config import CESConfig
from .recipe import Recipe


@dataclass(frozen=True)
class Schedule:
    """A run's counts, over all processes."""

    responses: int  # completions trained on per rollout; dynamic sampling may generate more
    prompts: int  # prompts per rollout
    responses_per_step: int  # completions per optimizer step
    uses: int  # forward passes of one process in the steps of a rollout
    micro_batch: int  # completions per forward pass of one process
    accumulation: int  # forward passes per step of one process
    rounds: int  # maximum rounds of generation per rollout; above 1 with dynamic sampling
    steps: int | None  # optimizer steps of the run; `None` if the number of rows is unknown
    rollouts: int | None  # rollouts of the run; `None` likewise

    @property
    def updates(self) -> int:
        """Optimizer steps per rollout."""
        return math.ceil(self.uses / self.accumulation)

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
    """The counts of a [`whole_run`] on that many processes, over `rows` training prompts."""
    responses = int(config.generation_batch_size or 0)
    prompts = responses // cast(int, config.num_generations)
    steps_per_generation = int(config.steps_per_generation or 1)
    accumulation = config.gradient_accumulation_steps
    uses = steps_per_generation * config.num_iterations
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
        uses=uses,
        micro_batch=config.per_device_train_batch_size // processes,
        accumulation=accumulation,
        rounds=config.dynamic_sampling_max_rounds if config.dynamic_sampling else 1,
        steps=steps,
        rollouts=None if steps is None else math.ceil(steps * accumulation / uses),
    )
