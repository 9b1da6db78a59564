"""The micro-batches of a rollout, rearranged: rows of like length together, processes equally loaded.

And forwards and backwards over parts of a micro-batch, for those whose memory is to follow tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from accelerate.utils import DistributedType, gather_object

from .arrangement import arrange, by_length, piece_sizes
from .padding import PaddingSupport, Span
from .rows import NUM_ITEMS, Padding, gathered

# Of a micro-batch: how many of its rows go through the model at a time. Absent: all.
PIECES = "piece_sizes"


def can_be_arranged(micro_batch: dict[str, Any], layout: dict[str, Padding | None]) -> bool:
    """Whether each entry has a row for each completion and is known, so that rows can change places and processes."""
    rows = micro_batch["prompt_ids"].size(0)
    for name, values in micro_batch.items():
        if name == NUM_ITEMS or values is None:
            continue
        if name not in layout or not isinstance(values, torch.Tensor) or values.size(0) != rows:
            return False
    return True


def arranged(
    micro_batches: Sequence[dict[str, Any]],
    per_step: int,
    layout: dict[str, Padding | None],
    accelerator: Any,
    padding: PaddingSupport,
    budget: int | None = None,
    multiple: int = 1,
) -> list[dict[str, Any]]:
    """
    The same rows in other micro-batches of the same optimizer steps, see [`arrange`]. Processes exchange rows.

    Args:
        micro_batches (`Sequence[dict[str, Any]]`): This process's, equally many rows in each; see [`can_be_arranged`].
        per_step (`int`): Micro-batches in an optimizer step.
        layout (`dict[str, Padding | None]`): How each tensor is padded, see [`row_layout`].
        accelerator (`Accelerator`): Knows the processes.
        padding ([`PaddingSupport`]): What of the padding forwards do without.
        budget (`int`, *optional*): Token positions of a forward, see [`piece_sizes`], which go into `PIECES`.
        multiple (`int`, *optional*, defaults to 1): Rows of a forward are as long as a multiple of this.
    """
    names = [name for name, values in micro_batches[0].items() if name != NUM_ITEMS and values is not None]
    processes, result = accelerator.num_processes, []
    for first in range(0, len(micro_batches), per_step):  # a step at a time, lest a whole rollout lie on each device
        of_step = micro_batches[first : first + per_step]
        rows = {name: torch.cat([batch[name] for batch in of_step]) for name in names}
        if processes > 1:
            rows = gathered(rows, layout, accelerator)
        prompts = rows["prompt_mask"].sum(1) if padding.left else rows["prompt_mask"].size(1)
        lengths = rounded_up((prompts + rows["completion_mask"].sum(1)).tolist(), multiple)
        placed = arrange(lengths, processes, per_step, padding.pack, in_pieces=budget is not None)
        for step, old in enumerate(of_step):
            shares = [process[step] for process in placed]
            mine = torch.tensor(shares[accelerator.process_index], device=rows["prompt_ids"].device)
            batch = {**old, **{name: values[mine] for name, values in rows.items()}}
            if budget is not None:
                batch[PIECES] = piece_sizes(
                    [[lengths[row] for row in share] for share in shares], budget, padding.pack
                )
            result.append(batch)
    return result


def rounded_up(lengths: Sequence[int], multiple: int) -> list[int]:
    """Each to the next multiple."""
    return [-(-length // multiple) * multiple for length in lengths]


def pieces(micro_batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a micro-batch that go through the model at a time; each piece has what belongs to all rows."""
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


def rows_at_a_time(
    spans: Sequence[Span],
    batch_size: int,
    sort: bool,
    padding: PaddingSupport,
    accelerator: Any,
    budget: int | None = None,
    multiple: int = 1,
) -> list[list[int]]:
    """
    Which rows go through the model together where no gradient is wanted: for the old and the reference log-probs.

    Args:
        spans (`Sequence[Span]`): Of this process's rows, as many on each process.
        batch_size (`int`): Rows at a time, where there is no budget.
        sort (`bool`): Whether rows of like length go together.
        padding ([`PaddingSupport`]): What of the padding forwards do without.
        accelerator (`Accelerator`): Knows the processes.
        budget (`int`, *optional*): Token positions at a time, see [`piece_sizes`].
        multiple (`int`, *optional*, defaults to 1): Rows of a forward are as long as a multiple of this.
    """
    lengths = rounded_up([span.end - span.start if padding.left else span.end for span in spans], multiple)
    order = by_length(lengths) if sort else list(range(len(lengths)))
    if budget is None:
        return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    sizes = piece_sizes(gather_object([[lengths[row] for row in order]]), budget, padding.pack)
    places = iter(order)
    return [[next(places) for _ in range(size)] for size in sizes]


@contextmanager
def without_sync(accelerator: Any, model: Any) -> Iterator[None]:
    """
    Gradients add up on each process, as in all but the last micro-batch of an optimizer step.

    Not under FSDP: there, what is not synchronized is kept whole on each device. Each piece is reduced instead.
    """
    state, synced = accelerator.gradient_state, accelerator.sync_gradients
    held = synced and accelerator.distributed_type != DistributedType.FSDP
    state._set_sync_gradients(False)
    try:
        with accelerator.no_sync(model) if held else nullcontext():
            yield
    finally:
        state._set_sync_gradients(synced)


def backward(accelerator: Any, loss: torch.Tensor) -> None:
    """As `transformers.Trainer` does it, for a part of the loss that it does not get to see."""
    deepspeed = accelerator.distributed_type == DistributedType.DEEPSPEED
    accelerator.backward(loss, **({"scale_wrt_gas": False} if deepspeed else {}))
