"""Dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): draw prompts until every group of the batch is informative.

With accuracy as the only reward, a group with only correct or only wrong completions has A = 0. Such groups are
dropped, and more prompts are drawn from the dataset. This module selects the prompts and the groups to keep; the
trainer generates the completions. Every process sees the same groups, so all processes make the same decisions and the
same number of collective calls.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import torch
from datasets import IterableDataset

from ..methods.groups import group_extremes

logger = logging.getLogger(__name__)


class PromptStream:
    """
    Endless stream of a dataset's prompts, in the order of TRL's `RepeatSampler`, epoch after epoch.

    Unlike TRL's sampler, it includes the last prompts of an epoch even if they do not fill a batch.
    """

    def __init__(self, num_prompts: int, seed: int, shuffle: bool):
        self.num_prompts = num_prompts
        self.seed = seed
        self.shuffle = shuffle
        self.position = 0

    def peek(self, count: int) -> list[int]:
        """Return the row numbers of the next `count` prompts, without changing `position`."""
        places = [divmod(place, self.num_prompts) for place in range(self.position, self.position + count)]
        return [
            _permutation(self.num_prompts, self.seed, epoch)[row] if self.shuffle else row for epoch, row in places
        ]


@lru_cache(maxsize=2)
def _permutation(num_prompts: int, seed: int, epoch: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epoch):
        torch.randperm(num_prompts, generator=generator)
    return torch.randperm(num_prompts, generator=generator).tolist()


def informative_groups(accuracy: torch.Tensor, group_size: int) -> torch.Tensor:
    """Return which groups have scored completions of different accuracy (DAPO, Eq. 11). Shape (N / G,), bool."""
    lowest, highest = group_extremes(accuracy, group_size)
    return highest > lowest


def round_size(batch_size: int, num_kept: int, num_drawn: int, unit: int) -> int:
    """
    Return how many prompts to draw to fill a batch of `batch_size` groups if the share of kept groups stays the same.

    The result is a multiple of `unit`, so that completions can be split evenly over processes, and at most
    `batch_size`.
    """
    if num_drawn == 0:
        return batch_size
    expected = math.ceil((batch_size - num_kept) * num_drawn / max(num_kept, 1))
    return min(batch_size, math.ceil(expected / unit) * unit)


class DynamicSampler:
    """
    Draw the prompts of a training run and select the groups of its generation batches. A batch has `batch_size` groups
    of `group_size` completions, generated in at most `max_rounds` rounds.
    """

    def __init__(
        self,
        stream: PromptStream,
        batch_size: int,
        group_size: int,
        max_rounds: int,
        num_processes: int,
        warns: bool = True,
    ):
        self.stream = stream
        self.batch_size = batch_size
        self.max_rounds = max_rounds
        self._unit = num_processes // math.gcd(group_size, num_processes)
        self.warns = warns
        self._rollout_start = 0  # the stream's position before the latest batch
        self._warned = False

    def sample(
        self, generate: Callable[[list[int]], tuple[Sequence[bool], Sequence[Any]]]
    ) -> tuple[list[Any], dict[str, float]]:
        """
        Return the data of the batch's groups, and the batch's metrics.

        `generate` takes the row numbers of a round's prompts. It returns whether each group is informative, and the
        groups' data.
        """
        self._rollout_start = self.stream.position
        kept_groups: list[tuple[int, Any]] = []  # (position, data) of each group
        dropped_groups: list[tuple[int, Any]] = []
        rounds, first_round_end = 0, 0.0
        while len(kept_groups) < self.batch_size and rounds < self.max_rounds:
            size = round_size(self.batch_size, len(kept_groups), len(kept_groups) + len(dropped_groups), self._unit)
            informative, groups = generate(self.stream.peek(size))
            rounds += 1
            for is_informative, group in zip(informative, groups, strict=True):
                if len(kept_groups) == self.batch_size:  # later prompts are drawn again for the next batch
                    break
                if not is_informative and len(kept_groups) + len(dropped_groups) >= self.batch_size:
                    group = None  # free the data: `batch_size` groups are enough to fill the batch
                (kept_groups if is_informative else dropped_groups).append((self.stream.position, group))
                self.stream.position += 1
            first_round_end = first_round_end or time.perf_counter()
        missing, num_drawn = self.batch_size - len(kept_groups), len(kept_groups) + len(dropped_groups)
        batch = sorted(kept_groups + dropped_groups[:missing], key=itemgetter(0))
        if missing:
            self._warn_about_filling(len(kept_groups), rounds)
        return [group for _, group in batch], {
            "dynamic_sampling/rounds": rounds,
            "dynamic_sampling/dropped_groups": len(dropped_groups) / num_drawn,
            "dynamic_sampling/prompts": num_drawn,
            "dynamic_sampling/uninformative_groups": missing / self.batch_size,
            "dynamic_sampling/extra_generation_time": time.perf_counter() - first_round_end if rounds > 1 else 0.0,
            "dynamic_sampling/epoch": self.stream.position / self.stream.num_prompts,
        }

    def _warn_about_filling(self, num_kept: int, rounds: int):
        if self.warns and not self._warned:
            self._warned = True
            logger.warning(
                "Dynamic sampling found only %d informative groups for a batch of %d in %d rounds "
                "(`dynamic_sampling_max_rounds`), so the batch is filled with groups whose completions all have the "
                "same accuracy (their share is logged as `dynamic_sampling/uninformative_groups`). Allow more rounds, "
                "raise `num_generations`, or use problems that the model sometimes solves. This warning is logged "
                "once.",
                num_kept,
                self.batch_size,
                rounds,
            )

    def state_dict(self, inside_rollout: bool) -> dict[str, int]:
        """Return the positions to save. Inside a rollout, the batch is generated again if it cannot be restored."""
        position = self._rollout_start if inside_rollout else self.stream.position
        return {"position": position, "after_rollout": self.stream.position}

    def load_state_dict(self, state: dict[str, int], with_rollout: bool = False):
        """Restore the position; `with_rollout`: whether the saved batch was also restored."""
        self.stream.position = state["after_rollout" if with_rollout else "position"]
        self._rollout_start = state["position"]


def check_dataset(dataset: Any):
    """Raise `ValueError` if `dataset` is streamed, or contains images (image tensors cannot be indexed by row)."""
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            "`train_dataset` is an IterableDataset, but `dynamic_sampling` must be able to draw prompts again: "
            "pass a Dataset, or set `dynamic_sampling=False`."
        )
    image_columns = {"image", "images"} & set(dataset.column_names if dataset is not None else ())
    if image_columns:
        raise ValueError(
            f"`train_dataset` has the column {sorted(image_columns)[0]!r}, but `dynamic_sampling` does not support "
            "images: set `dynamic_sampling=False`."
        )
