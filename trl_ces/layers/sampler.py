"""DAPO's dynamic sampling, arXiv 2503.14476, section 3.2: draws prompts until the batch is full of mixed groups.

A group whose completions are all correct or all wrong has A = 0. It is dropped, and the next prompts of the dataset
replace it. This file decides which prompts come next and which groups are kept; the trainer generates. Every process
has the same groups, so all decide alike and make the same number of collective calls.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from datasets import IterableDataset

from ..methods.groups import group_extremes

logger = logging.getLogger(__name__)

# In the checkpoint's folder: the position in the prompt stream.
STREAM_FILE = "dynamic_sampling.json"


class PromptStream:
    """
    An endless stream of a dataset's prompts, epoch after epoch; `position`, the prompts used so far, is its state.

    The order is that of TRL's `RepeatSampler`: one generator, seeded with `seed`, and a new permutation per epoch, or
    the dataset's order without `shuffle`. Unlike there, the last prompts of an epoch come even if they do not fill a
    batch.
    """

    def __init__(self, num_prompts: int, seed: int, shuffle: bool):
        self.num_prompts = num_prompts
        self.seed = seed
        self.shuffle = shuffle
        self.position = 0

    def ahead(self, count: int) -> list[int]:
        """Row numbers of the next `count` prompts, without moving `position`."""
        places = range(self.position, self.position + count)
        return [self._order(place // self.num_prompts)[place % self.num_prompts] for place in places]

    def _order(self, epoch: int) -> Sequence[int]:
        return _shuffled(self.num_prompts, self.seed, epoch) if self.shuffle else range(self.num_prompts)


@lru_cache(maxsize=2)
def _shuffled(num_prompts: int, seed: int, epoch: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epoch):
        torch.randperm(num_prompts, generator=generator)
    return torch.randperm(num_prompts, generator=generator).tolist()


def informative_groups(accuracy: torch.Tensor, group_size: int) -> torch.Tensor:
    """
    Which groups differ in accuracy (DAPO, Eq. 11), shape (N / G,), bool.

    `accuracy` has shape (N,), groups contiguous, NaN without a verdict. A group with fewer than two verdicts is not
    informative.
    """
    lowest, highest = group_extremes(accuracy, group_size)
    return highest > lowest


def round_size(wanted: int, kept: int, decided: int, unit: int) -> int:
    """
    Prompts of the next round: as many as should fill a batch of `wanted`, given the share of groups kept so far.

    More than are missing, because a round takes as long as its longest completion, however few there are. At most
    `wanted`, and a multiple of `unit`, so that the completions split evenly over the processes.
    """
    if decided == 0:
        return wanted
    expected = math.ceil((wanted - kept) * decided / max(kept, 1))
    return min(wanted, math.ceil(expected / unit) * unit)


class InformativeBatch:
    """
    Collects the groups of one rollout, in stream order, until `wanted` are informative.

    `num_processes` share the `group_size` completions of each prompt of a round.
    """

    def __init__(self, wanted: int, group_size: int, num_processes: int):
        self.wanted = wanted
        self.rounds = 0
        # Indices in the order of judgement.
        self.kept: list[int] = []
        self.dropped: list[int] = []
        self._unit = num_processes // math.gcd(group_size, num_processes)
        self._groups: dict[int, Any] = {}

    @property
    def decided(self) -> int:
        return len(self.kept) + len(self.dropped)

    @property
    def missing(self) -> int:
        return self.wanted - len(self.kept)

    def next_size(self) -> int:
        """Prompts of the next round."""
        return round_size(self.wanted, len(self.kept), self.decided, self._unit)

    def judge(self, informative: Sequence[bool], groups: Sequence[Any]) -> int:
        """
        Keeps or drops the groups of a round, in order, until the batch is full.

        Returns how many were judged. The rest is not needed: their prompts go back to the stream.
        """
        before = self.decided
        self.rounds += 1
        for teaches, group in zip(informative, groups, strict=True):
            if not self.missing:
                break
            place = self.decided
            (self.kept if teaches else self.dropped).append(place)
            # Only the first dropped groups can be needed, to fill the batch.
            if teaches or len(self.dropped) <= self.missing:
                self._groups[place] = group
        return self.decided - before

    def groups(self) -> list[Any]:
        """The full batch: the kept groups, filled up with the first dropped ones; in order of judgement."""
        return [self._groups[place] for place in sorted(self.kept + self.dropped[: self.missing])]

    def metrics(self) -> dict[str, float]:
        """The metrics that follow from the groups alone."""
        return {
            "dynamic_sampling/rounds": self.rounds,
            "dynamic_sampling/dropped_groups": len(self.dropped) / self.decided,
            "dynamic_sampling/prompts": self.decided,
            "dynamic_sampling/uninformative_groups": self.missing / self.wanted,
        }


class DynamicSampler:
    """
    Draws the prompts of a training run and selects the groups of its generation batches.

    Args:
        stream (`PromptStream`): The prompts.
        wanted (`int`): P, groups in a generation batch.
        group_size (`int`): G, completions per prompt.
        max_rounds (`int`): Rounds of generation per batch, >= 1.
        num_processes (`int`): Processes that share the completions of a round.
        warns (`bool`): Whether this process logs warnings.
    """

    def __init__(
        self,
        stream: PromptStream,
        wanted: int,
        group_size: int,
        max_rounds: int,
        num_processes: int,
        warns: bool = True,
    ):
        self.stream = stream
        self.wanted = wanted
        self.group_size = group_size
        self.max_rounds = max_rounds
        self.num_processes = num_processes
        self.warns = warns
        self._rollout_start = 0  # the stream's position before the latest batch
        self._warned = False

    def sample(
        self, generate: Callable[[list[int]], tuple[Sequence[bool], Sequence[Any]]]
    ) -> tuple[list[Any], dict[str, float]]:
        """
        Runs rounds until the batch has enough informative groups, at most `max_rounds`.

        `generate` takes the row numbers of a round's prompts; it returns which of their groups are informative, and
        what to keep of each. Returns that of the P groups, and the batch's metrics.
        """
        batch = InformativeBatch(self.wanted, self.group_size, self.num_processes)
        self._rollout_start = self.stream.position
        first_round_end = 0.0
        while batch.missing and batch.rounds < self.max_rounds:
            informative, groups = generate(self.stream.ahead(batch.next_size()))
            # Only judged groups are used up: the prompts after the last needed group come again.
            self.stream.position += batch.judge(informative, groups)
            first_round_end = first_round_end or time.perf_counter()
        extra_seconds = time.perf_counter() - first_round_end if batch.rounds > 1 else 0.0
        metrics = {
            **batch.metrics(),
            "dynamic_sampling/extra_generation_time": extra_seconds,
            "dynamic_sampling/epoch": self.stream.position / self.stream.num_prompts,
        }
        self._warn_of_filling(batch)
        return batch.groups(), metrics

    def _warn_of_filling(self, batch: InformativeBatch):
        if batch.missing and not self._warned:
            self._warned = True
            if self.warns:
                logger.warning(
                    "Dynamic sampling found %d of %d informative groups in %d rounds (`dynamic_sampling_max_rounds`), "
                    "so groups of equal accuracy fill the batch. Logged once; `dynamic_sampling/uninformative_groups` "
                    "is their share. Allow more rounds, raise `num_generations`, or train on problems that the model "
                    "sometimes solves.",
                    len(batch.kept),
                    batch.wanted,
                    batch.rounds,
                )

    def save(self, folder: Path, inside_rollout: bool):
        """
        Writes the state into the checkpoint's `folder`.

        If the batch has steps left (`inside_rollout`), a run resumed without it generates it again, so its prompts
        must be drawn again.
        """
        folder.mkdir(parents=True, exist_ok=True)
        position = self._rollout_start if inside_rollout else self.stream.position
        (folder / STREAM_FILE).write_text(json.dumps({"position": position, "after_rollout": self.stream.position}))

    def load(self, folder: Path, planned_rollouts: int, with_rollout: bool = False):
        """
        Reads the state from the checkpoint's `folder`; if it has none, skips `planned_rollouts` batches.

        `with_rollout`: the batch in progress was saved too.
        """
        file = folder / STREAM_FILE
        if file.exists():
            state = json.loads(file.read_text())
            self.stream.position = state["after_rollout" if with_rollout else "position"]
            return
        self.stream.position = planned_rollouts * self.wanted
        if self.warns:
            logger.warning(
                "%s does not exist, so the checkpoint was saved without dynamic sampling: prompts continue at number "
                "%d, as if no group had been dropped.",
                file,
                self.stream.position,
            )


def check_can_be_drawn(dataset: Any):
    """Raises `ValueError` if `dataset` is streamed, or contains images, whose tensors are not per-row."""
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            "`train_dataset` is an IterableDataset, but `dynamic_sampling` returns to prompts that it did not need: "
            "pass a Dataset, or set `dynamic_sampling=False`."
        )
    pictures = {"image", "images"} & set(dataset.column_names if dataset is not None else ())
    if pictures:
        raise ValueError(
            f"`train_dataset` has the column {sorted(pictures)[0]!r}, but `dynamic_sampling` does not support "
            "images: set `dynamic_sampling=False`."
        )
