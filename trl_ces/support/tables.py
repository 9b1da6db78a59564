"""Tables as text: Markdown aligned as plain text too, and the numbers in them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table as text cells, for a terminal and a page alike; a row's first cell names it."""

    title: str
    header: list[str]
    rows: list[list[str]]
    note: str = ""

    def markdown(self) -> str:
        """Without title and note."""
        return markdown(self.header, self.rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its first column aligned left, the others right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        first, *others = [
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "| " + " | ".join([first, *others]) + " |"

    rule = "|" + "|".join(
        "-" * (width + 2) if place == 0 else "-" * (width + 1) + ":" for place, width in enumerate(widths)
    )
    return "\n".join([line(cells[0]), rule + "|", *map(line, cells[1:])])


def percent(share: float | None) -> str:
    """`41.7` for 0.417; `-` for `None` and NaN."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.1f}"
