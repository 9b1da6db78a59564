"""Which rows share a forward: no row lost, little padding, balanced loads, budget respected."""

import math

import pytest
import torch

from trl_ces.layers.arrangement import arrange, deal, piece_sizes, positions, sort_by_length


def r1_lengths(rows, seed=0):
    """Tokens per row: completions exp(N(ln 3200, 0.7)) clipped to 200..12,000, after prompts of 60 to 300."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.exp(math.log(3200) + 0.7 * torch.randn(rows, generator=generator)).clamp(200, 12_000).int()
    prompts = torch.randint(60, 301, (rows,), generator=generator)
    return (prompts + drawn).tolist()


@pytest.mark.parametrize("kind", [{}, {"packed": True}, {"in_pieces": True}], ids=str)
@pytest.mark.parametrize(("processes", "micro_batches", "rows"), [(1, 24, 2), (2, 6, 4), (3, 5, 1), (4, 1, 3)])
def test_each_row_is_placed_once_and_micro_batches_are_equally_large(processes, micro_batches, rows, kind):
    lengths = r1_lengths(processes * micro_batches * rows)
    placed = arrange(lengths, processes, micro_batches, **kind)
    assert [len(process) for process in placed] == [micro_batches] * processes
    assert all(len(batch) == rows for process in placed for batch in process)
    assert sorted(row for process in placed for batch in process for row in batch) == list(range(len(lengths)))


def padding_share(lengths, batches):
    every = [positions([lengths[row] for row in batch], packed=False) for batch in batches]
    return 1 - sum(lengths) / sum(every)


@pytest.mark.parametrize("seed", range(20))
def test_at_two_rows_a_micro_batch_at_most_5_percent_is_padding(seed):
    lengths = r1_lengths(48, seed)
    arranged = arrange(lengths, processes=1, micro_batches=24)[0]
    as_they_come = [[row, row + 1] for row in range(0, 48, 2)]
    assert padding_share(lengths, arranged) <= 0.05 < 0.15 < padding_share(lengths, as_they_come)


@pytest.mark.parametrize("seed", range(20))
def test_processes_carry_like_numbers_of_tokens_also_in_each_micro_batch(seed):
    lengths = r1_lengths(128, seed)
    placed = arrange(lengths, processes=2, micro_batches=32)
    loads = [[sum(lengths[row] for row in batch) for batch in process] for process in placed]
    assert sum(loads[0]) == pytest.approx(sum(loads[1]), rel=0.02)
    assert loads[0] != loads[1]
    unequal = sum(abs(one - other) for one, other in zip(*loads, strict=True)) / sum(map(sum, loads))
    assert unequal < 0.03


@pytest.mark.parametrize("seed", range(20))
def test_where_company_costs_nothing_loads_are_evener_still(seed):
    lengths = r1_lengths(128, seed)

    def loads(micro_batches, **kind):
        placed = arrange(lengths, 2, micro_batches, **kind)
        return torch.tensor([[sum(lengths[row] for row in batch) for batch in process] for process in placed]).float()

    pieces = loads(1, in_pieces=True)
    assert pieces.max() / pieces.min() < 1.03 < loads(1).max() / loads(1).min()
    packed = loads(8, packed=True)  # 8 rows each
    assert packed.max() / packed.min() < 1.3 < 3 < loads(8).max() / loads(8).min()


def test_rows_are_dealt_there_and_back_again():
    assert deal([10, 11, 12, 13, 14, 15, 16, 17], 3) == [[10, 15, 16], [11, 14, 17], [12, 13]]


def test_the_longest_rows_come_first():
    lengths = [15, 31, 19, 22]
    assert sort_by_length(lengths) == [1, 3, 2, 0]
    assert arrange(lengths, processes=2, micro_batches=2) == [[[1], [0]], [[3], [2]]]


def test_positions_are_a_rectangle_or_the_tokens_alone():
    assert positions([15, 31], packed=False) == 2 * 31
    assert positions([15, 31], packed=True) == 46


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("processes", [1, 3])
def test_no_forward_on_any_process_has_more_positions_than_the_budget(processes, packed):
    rows = [sorted(r1_lengths(40, seed), reverse=True) for seed in range(processes)]
    sizes = piece_sizes(rows, 14_000, packed)
    assert sum(sizes) == 40
    assert 1 < len(sizes) < 40
    start = 0
    for size in sizes:
        pieces = [of_process[start : start + size] for of_process in rows]
        assert all(positions(piece, packed) <= 14_000 for piece in pieces)
        if start + size < 40:  # no piece could take another row
            more = [of_process[start : start + size + 1] for of_process in rows]
            assert any(positions(piece, packed) > 14_000 for piece in more)
        start += size


def test_a_row_beyond_the_budget_goes_alone():
    assert piece_sizes([[99, 5, 5]], 10, packed=False) == [1, 2]
