"""Check that each row is placed once, padding is small, loads are balanced, and no budget is exceeded."""

import math

import pytest
import torch

from trl_ces.layers.arrangement import arrange, deal, piece_sizes, positions, sort_by_length


def r1_lengths(rows, seed=0):
    """Draw row lengths: prompts of 60..300 tokens plus completions of exp(N(ln 3200, 0.7)), clamped to 200..12000."""
    generator = torch.Generator().manual_seed(seed)
    completions = torch.exp(math.log(3200) + 0.7 * torch.randn(rows, generator=generator)).clamp(200, 12_000).int()
    prompts = torch.randint(60, 301, (rows,), generator=generator)
    return (prompts + completions).tolist()


@pytest.mark.parametrize("kind", [{}, {"packed": True}, {"in_pieces": True}], ids=str)
@pytest.mark.parametrize(("processes", "micro_batches", "rows"), [(1, 24, 2), (2, 6, 4), (3, 5, 1), (4, 1, 3)])
def test_each_row_is_placed_once_in_equal_micro_batches(processes, micro_batches, rows, kind):
    lengths = r1_lengths(processes * micro_batches * rows)
    assignment = arrange(lengths, processes, micro_batches, **kind)
    assert [len(process) for process in assignment] == [micro_batches] * processes
    assert all(len(batch) == rows for process in assignment for batch in process)
    assert sorted(row for process in assignment for batch in process for row in batch) == list(range(len(lengths)))


def test_micro_batches_of_two_rows_have_at_most_5_percent_padding():
    for seed in range(20):
        lengths = r1_lengths(48, seed)

        def padding_share(batches, lengths=lengths):
            padded = sum(positions([lengths[row] for row in batch], packed=False) for batch in batches)
            return 1 - sum(lengths) / padded

        unsorted = padding_share([[row, row + 1] for row in range(0, 48, 2)])
        assert padding_share(arrange(lengths, processes=1, micro_batches=24)[0]) <= 0.05 < 0.15 < unsorted


def loads_of(lengths, micro_batches, **kind):
    """Return the number of tokens per process and micro-batch."""
    assignment = arrange(lengths, 2, micro_batches, **kind)
    return torch.tensor([[sum(lengths[row] for row in batch) for batch in process] for process in assignment]).float()


def test_processes_get_similar_numbers_of_tokens():
    for seed in range(20):
        lengths = r1_lengths(128, seed)
        loads = loads_of(lengths, 32)
        assert loads[0].sum().item() == pytest.approx(loads[1].sum().item(), rel=0.02)
        assert (loads[0] - loads[1]).abs().sum() / loads.sum() < 0.03  # also per micro-batch
        # Pieces and packed rows mix lengths without padding, so their loads are more even.
        pieces = loads_of(lengths, 1, in_pieces=True)
        assert pieces.max() / pieces.min() < 1.03 < loads_of(lengths, 1).max() / loads_of(lengths, 1).min()
        packed = loads_of(lengths, 8, packed=True)  # 8 rows per micro-batch
        assert packed.max() / packed.min() < 1.3 < 3 < loads_of(lengths, 8).max() / loads_of(lengths, 8).min()


def test_deal_reverses_its_direction_each_round():
    assert deal([10, 11, 12, 13, 14, 15, 16, 17], 3) == [[10, 15, 16], [11, 14, 17], [12, 13]]


def test_the_longest_rows_come_first():
    lengths = [15, 31, 19, 22]
    assert sort_by_length(lengths) == [1, 3, 2, 0]
    assert arrange(lengths, processes=2, micro_batches=2) == [[[1], [0]], [[3], [2]]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("processes", [1, 3])
def test_no_forward_pass_exceeds_the_budget_on_any_process(processes, packed):
    rows = [sorted(r1_lengths(40, seed), reverse=True) for seed in range(processes)]

    def exceeds(piece):
        return (sum(piece) if packed else len(piece) * max(piece)) > 14_000

    sizes = piece_sizes(rows, 14_000, packed)
    assert sum(sizes) == 40
    assert 1 < len(sizes) < 40
    start = 0
    for size in sizes:
        pieces = [process_rows[start : start + size] for process_rows in rows]
        assert not any(exceeds(piece) for piece in pieces)
        if start + size < 40:  # one more row would exceed the budget
            assert any(exceeds(process_rows[start : start + size + 1]) for process_rows in rows)
        start += size


def test_a_row_longer_than_the_budget_forms_a_separate_piece():
    assert piece_sizes([[99, 5, 5]], 10, packed=False) == [1, 2]
