"""`trl-ces study`: train several methods with several seeds and compare them."""

import sys
from functools import partial

from ..train.recipe import find_config, shipped_files
from .parser import Parser, count, path


def run(argv: list[str]) -> int:
    """Complete the unfinished runs of a study and print the comparison; return 1 if a run failed."""
    description = "Train several methods with several seeds and compare them. Repeat the command to resume."
    parser = Parser("study", description=description)
    names = ", ".join(shipped_files("study"))
    parser.add_argument("--config", required=True, help=f"YAML file of a study, or name of a shipped study ({names})")
    parser.add_argument("--jobs", type=count, default=1, help="number of parallel runs (default 1)")
    parser.add_argument("--output_dir", type=path, help="output directory (default: the study's)")
    options = parser.parse_args(argv)
    file = find_config(options.config, kind="study")

    from ..lab.study.cells import load_study
    from ..lab.study.comparison import COMPARISON
    from ..lab.study.run import run_study

    study = load_study(file, options.output_dir)
    files, failures = run_study(study, options.jobs, report=partial(print, flush=True))
    if files:
        print(f"\n{(study.output_dir / COMPARISON).read_text(encoding='utf-8')}")
        print(f"In {study.output_dir}: {', '.join(files)}.")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0
