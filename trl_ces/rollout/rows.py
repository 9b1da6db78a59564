"""The rows of a rollout: how each tensor is padded, those of all processes, those of one.

A rollout is TRL's dict of tensors with a row for each completion. Prompts are padded on the left, completions on the
right, each to the longest of its process.
"""

from typing import Any, NamedTuple

import torch

# The one number of a rollout that belongs to all its rows: the tokens that the loss counts, over all processes.
NUM_ITEMS = "num_items_in_batch"
# What CES adds to a rollout.
CES_ROWS = ("correct", "scorable", "group_correct", "group_scorable", "equal_rewards", "truncated")


class Padding(NamedTuple):
    """How a (B, T) tensor is padded: on which side, with what."""

    left: bool
    value: int | float


def row_layout(pad_token_id: int) -> dict[str, Padding | None]:
    """
    The tensors of a rollout, and how TRL pads those that have a row for each completion and a column for each token.

    Args:
        pad_token_id (`int`): The tokenizer's.

    Returns:
        `dict[str, Padding | None]`: By name. `None`: there are no columns for tokens.
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
        # One for each completion, (B, 1), is never padded: all rounds have that width.
        "importance_sampling_ratio": Padding(left=False, value=1.0),
        "advantages": None,
        NUM_ITEMS: None,
        **dict.fromkeys(CES_ROWS),
    }


def gathered(rows: dict[str, torch.Tensor], layout: dict[str, Padding | None], accelerator: Any) -> dict:
    """
    The rows of all processes, in their order, on each of them; tensors are padded to the longest of any.

    Args:
        rows (`dict[str, torch.Tensor]`): This process's, all of them in `layout`.
        layout (`dict[str, Padding | None]`): How each tensor is padded, see [`row_layout`].
        accelerator (`Accelerator`): Knows the processes.
    """
    every = {}
    for name, values in rows.items():
        padding = layout[name]
        if padding is not None:
            values = accelerator.pad_across_processes(values, dim=1, pad_index=padding.value, pad_first=padding.left)
        every[name] = accelerator.gather(values)
    return every


def rows_of_process(rows: dict[str, torch.Tensor], accelerator: Any) -> dict[str, torch.Tensor]:
    """The part of `rows`, (N, ...) tensors of all processes, that is this process's: N / processes of them."""
    here = next(iter(rows.values())).size(0) // accelerator.num_processes
    start = accelerator.process_index * here
    return {name: values[start : start + here] for name, values in rows.items()}
