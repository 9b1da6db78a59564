"""Test gathering rows from processes, splitting micro-batches into pieces, and reducing the gradients of pieces."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType

from trl_ces.layers.micro_batches import PIECES, movable_entries, pieces, without_sync
from trl_ces.layers.rows import gather_rows, row_layout

PAD = 9


@pytest.mark.parametrize(
    ("distributed_type", "synced", "unsynced_models"),
    [
        (DistributedType.MULTI_GPU, True, ["model"]),
        (DistributedType.DEEPSPEED, True, ["model"]),
        (DistributedType.FSDP, True, []),  # no_sync would keep unsharded gradients on every device
        (DistributedType.MULTI_GPU, False, []),  # gradients are not reduced during accumulation
    ],
)
def test_only_the_last_piece_reduces_gradients_except_under_fsdp(distributed_type, synced, unsynced_models):
    entered = []

    @contextmanager
    def no_sync(model):
        entered.append(model)
        yield

    state = SimpleNamespace(_set_sync_gradients=lambda value: setattr(accelerator, "sync_gradients", value))
    accelerator = SimpleNamespace(
        distributed_type=distributed_type, sync_gradients=synced, no_sync=no_sync, gradient_state=state
    )
    with without_sync(accelerator, "model"):
        assert accelerator.sync_gradients is False
    assert accelerator.sync_gradients is synced
    assert entered == unsynced_models


def test_pieces_split_rows_and_share_other_values():
    batch = {"ids": torch.arange(10).view(5, 2), "num_items_in_batch": torch.tensor(7), "no": None, PIECES: [1, 3, 1]}
    parts = list(pieces(batch))
    assert [part["ids"].tolist() for part in parts] == [[[0, 1]], [[2, 3], [4, 5], [6, 7]], [[8, 9]]]
    assert all(part["num_items_in_batch"] == 7 and part["no"] is None and PIECES not in part for part in parts)


@pytest.mark.parametrize("batch", [{"ids": torch.zeros(3, 1)}, {"ids": torch.zeros(3, 1), PIECES: [3]}], ids=str)
def test_a_micro_batch_in_one_piece_is_not_copied(batch):
    assert next(pieces(batch)) is batch


def test_rows_of_all_processes_are_padded_as_in_trl():
    def pad(values, dim, pad_index, pad_first):
        return torch.nn.functional.pad(values, (1, 0) if pad_first else (0, 1), value=pad_index)

    # The second process has the same rows with one more column.
    accelerator = SimpleNamespace(gather=lambda values: torch.cat([values] * 2), pad_across_processes=pad)
    rows = {
        "prompt_ids": torch.tensor([[1, 2]]),
        "prompt_mask": torch.tensor([[1, 1]]),
        "completion_ids": torch.tensor([[3]]),
        "tool_mask": torch.tensor([[0]]),
        "importance_sampling_ratio": torch.tensor([[0.5]]),
        "advantages": torch.tensor([1.5]),
    }
    gathered = gather_rows(rows, row_layout(PAD), accelerator)
    assert {name: values.tolist() for name, values in gathered.items()} == {
        "prompt_ids": [[PAD, 1, 2]] * 2,
        "prompt_mask": [[0, 1, 1]] * 2,
        "completion_ids": [[3, PAD]] * 2,
        "tool_mask": [[0, 1]] * 2,
        "importance_sampling_ratio": [[0.5, 1.0]] * 2,
        "advantages": [1.5, 1.5],
    }


@pytest.mark.parametrize("processes", [1, 2])
def test_unknown_entries_are_movable_if_their_rows_need_no_padding(processes):
    batch = {
        "prompt_ids": torch.zeros(2, 5),
        "advantages": torch.zeros(2),
        "completion_mask": torch.zeros(3, 4),
        "num_items_in_batch": torch.tensor(7),
        "ref_per_token_logps": None,
        "pixels": torch.zeros(3, 4),
        "texts": ["a", "b"],
        "bias": torch.zeros(2, 4, 6),
        "level": torch.zeros(2),
    }
    expected = {"prompt_ids": True, "advantages": True, "completion_mask": False, "pixels": False, "texts": False}
    expected |= {"bias": processes == 1, "level": True}
    assert movable_entries([batch], row_layout(PAD), processes) == expected
    longer = {**batch, "level": torch.zeros(3)}
    for batches in ([batch, longer], [longer, batch]):
        assert movable_entries(batches, row_layout(PAD), processes) == {**expected, "level": False}
