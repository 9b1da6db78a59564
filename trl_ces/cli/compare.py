"""`trl-ces compare`: evaluations side by side, with paired differences, and simple and hard questions apart."""

import argparse
from pathlib import Path

from ..support.errors import UserError, nearest

EPILOG = """  cd runs/evaluation; trl-ces compare r1_7b dapo ces --names R1-7B DAPO CES --baseline DAPO

The first directory is the reference model by which questions are simple or hard (section 5.2 of the paper).
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UserError(f"{message[:1].upper()}{message[1:]}. `trl-ces compare --help` lists the options.")


def run(argv: list[str]) -> int:
    """
    Compares and prints.

    Args:
        argv (`list[str]`):
            The words behind `trl-ces compare`.

    Returns:
        `int`: 0.

    Raises:
        UserError: if a directory cannot be used, or the runs cannot be compared.
    """
    parser = _Parser(
        prog="trl-ces compare",
        usage="trl-ces compare A B [C ...] [--names NAME ...] [--baseline NAME] [--verdict correct_qwen]",
        description="Compare output directories of `trl-ces eval`, in the layout of the paper's Table 1.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="output directories of `trl-ces eval`")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="what to call them; default: as the directories")
    parser.add_argument("--baseline", metavar="NAME", help="whom the others are compared with; default: the first")
    parser.add_argument(
        "--verdict",
        choices=("correct", "correct_qwen"),
        default="correct",
        help="correct: mathematics. correct_qwen: the rules of the Qwen2.5-Math script, as in the paper",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write every number there as JSON")
    options = parser.parse_args(argv or ["--help"])
    folders = [folder.expanduser() for folder in options.folders]
    if len(folders) < 2:
        raise UserError("One directory is named: a comparison takes at least two.")
    names = options.names or [folder.resolve().name for folder in folders]
    if len(names) != len(folders) or len(set(names)) != len(names):
        raise UserError(
            f"The names are {', '.join(names)} for {len(folders)} directories: give `--names` with a different name "
            "for each."
        )
    baseline = options.baseline or names[0]
    if baseline not in names:
        raise UserError(f"`--baseline` {baseline!r} is none of {', '.join(names)}.{nearest(baseline, names)}")

    from ..evaluation.comparison import compare, comparison_text, load_run
    from ..support.files import write_json

    runs = [load_run(folder, name) for folder, name in zip(folders, names, strict=True)]
    found = compare(runs, options.verdict, names.index(baseline))
    if options.output is not None:
        try:
            write_json(options.output, found)
        except OSError as error:
            raise UserError(f"`--output` {str(options.output)!r} cannot be written ({error.strerror}).") from None
    print(comparison_text(found), end="")
    return 0
