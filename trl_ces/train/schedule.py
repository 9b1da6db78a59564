"""A run's rollouts and optimizer steps, counted as TRL's sampler and transformers' Trainer do."""

import math
from dataclasses import dataclass
from typing import cast

from ..config import CESConfig
from ..support.errors import UserError


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


def check_rows(rows: int, prompts: int) -> None:
    """Refuses fewer rows than a rollout's prompts: the Trainer would make no step, and save the base model."""
    if rows < prompts:
        raise UserError(
            f"There are {rows} rows to train on, and a rollout takes {prompts} prompts: give more rows, or lower "
            "`responses_per_rollout` or `steps_per_generation`."
        )


def make_schedule(config: CESConfig, processes: int, rows: int | None) -> Schedule:
    """The counts of what [`Recipe.check_training`] gives for that many processes, over `rows` training prompts."""
    responses = int(config.generation_batch_size or 0)
    prompts = responses // cast(int, config.num_generations)
    if rows is not None:
        check_rows(rows, prompts)
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
