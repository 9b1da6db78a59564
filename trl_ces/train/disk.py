"""What a run writes to its disk, in bytes: how large a checkpoint is, and how many there are at the peak."""

import math
from dataclasses import dataclass

from ..config import CESConfig


@dataclass(frozen=True)
class Disk:
    """The checkpoints of a run, and the model at its end."""

    model: int  # bytes of the model, or of its adapter
    checkpoint: int  # bytes of a checkpoint: the model, and what goes on from it
    saves: int | None  # checkpoints that the run writes; `None` if its number of steps is unknown
    limit: int | None  # of which this many are kept, `save_total_limit`

    @property
    def most(self) -> int | None:
        """Checkpoints at a time: the Trainer deletes an old one after it has written the new one."""
        if self.limit is None or self.saves is None:
            return self.saves if self.limit is None else self.limit + 1
        return min(self.saves, self.limit + 1)

    @property
    def peak(self) -> int:
        """Bytes at the peak, as far as it is known: at its end the run also writes the model."""
        most = 1 if self.most is None else self.most
        kept = most if self.limit is None else min(most, self.limit)
        return max(most * self.checkpoint, kept * self.checkpoint + self.model)


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
    The checkpoints of a run of `steps` optimizer steps.

    What is in one, by the source of transformers 5.23 (`Trainer._save_checkpoint`), accelerate 1.15 and DeepSpeed
    0.19.8: the model, or the adapter, in the dtype of the weights; AdamW's two moments in the dtype of the weights
    that it moves. DeepSpeed writes 16-bit weights, and moments and master weights in float32; below stage 3 also a
    second copy of the weights, as FSDP2 does. The rollout that is saved with them is some megabytes.

    Args:
        config (`CESConfig`): The run's settings.
        steps (`int`, *optional*): Optimizer steps of the run.
        weights (`int`): Number of the model's weights.
        trained (`int`): Number of those that are trained: all, or an adapter's.
        width (`int`): Bytes of a trained weight as it is kept.
        zero_stage (`int`): DeepSpeed's stage, 0 without it.
        fsdp (`bool`): Whether FSDP2 shards the model.
    """
    saved = weights if trained == weights else trained
    model = saved * (2 if zero_stage else width)
    states = trained * (12 if zero_stage else 2 * width)
    if config.save_only_model:
        states = 0
    elif fsdp or zero_stage in (1, 2):
        states += model
    saves: int | None = 0
    if config.save_strategy == "epoch":  # of a number of steps, the epochs are not known
        saves = None if config.max_steps > 0 else math.ceil(config.num_train_epochs)
    elif config.save_strategy != "no" and steps is None:
        saves = None
    elif config.save_strategy != "no" and steps is not None:
        every = config.save_steps if config.save_steps >= 1 else math.ceil(config.save_steps * steps)
        saves = math.ceil(steps / every)  # the last step saves, too
    return Disk(model, model + states, saves, config.save_total_limit)
