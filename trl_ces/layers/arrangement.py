"""Arranges the rows of an optimizer step into forwards.

The loss is a sum over rows, so a row may be in any micro-batch.
Rows of similar length need little padding together, and processes with similar token counts do not wait for each
other. The integer arithmetic has the same result on every process.
"""

from collections.abc import Sequence


def sort_by_length(lengths: Sequence[int]) -> list[int]:
    """Row numbers, longest first, so that the first micro-batch needs the most memory."""
    return sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)


def deal(rows: Sequence[int], hands: int) -> list[list[int]]:
    """Deals rows, sorted by length, into `hands` shares of similar size: forwards, then backwards, and so on."""
    shares: list[list[int]] = [[] for _ in range(hands)]
    for place, row in enumerate(rows):
        turn, hand = divmod(place, hands)
        shares[hand if turn % 2 == 0 else hands - 1 - hand].append(row)
    return shares


def arrange(
    lengths: Sequence[int], processes: int, micro_batches: int, packed: bool = False, in_pieces: bool = False
) -> list[list[list[int]]]:
    """
    Assigns the rows of one optimizer step to processes and micro-batches, all with the same number of rows.

    The longest rows form the first micro-batch of all processes, the next the second, because ZeRO-3 synchronizes
    processes in every forward. Within it, rows of similar length go to one process; which process takes the longer
    ones alternates. Where mixed lengths cost nothing, long and short rows are dealt out evenly instead: over all
    micro-batches if rows are packed, over the processes of a micro-batch if it is split into pieces.

    Args:
        lengths (`Sequence[int]`): Tokens of each row of the step, over all processes.
        processes (`int`): Number of processes.
        micro_batches (`int`): Micro-batches per step on each process.
        packed (`bool`): Whether forwards have no padding.
        in_pieces (`bool`): Whether a micro-batch takes several forwards.

    Returns:
        `list[list[list[int]]]`: Row numbers by process and micro-batch, longest first.
    """
    order = sort_by_length(lengths)
    if packed:
        hands = deal(order, processes * micro_batches)
        return [hands[process::processes] for process in range(processes)]
    rows = len(lengths) // (processes * micro_batches)
    placed: list[list[list[int]]] = [[] for _ in range(processes)]
    for step in range(micro_batches):
        of_step = order[step * processes * rows : (step + 1) * processes * rows]
        shares = [of_step[process * rows : (process + 1) * rows] for process in range(processes)]
        shares = deal(of_step, processes) if in_pieces else shares
        for process, share in enumerate(shares if step % 2 == 0 else reversed(shares)):
            placed[process].append(share)
    return placed


def positions(lengths: Sequence[int], packed: bool) -> int:
    """Token positions of a forward over rows of these lengths: their sum if `packed`, else rows x longest."""
    return sum(lengths) if packed else len(lengths) * max(lengths)


def piece_sizes(lengths: Sequence[Sequence[int]], budget: int, packed: bool) -> list[int]:
    """
    Splits a micro-batch so that no forward on any process exceeds `budget` token positions; a longer row goes alone.

    `lengths` are the tokens of each row in order, by process. The pieces have the same number of rows on every
    process, because ZeRO-3 and the metrics synchronize in each forward.
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
