"""`trl-ces report`: one HTML file about runs of `trl-ces train`, `study` and `eval`."""

import shlex
from importlib.util import find_spec

from ...cli.parser import Parser, count, path
from ...support.errors import UserError, nearest
from ...support.imports import install_line

EPILOG = """  trl-ces report runs/study/arithmetic --out report.html
  trl-ces report runs/study/arithmetic --tokens 32 --out report.html
  trl-ces report runs/dapo runs/ces --names DAPO CES --figures figures --out report.html
  trl-ces report evaluation/r1 evaluation/dapo evaluation/ces --names R1-7B DAPO CES --out report.html

The first evaluation is the reference model, by which questions are simple or hard. See docs/report.md.
"""


def run(argv: list[str]) -> int:
    """Reads the runs and writes the page; returns 0."""
    parser = Parser(
        "report",
        usage="trl-ces report RUN [RUN ...] --out FILE [--names NAME ...] [--tokens N] [--figures DIR]",
        description="Show runs on one HTML page: curves, accuracy and length, the paper's tables, the shaped tokens.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        type=path,
        metavar="RUN",
        help="an output of trl-ces train, study or eval, or a folder of them",
    )
    add("--out", type=path, required=True, metavar="FILE", help="the HTML file")
    add("--names", nargs="+", metavar="NAME", help="names of the runs; trainings of one name are seeds of a method")
    add("--baseline", metavar="NAME", help="what the others are compared with (default DAPO, else the first)")
    add("--tokens", type=count, metavar="N", help="sample the saved models on N problems, and show their tokens")
    add("--figures", type=path, metavar="DIR", help="also write each picture there, as PNG and SVG")
    add(
        "--verdict",
        choices=("correct", "correct_qwen"),
        default="correct",
        help="of evaluations: mathematical equality (default), or the rules of the Qwen2.5-Math script",
    )
    options = parser.parse_args(argv or ["--help"])
    places = options.runs
    if options.names is not None and len(options.names) != len(places):
        raise UserError(f"`--names` has {len(options.names)} names for {len(places)} runs: give one for each.")
    missing = [name for name in ("scipy", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UserError(f"the pictures need {' and '.join(missing)}: {install_line('lab')}.")
    if options.out.is_dir():
        raise UserError(f"{options.out} is a folder and cannot be written: name a file with `--out`.")
    for folder in (options.out.parent, options.figures):
        try:  # before hours of sampling for a page that cannot be written
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder} cannot be made ({error.strerror}): name another place.") from None

    from ..report.page import make_page, write_page
    from ..report.runs import read_runs, runs_below
    from ..report.token_runs import sample_tokens

    if options.names is None:
        places = [run for place in places for run in runs_below(place)]
    found = read_runs(places, options.names)
    baseline = _one_of(found.names(), options.baseline)
    if options.tokens is not None:
        sample_tokens(found, options.tokens, say=lambda text: print(text, flush=True))
    page = make_page(found, shlex.join(["trl-ces", "report", *argv]), baseline, options.verdict)
    size, pictures = write_page(page, options.out, options.figures)
    for what in page.missing():
        print(f"Missing: {what}")
    if pictures:
        print(f"{pictures} pictures in {options.figures}.")
    print(f"Wrote {options.out} ({size / 1e6:.1f} MB).")
    return 0


def _one_of(known: list[str], baseline: str | None) -> str:
    """The baseline, which must be a name on the page; DAPO where none is given."""
    if baseline is not None and baseline not in known:
        raise UserError(f"`--baseline` {baseline!r} is none of {', '.join(known)}.{nearest(baseline, known)}")
    return baseline or "DAPO"
