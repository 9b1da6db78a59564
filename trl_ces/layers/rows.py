"""Pad, gather and slice the rows of a rollout over processes.

A rollout is TRL's dict of tensors, with one row per completion. Prompts are padded on the left and completions on the
right, to the length of the process's longest row.
"""

from typing import Any, NamedTuple

import torch

# Number of tokens in the loss, over all processes: the only entry of a rollout that is not per-row.
NUM_ITEMS = "num_items_in_batch"
# Per-row tensors that CES adds to a rollout.
CES_ROWS = ("correct", "scored", "group_correct", "group_scored", "equal_rewards", "truncated")


class Padding(NamedTuple):
    """Side and value of the padding of a (B, T) tensor."""

    left: bool
    value: int | float


def row_layout(pad_token_id: int) -> dict[str, Padding | None]:
    """
    Map each known tensor of a rollout to its padding in TRL, or to `None` if its shape is not (B, T).

    `pad_token_id` is the pad token of the tokenizer.
    """
    return {
        "prompt_ids": Padding(left=True, value=pad_token_id),
        "prompt_mask": Padding(left=True, value=0),
        "completion_ids": Padding(left=False, value=pad_token_id),
        "completion_mask": Padding(left=False, value=0),
        "tool_mask": Padding(left=False, value=1),
        "old_per_token_logps": Padding(left=False, value=0.0),
        "ref_per_token_logps": Padding(left=False, value=0.0),
        "sampling_per_token_logps": Padding(left=False, value=0.0),
        # With one ratio per completion, the shape is (B, 1) on all processes, and nothing is padded.
        "importance_sampling_ratio": Padding(left=False, value=1.0),
        "advantages": None,
        NUM_ITEMS: None,
        **dict.fromkeys(CES_ROWS),
    }


def gather_rows(rows: dict[str, torch.Tensor], layout: dict[str, Padding | None], accelerator: Any) -> dict:
    """Gather `rows` from all processes in process order, padded to the longest row as given by `layout`."""
    gathered = {}
    for name, values in rows.items():
        padding = layout.get(name)
        if padding is not None:
            values = accelerator.pad_across_processes(values, dim=1, pad_index=padding.value, pad_first=padding.left)
        gathered[name] = accelerator.gather(values)
    return gathered


def rows_of_process(rows: dict[str, torch.Tensor], accelerator: Any) -> dict[str, torch.Tensor]:
    """Return this process's N / num_processes rows of gathered tensors of shape (N, ...)."""
    count = next(iter(rows.values())).size(0) // accelerator.num_processes
    start = accelerator.process_index * count
    return {name: values[start : start + count] for name, values in rows.items()}
