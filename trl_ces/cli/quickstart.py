"""`trl-ces quickstart`: show the effect of CES on a small model trained on the CPU."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from .parser import Parser, path

NEXT = r"""Next, use your own model (a directory or a Hub id) and problems (a .jsonl file with question and answer):
  trl-ces inspect --model MODEL --data FILE
  trl-ces train --model_name_or_path MODEL --dataset_name FILE --reward_funcs accuracy_reward \
    --ces_beta_incorrect 0 --ces_tau auto --output_dir runs/mine
docs/tutorial.md explains each step, and docs/quickstart.md explains these results."""


class StageLine:
    """Terminal line that shows a stage's title and progress, then its duration when the stage ends."""

    def __init__(self, title: str):
        self.title = title

    def __enter__(self) -> StageLine:
        self.start = time.monotonic()
        print(f"{self.title} ... ", end="", flush=True)
        return self

    def show(self, progress: str) -> None:
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns - 1  # a wrapped line cannot be rewritten
            print(f"\r\x1b[K{f'{self.title} ... {progress}'[:width]}", end="", flush=True)

    def __exit__(self, kind: object, *_: object) -> None:
        self.show("")
        print(f"{'stopped after ' if kind else ''}{time.monotonic() - self.start:.0f} s", flush=True)


def run(argv: list[str]) -> int:
    """Train with all methods and print the comparison; return 1 if a run failed."""
    parser = Parser("quickstart", description="Compare CES and DAPO on a small model on the CPU in a few minutes.")
    parser.add_argument("--output_dir", type=path, default=Path("runs/quickstart"), help="output directory")
    parser.add_argument("--seed", type=int, default=0, help="seed for the base model, the problems and training")
    options = parser.parse_args(argv)

    from ..lab.study import quickstart
    from ..lab.study.processes import RunFailed

    methods = ", ".join(quickstart.METHODS)
    print(f"{methods} on two-digit addition problems. Output directory: {options.output_dir}\n", flush=True)
    try:
        summary = quickstart.quickstart(options.output_dir, StageLine, options.seed)
    except RunFailed as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 1
    print(f"\n{summary}\n\nPlot of the runs: {options.output_dir / quickstart.PLOT_FILE}\n\n{NEXT}")
    return 0
