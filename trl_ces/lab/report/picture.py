"""A picture by matplotlib: SVG for light and dark pages, and files."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIZE = (4.6, 3.7)  # inches: a column of a page, or a phone's width


@dataclass(frozen=True)
class Theme:
    """Colours of a page. `lighten` is the share of white in a method's colour."""

    ink: str
    grid: str
    paper: str
    lighten: float = 0.0


LIGHT = Theme(ink="#1c2430", grid="#d9dee6", paper="#ffffff")
DARK = Theme(ink="#e3e8ef", grid="#39424f", paper="#161b22", lighten=0.45)


@dataclass(frozen=True)
class Figure:
    name: str  # its file's name, without suffix
    title: str
    alt: str  # what it shows, for screen readers
    caption: str  # how to read it
    draw: Callable[[Any, Theme], None]  # draws on a matplotlib axis
    size: tuple[float, float] = SIZE  # inches

    def render(self, theme: Theme, kind: str) -> bytes:
        """The picture as `"svg"` or `"png"`."""
        import matplotlib.figure

        settings: Any = {
            "svg.hashsalt": self.name,  # the same data give the same bytes
            "font.size": 10,
            "hatch.linewidth": 0.8,
            **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), theme.ink),
            "axes.edgecolor": theme.ink,
        }
        with matplotlib.rc_context(settings):
            figure = matplotlib.figure.Figure(figsize=self.size, layout="constrained")
            axis = figure.subplots()
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(axis="y", color=theme.grid, linewidth=0.8)
            axis.set_axisbelow(True)
            axis.set_facecolor("none")
            self.draw(axis, theme)
            stream = io.BytesIO()
            # A PNG has a background of its own; an SVG shows the page's.
            background = theme.paper if kind == "png" else "none"
            metadata = {"Date": None} if kind == "svg" else None
            figure.savefig(stream, format=kind, dpi=200, facecolor=background, metadata=metadata)
        return stream.getvalue()


def save_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Writes each picture as PNG and SVG, on white."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for figure in figures:
        for kind in ("png", "svg"):
            files.append(folder / f"{figure.name}.{kind}")
            files[-1].write_bytes(figure.render(LIGHT, kind))
    return files
