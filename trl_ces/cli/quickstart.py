"""`trl-ces quickstart`: the effect of CES on a small model, on this machine's CPU."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .parser import Parser, path

CLEAR_LINE = "\r\x1b[K"


class StageLine:
    """A line on the terminal: the stage's title, how far it is and, at its end, how long it took."""

    def __init__(self, number: str, title: str):
        self.head = f"{number}  {title}"
        self.live = sys.stdout.isatty()
        self.remarks = ""

    def __enter__(self) -> StageLine:
        self.start = time.monotonic()
        print(f"{self.head} ...", end="", flush=True)
        return self

    def show(self, note: str) -> None:
        """Replaces the end of the line; a log file gets only the line's final state."""
        if self.live:
            print(f"{CLEAR_LINE}{self.head} ... {note}", end="", flush=True)

    def remark(self, text: str) -> None:
        self.remarks += text

    def __exit__(self, kind: object, *_: object) -> None:
        end = f"{'stopped after ' if kind else ''}{time.monotonic() - self.start:.0f} s{self.remarks}"
        print(f"{CLEAR_LINE}{self.head} ... {end}" if self.live else f" {end}", flush=True)


def run(argv: list[str]) -> int:
    """Train, compare and show; returns 1 if a training failed."""
    description = "See the effect of CES on a small model, on this machine's CPU, in a few minutes."
    parser = Parser("quickstart", description=description)
    parser.add_argument("--output_dir", type=path, default=Path("runs/quickstart"), help="where everything goes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the base model, the problems and the training")
    options = parser.parse_args(argv)

    from ..lab.study import quickstart
    from ..lab.study.processes import RunFailed

    started = time.monotonic()
    print(f"CES beside DAPO on two-digit additions. Everything goes to {options.output_dir}.\n", flush=True)
    try:
        measured = quickstart.quickstart(options.output_dir, StageLine, options.seed)
    except RunFailed as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 1
    print(f"\n{quickstart.summary(measured)}\n")
    print(f"Picture of both trainings: {options.output_dir / quickstart.PICTURE}")
    print(f"Took {time.monotonic() - started:.0f} s in all.\n")
    print("Next: a real pretrained model on this CPU,\n  trl-ces train --config smollm2_135m")
    print("or your own model and data: README.md. How to read the above: docs/quickstart.md.")
    return 0
