"""Markdown tables with aligned columns."""

import math
from collections.abc import Sequence


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render a table. The first column is left-aligned, all other columns are right-aligned."""
    cells = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *others = row
        padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        return "| " + " | ".join([first.ljust(widths[0]), *padded]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def percent(share: float | None) -> str:
    """Format 0.417 as `41.7`; format `None` and NaN as `-`."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.1f}"
