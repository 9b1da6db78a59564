"""TRL's batch sizes from the responses of a step and of a rollout."""

from dataclasses import dataclass

from ..support.errors import UserError


@dataclass(frozen=True)
class BatchSizes:
    """TRL's three numbers for the responses of a step and of a rollout."""

    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    steps_per_generation: int


def batch_sizes(
    responses_per_step: int, responses_per_rollout: int, num_processes: int, micro_batch_size: int = 2
) -> BatchSizes:
    """TRL's batch sizes that keep a step and a rollout the same on any number of processes."""
    if responses_per_step % num_processes:
        usable = [n for n in range(1, responses_per_step + 1) if responses_per_step % n == 0]
        raise UserError(
            f"`responses_per_step` is {responses_per_step} and {num_processes} processes cannot share it evenly "
            f"({responses_per_step} / {num_processes} = {responses_per_step / num_processes:g} responses each): "
            f"start {', '.join(map(str, usable))} processes with --num_processes, or change `responses_per_step`."
        )
    if responses_per_rollout % responses_per_step:
        raise UserError(
            f"`responses_per_rollout` is {responses_per_rollout}, "
            f"which is {responses_per_rollout / responses_per_step:g} steps of {responses_per_step} responses: "
            "make it a multiple of `responses_per_step`."
        )
    share = responses_per_step // num_processes
    per_device = max(size for size in range(1, min(share, micro_batch_size) + 1) if share % size == 0)
    return BatchSizes(per_device, share // per_device, responses_per_rollout // (per_device * num_processes))
