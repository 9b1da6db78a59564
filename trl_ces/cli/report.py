"""`trl-ces report`: one HTML file about runs of `trl-ces train`, `study` and `eval`."""

from __future__ import annotations

import argparse
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.errors import UserError

if TYPE_CHECKING:
    from ..report.runs import Found, Training

EPILOG = """  trl-ces report runs/study/arithmetic --out report.html
  trl-ces report runs/study/arithmetic --tokens 32 --out report.html
  trl-ces report runs/dapo runs/ces --names DAPO CES --figures figures --out report.html
  trl-ces report evaluation/r1 evaluation/dapo evaluation/ces --names R1-7B DAPO CES --out report.html

Of evaluations the first is the reference model, by which questions are simple or hard. See docs/report.md.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UserError(f"{message[:1].upper()}{message[1:]}. `trl-ces report --help` lists the options.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="trl-ces report",
        usage="trl-ces report RUN [RUN ...] --out FILE [--names NAME ...] [--tokens N] [--figures DIR]",
        description="Show runs on one HTML page: curves, accuracy and length, the paper's tables, the shaped tokens.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="an output directory of trl-ces train, study or eval")
    add("--out", type=Path, required=True, metavar="FILE", help="the HTML file")
    add(
        "--names", nargs="+", metavar="NAME", help="what to call the runs; trainings of one name are seeds of a method"
    )
    add("--baseline", default="DAPO", metavar="NAME", help="whom the others are compared with (default DAPO)")
    add("--tokens", type=int, metavar="N", help="let the runs' saved models answer N problems, and show their tokens")
    add("--figures", type=Path, metavar="DIR", help="write each picture there as PNG and SVG")
    add(
        "--verdict",
        choices=("correct", "correct_qwen"),
        default="correct",
        help="of evaluations. correct: mathematics. correct_qwen: the rules of the Qwen2.5-Math script",
    )
    return parser


def run(argv: list[str]) -> int:
    """
    Reads the runs and writes the page.

    Args:
        argv (`list[str]`):
            The words behind `trl-ces report`.

    Returns:
        `int`: 0.

    Raises:
        UserError: if a run is none, holds nothing to show, or a file cannot be written.
    """
    options = _parser().parse_args(argv or ["--help"])
    places = [place.expanduser() for place in options.runs]
    if options.names is not None and len(options.names) != len(places):
        raise UserError(f"`--names` has {len(options.names)} names for {len(places)} runs: give one for each.")
    if options.tokens is not None and options.tokens < 1:
        raise UserError(f"`--tokens` is {options.tokens}: at least one problem.")
    missing = [name for name in ("scipy", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UserError(f'the pictures need {" and ".join(missing)}: pip install "trl_ces[study]".')
    for place in (options.out.parent, options.figures):
        _make_folder(place)

    from ..report.page import make_page, render
    from ..report.picture import save_figures
    from ..report.runs import read_runs
    from ..support.files import write_text

    found = read_runs(places, options.names)
    if options.tokens is not None:
        _make_tokens(found, options.tokens)
    command = shlex.join(["trl-ces", "report", *argv])
    page = make_page(found, command, options.baseline, options.verdict)
    html = render(page)
    try:
        write_text(options.out, html)
        files = save_figures(page.figures(), options.figures) if options.figures is not None else []
    except OSError as error:
        raise UserError(f"{error.filename} cannot be written ({error.strerror}): name another place.") from None
    for note in page.notes:
        print(f"Missing: {note}")
    for table in page.tables:
        if not table.found:
            print(f"Missing: Table {table.number}. {table.why} `{table.command}` makes its data.")
    if not page.tokens:
        print("Missing: the shaped tokens. `--tokens 32` lets the saved models answer and shows them.")
    if files:
        print(f"{len(files)} pictures in {options.figures}.")
    print(f"Wrote {options.out} ({len(html) / 1e6:.1f} MB).")
    return 0


def _make_folder(folder: Path | None) -> None:
    """Before hours of answers are drawn for a page that cannot be written."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror}): name another place.") from None


def _make_tokens(found: Found, count: int) -> None:
    """Token files for the runs: of a study for the first seed of each method and variant."""
    from ..report.runs import is_whole_ces
    from ..report.token_runs import check_tokens, make_tokens

    chosen = list(found.trainings)
    for study in found.studies:
        first: dict[tuple[str, str], Training] = {}
        for training in study.trainings:
            first.setdefault((training.variant, training.method), training)
        chosen += first.values()
    if not chosen:
        raise UserError("`--tokens` needs a training or a study among the runs: evaluations hold no models.")
    for training in chosen:
        check_tokens(training)  # before the first model is loaded
    ces = next((run.settings for run in chosen if is_whole_ces(run.settings)), None)
    for training in chosen:
        make_tokens(training, count, ces, say=lambda text: print(text, flush=True))
