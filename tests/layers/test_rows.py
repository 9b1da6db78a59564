"""The rows of a rollout, gathered and sliced over processes."""

from types import SimpleNamespace

import torch

from trl_ces.layers.rows import gathered, row_layout

PAD = 9


def process(num_processes, process_index):
    """A stand-in accelerator whose gather returns its own rows twice, padded by one column."""

    def pad_across_processes(values, dim, pad_index, pad_first):
        return torch.nn.functional.pad(values, (1, 0) if pad_first else (0, 1), value=pad_index)

    return SimpleNamespace(
        num_processes=num_processes,
        process_index=process_index,
        gather=lambda values: torch.cat([values] * num_processes),
        pad_across_processes=pad_across_processes,
    )


def test_rows_of_all_processes_are_padded_as_trl_pads():
    rows = {
        "prompt_ids": torch.tensor([[1, 2]]),
        "prompt_mask": torch.tensor([[1, 1]]),
        "completion_ids": torch.tensor([[3]]),
        "tool_mask": torch.tensor([[0]]),
        "importance_sampling_ratio": torch.tensor([[0.5]]),
        "advantages": torch.tensor([1.5]),
    }
    every = gathered(rows, row_layout(PAD), process(2, 0))
    assert {name: values.tolist() for name, values in every.items()} == {
        "prompt_ids": [[PAD, 1, 2]] * 2,
        "prompt_mask": [[0, 1, 1]] * 2,
        "completion_ids": [[3, PAD]] * 2,
        "tool_mask": [[0, 1]] * 2,
        "importance_sampling_ratio": [[0.5, 1.0]] * 2,
        "advantages": [1.5, 1.5],
    }
