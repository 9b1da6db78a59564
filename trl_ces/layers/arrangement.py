"""Arrange the rows of an optimizer step into forward passes.

The loss is a sum over rows, so a row may be in any micro-batch. Micro-batches of rows with similar lengths need little
padding, and similar token counts keep processes from waiting for each other. All processes get the same result,
because the arithmetic uses integers.
"""

from collections.abc import Sequence


def sort_by_length(lengths: Sequence[int]) -> list[int]:
    """Return the row numbers, longest row first, so that the first micro-batch needs the most memory."""
    return sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)


def deal(rows: Sequence[int], count: int) -> list[list[int]]:
    """Distribute rows sorted by length over `count` shares of similar size, in alternating directions."""
    shares: list[list[int]] = [[] for _ in range(count)]
    for place, row in enumerate(rows):
        turn, share = divmod(place, count)
        shares[share if turn % 2 == 0 else count - 1 - share].append(row)
    return shares


def arrange(
    lengths: Sequence[int], processes: int, micro_batches: int, packed: bool = False, in_pieces: bool = False
) -> list[list[list[int]]]:
    """
    Assign the rows of one optimizer step to processes and to micro-batches of equal size.

    `lengths` are the token counts of the rows on all processes. The longest rows form the first micro-batch on all
    processes, the next longest form the second, and so on, because ZeRO-3 synchronizes processes in every forward
    pass. If rows are packed, long and short rows are spread evenly over all micro-batches instead. If micro-batches
    are split into pieces, the rows of each are spread evenly over the processes. Returns row numbers by process and
    micro-batch, longest first.
    """
    order = sort_by_length(lengths)
    if packed:
        shares = deal(order, processes * micro_batches)
        return [shares[process::processes] for process in range(processes)]
    rows = len(lengths) // (processes * micro_batches)
    assignment: list[list[list[int]]] = [[] for _ in range(processes)]
    for step in range(micro_batches):
        step_rows = order[step * processes * rows : (step + 1) * processes * rows]
        shares = [step_rows[process * rows : (process + 1) * rows] for process in range(processes)]
        shares = deal(step_rows, processes) if in_pieces else shares
        for process, share in enumerate(shares if step % 2 == 0 else reversed(shares)):
            assignment[process].append(share)
    return assignment


def positions(lengths: Sequence[int], packed: bool) -> int:
    """Count the token positions of a forward pass: the sum of `lengths` if `packed`, else rows * longest row."""
    return sum(lengths) if packed else len(lengths) * max(lengths)


def piece_sizes(lengths: Sequence[Sequence[int]], budget: int, packed: bool) -> list[int]:
    """
    Split a micro-batch into pieces so that no forward pass on any process exceeds `budget` token positions.

    `lengths`: for each process, the token counts of its rows. A row longer than `budget` forms its own piece. Every
    process gets the same sizes, because ZeRO-3 and the metrics synchronize the processes in each forward pass.
    """
    sizes, start = [], 0
    total = len(lengths[0])
    while start < total:
        end = start + 1
        while end < total and all(positions(rows[start : end + 1], packed) <= budget for rows in lengths):
            end += 1
        sizes.append(end - start)
        start = end
    return sizes
