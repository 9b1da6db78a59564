"""Which rows share a forward: an optimizer step is a sum over its rows, so any of them may stand in any micro-batch.

Rows of like length together leave little padding, and processes that carry like numbers of tokens do not wait for
each other. Plain integers, the same on every process.
"""

from collections.abc import Sequence


def by_length(lengths: Sequence[int]) -> list[int]:
    """Row numbers, the longest first: should memory not suffice, it shows in the first micro-batch."""
    return sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)


def dealt(rows: Sequence[int], hands: int) -> list[list[int]]:
    """Rows from the longest to the shortest to as many hands, there and back again, so that all hold about as much."""
    shares: list[list[int]] = [[] for _ in range(hands)]
    for place, row in enumerate(rows):
        turn, hand = divmod(place, hands)
        shares[hand if turn % 2 == 0 else hands - 1 - hand].append(row)
    return shares


def arrange(
    lengths: Sequence[int], processes: int, micro_batches: int, packed: bool = False, in_pieces: bool = False
) -> list[list[list[int]]]:
    """
    Places the rows of one optimizer step.

    The longest go into the first micro-batch of all processes, the next into the second, so that processes that meet
    in each forward (ZeRO-3) find each other there. Within, rows of like length go to one process; which process takes
    the longer ones alternates. Where company costs nothing, because rows are packed or go through the model in pieces,
    long and short ones are dealt out evenly instead: to all micro-batches, or to the processes of one.

    Args:
        lengths (`Sequence[int]`): Tokens of each row of the step, over all processes.
        processes (`int`): Number of processes.
        micro_batches (`int`): Micro-batches of the step on each process; all have the same number of rows.
        packed (`bool`, *optional*, defaults to `False`): Whether a forward has no padding.
        in_pieces (`bool`, *optional*, defaults to `False`): Whether a micro-batch is several forwards.

    Returns:
        `list[list[list[int]]]`: Row numbers by process and micro-batch, the longest first.
    """
    order = by_length(lengths)
    if packed:
        hands = dealt(order, processes * micro_batches)
        return [hands[process::processes] for process in range(processes)]
    rows = len(lengths) // (processes * micro_batches)
    placed: list[list[list[int]]] = [[] for _ in range(processes)]
    for step in range(micro_batches):
        here = order[step * processes * rows : (step + 1) * processes * rows]
        shares = [here[process * rows : (process + 1) * rows] for process in range(processes)]
        shares = dealt(here, processes) if in_pieces else shares
        for process, share in enumerate(shares if step % 2 == 0 else reversed(shares)):
            placed[process].append(share)
    return placed


def positions(lengths: Sequence[int], packed: bool) -> int:
    """Token positions of a forward over rows: of their tokens alone if `packed`, else of a rectangle around them."""
    return sum(lengths) if packed else len(lengths) * max(lengths)


def piece_sizes(lengths: Sequence[Sequence[int]], budget: int, packed: bool) -> list[int]:
    """
    How many rows go through the model at a time, so that no forward on any process has more than `budget` positions.

    Processes take the same number of rows at a time, because ZeRO-3 and the metrics let them meet in each forward.

    Args:
        lengths (`Sequence[Sequence[int]]`): By process: of the rows in their order, as many on each.
        budget (`int`): Token positions. A row that is longer goes alone.
        packed (`bool`): See [`positions`].

    Returns:
        `list[int]`: Numbers of rows, which add up to all.
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
