"""Arrange the rows of micro-batches by length, and split forward and backward passes to fit a token budget."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from accelerate.utils import DistributedType, gather_object

from .arrangement import arrange, piece_sizes, sort_by_length
from .padding import PaddingSupport, Span
from .rows import Padding, gather_rows

# Micro-batch key that holds the number of rows in each piece. A micro-batch without this key is a single piece.
PIECES = "piece_sizes"


def movable_entries(
    micro_batches: Sequence[dict[str, Any]], layout: dict[str, Padding | None], processes: int
) -> dict[str, bool]:
    """
    Return, for each entry, whether its rows can be moved. An entry must have one row per completion; with several
    processes, it must also be in `layout` or one-dimensional. `None` and 0-dimensional tensors are omitted.
    """
    movable: dict[str, bool] = {}
    for micro_batch in micro_batches:
        rows = micro_batch["prompt_ids"].size(0)
        for name, values in micro_batch.items():
            if values is None or (isinstance(values, torch.Tensor) and values.dim() == 0):
                continue
            has_rows = isinstance(values, torch.Tensor) and values.size(0) == rows
            # Processes may have padded an unknown tensor to different widths.
            is_known = name in layout or processes == 1 or (has_rows and values.dim() == 1)
            movable[name] = movable.get(name, True) and has_rows and is_known
    return movable


def arrange_rows(
    micro_batches: Sequence[dict[str, Any]],
    per_step: int,
    layout: dict[str, Padding | None],
    accelerator: Any,
    padding: PaddingSupport,
    budget: int | None = None,
    multiple: int = 1,
) -> list[dict[str, Any]]:
    """
    Move rows between the micro-batches of each optimizer step, and between processes; see [`arrange`].

    All entries must be movable (see [`movable_entries`]), and `micro_batches` must have the same number of rows. An
    optimizer step has `per_step` micro-batches. Row lengths are rounded up to a multiple of `multiple`. With a
    `budget`, this function also adds `PIECES`; see [`piece_sizes`].
    """
    names = [name for name, values in micro_batches[0].items() if values is not None and values.dim() > 0]
    processes, result = accelerator.num_processes, []
    for first in range(0, len(micro_batches), per_step):  # step by step, so that no device holds the entire rollout
        step_batches = micro_batches[first : first + per_step]
        rows = {name: torch.cat([batch[name] for batch in step_batches]) for name in names}
        if processes > 1:
            rows = gather_rows(rows, layout, accelerator)
        prompts = rows["prompt_mask"].sum(1) if padding.left else rows["prompt_mask"].size(1)
        lengths = round_up((prompts + rows["completion_mask"].sum(1)).tolist(), multiple)
        assignment = arrange(lengths, processes, per_step, padding.pack, in_pieces=budget is not None)
        for step, old in enumerate(step_batches):
            shares = [process[step] for process in assignment]
            numbers = torch.tensor(shares[accelerator.process_index], device=rows["prompt_ids"].device)
            batch = {**old, **{name: values[numbers] for name, values in rows.items()}}
            if budget is not None:
                batch[PIECES] = piece_sizes(
                    [[lengths[row] for row in share] for share in shares], budget, padding.pack
                )
            result.append(batch)
    return result


def round_up(lengths: Sequence[int], multiple: int) -> list[int]:
    """Round each length up to a multiple of `multiple`."""
    return [-(-length // multiple) * multiple for length in lengths]


def pieces(micro_batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a micro-batch into its `PIECES`; values that are not per-row are included in every piece."""
    sizes = micro_batch.get(PIECES, [])
    if len(sizes) < 2:
        yield micro_batch
        return
    start = 0
    for size in sizes:
        yield {
            name: values[start : start + size] if isinstance(values, torch.Tensor) and values.dim() > 0 else values
            for name, values in micro_batch.items()
            if name != PIECES
        }
        start += size


def forward_batches(
    spans: Sequence[Span],
    batch_size: int,
    sort: bool,
    padding: PaddingSupport,
    budget: int | None = None,
    multiple: int = 1,
) -> list[list[int]]:
    """
    Return the row indices of each forward pass that computes old or reference log-probs, without gradients.

    Every rank has the same number of rows. Without a `budget` of token positions, a forward pass has `batch_size`
    rows.
    """
    lengths = round_up([span.end - span.start if padding.left else span.end for span in spans], multiple)
    order = sort_by_length(lengths) if sort else list(range(len(lengths)))
    if budget is None:
        return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    sizes = piece_sizes(gather_object([[lengths[row] for row in order]]), budget, padding.pack)
    remaining = iter(order)
    return [[next(remaining) for _ in range(size)] for size in sizes]


@contextmanager
def without_sync(accelerator: Any, model: Any) -> Iterator[None]:
    """Accumulate gradients without reducing them, except under FSDP, where they would stay unsharded."""
    state, synced = accelerator.gradient_state, accelerator.sync_gradients
    use_no_sync = synced and accelerator.distributed_type != DistributedType.FSDP
    state._set_sync_gradients(False)
    try:
        with accelerator.no_sync(model) if use_no_sync else nullcontext():
            yield
    finally:
        state._set_sync_gradients(synced)
