"""Pieces of a micro-batch, and their gradient reduction over processes."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType

from trl_ces.layers.micro_batches import PIECES, pieces, without_sync


def accelerator(distributed_type, sync_gradients):
    held = []

    @contextmanager
    def no_sync(model):
        held.append(model)
        yield

    flag = SimpleNamespace(_set_sync_gradients=lambda value: setattr(found, "sync_gradients", value))
    found = SimpleNamespace(
        distributed_type=distributed_type,
        sync_gradients=sync_gradients,
        no_sync=no_sync,
        gradient_state=flag,
        held=held,
    )
    return found


@pytest.mark.parametrize(
    ("distributed_type", "synced", "held"),
    [
        (DistributedType.MULTI_GPU, True, ["model"]),
        (DistributedType.DEEPSPEED, True, ["model"]),
        (DistributedType.FSDP, True, []),  # no_sync would keep unsharded gradients on each device
        (DistributedType.MULTI_GPU, False, []),  # inside accumulation they are not reduced anyway
    ],
)
def test_gradients_wait_for_the_last_piece_but_under_fsdp(distributed_type, synced, held):
    found = accelerator(distributed_type, synced)
    with without_sync(found, "model"):
        assert found.sync_gradients is False
    assert found.sync_gradients is synced
    assert found.held == held


def test_pieces_share_what_belongs_to_all_rows():
    batch = {
        "ids": torch.arange(10).view(5, 2),
        "num_items_in_batch": torch.tensor(7),
        "no": None,
        PIECES: [1, 3, 1],
    }
    parts = list(pieces(batch))
    assert [part["ids"].tolist() for part in parts] == [[[0, 1]], [[2, 3], [4, 5], [6, 7]], [[8, 9]]]
    assert all(part["num_items_in_batch"] == 7 and part["no"] is None and PIECES not in part for part in parts)


@pytest.mark.parametrize("batch", [{"ids": torch.zeros(3, 1)}, {"ids": torch.zeros(3, 1), PIECES: [3]}], ids=str)
def test_a_micro_batch_in_one_piece_is_itself(batch):
    assert next(pieces(batch)) is batch
