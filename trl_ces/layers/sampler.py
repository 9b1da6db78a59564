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
    An endless stream of a dataset's prompts, epoch after epoch.

    The order is that of TRL's `RepeatSampler`: one seeded generator, a new permutation per epoch. Unlike there, the
    last prompts of an epoch come even if they do not fill a batch. `position` is the whole state.

    Args:
        num_prompts (`int`): Size of the dataset.
        seed (`int`): Seed of the order.
        shuffle (`bool`): Whether to shuffle; else each epoch is in the dataset's order.

    Attributes:
        position (`int`): Prompts used so far, over all epochs. Set it to continue from there.
    """

    def __init__(self, num_prompts: int, seed: int, shuffle: bool):
        self.num_prompts = num_prompts
        self.seed = seed
        self.shuffle = shuffle
        self.position = 0
        self._orders: dict[int, list[int]] = {}  # of the two latest epochs
        self._passes = 0
        self._generator = torch.Generator()

    def ahead(self, count: int) -> list[int]:
        """Row numbers of the next `count` prompts, without moving `position`."""
        places = range(self.position, self.position + count)
        return [self._order(place // self.num_prompts)[place % self.num_prompts] for place in places]

    def _order(self, number: int) -> list[int] | range:
        if not self.shuffle:
            return range(self.num_prompts)
        if number not in self._orders:
            if number < self._passes:
                self._passes = 0
            if self._passes == 0:
                self._generator.manual_seed(self.seed)
            while self._passes <= number:
                self._orders[self._passes] = torch.randperm(self.num_prompts, generator=self._generator).tolist()
                self._orders.pop(self._passes - 2, None)
                self._passes += 1
        return self._orders[number]


def informative_groups(accuracy: torch.Tensor, group_size: int) -> torch.Tensor:
    """
    Finds the informative groups: those whose completions differ in accuracy (DAPO, Eq. 11).

    Args:
        accuracy (`torch.Tensor`): (N,) float, accuracy rewards, NaN where there is none; groups contiguous.
        group_size (`int`): G, completions per prompt.

    Returns:
        `torch.Tensor`: (N / G,) bool. Completions without a verdict do not count; a group with fewer than two verdicts
        is not informative.
    """
    lowest, highest = group_extremes(accuracy, group_size)
    return highest > lowest


def round_size(wanted: int, kept: int, decided: int, unit: int) -> int:
    """
    Prompts of the next round: as many as should fill the batch, given the share of groups kept so far.

    More than are missing, because a round takes as long as its longest completion, however few there are.

    Args:
        wanted (`int`): Groups in a full batch, a multiple of `unit`.
        kept (`int`): Informative groups so far, fewer than `wanted`.
        decided (`int`): Groups judged so far.
        unit (`int`): Smallest number of prompts whose completions split evenly over the processes.

    Returns:
        `int`: A multiple of `unit`, at most `wanted`.
    """
    if decided == 0:
        return wanted
    expected = math.ceil((wanted - kept) * decided / max(kept, 1))
    return min(wanted, math.ceil(expected / unit) * unit)


class InformativeBatch:
    """
    Collects the groups of one rollout, in stream order, until enough are informative.

    Args:
        wanted (`int`): P, groups in a full batch.
        group_size (`int`): G, completions per prompt.
        num_processes (`int`): Processes that share the completions of a round.
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

        Args:
            informative (`Sequence[bool]`): One per group of the round.
            groups (`Sequence`): What to keep of each group.

        Returns:
            `int`: Groups judged. The rest is not needed: their prompts go back to the stream.
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
        warns (`bool`, *optional*, defaults to `True`): Whether this process logs warnings.
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

        Args:
            generate (`Callable`): Takes the row numbers of a round's R prompts; returns which of the R groups are
                informative, and what to keep of each.

        Returns:
            `tuple[list, dict]`: What `generate` returned for each of the P groups, and the batch's metrics.
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
        Writes the state into the checkpoint's `folder`, creating it if missing.

        Args:
            folder (`Path`): The checkpoint.
            inside_rollout (`bool`): Whether the latest batch has steps left. A run resumed without that batch
                generates it again, so its prompts must be drawn again.
        """
        folder.mkdir(parents=True, exist_ok=True)
        position = self._rollout_start if inside_rollout else self.stream.position
        (folder / STREAM_FILE).write_text(json.dumps({"position": position, "after_rollout": self.stream.position}))

    def load(self, folder: Path, planned_rollouts: int, with_rollout: bool = False):
        """
        Reads the state from the checkpoint's `folder`; if it has none, skips `planned_rollouts` batches.

        Args:
            folder (`Path`): The checkpoint.
            planned_rollouts (`int`): Batches begun before the checkpoint.
            with_rollout (`bool`, *optional*, defaults to `False`): Whether the batch in progress was saved too.
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
