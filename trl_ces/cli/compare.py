"""`trl-ces compare`: evaluations side by side."""

from .parser import Parser, path

EPILOG = """  cd runs/evaluation; trl-ces compare r1_7b dapo ces --names R1-7B DAPO CES --baseline DAPO

The first directory is the reference model that decides which questions are simple or hard (section 5.2 of the paper).
"""


def run(argv: list[str]) -> int:
    parser = Parser(
        "compare",
        usage="trl-ces compare A B [C ...] [--names NAME ...] [--baseline NAME] [--verdict correct_qwen]",
        description="Compare evaluations (output directories of `trl-ces eval`) in the layout of the paper's Table 1.",
        epilog=EPILOG,
    )
    add = parser.add_argument
    add("folders", nargs="+", type=path, metavar="DIR", help="output directories of `trl-ces eval`")
    add("--names", nargs="+", metavar="NAME", help="their names in the tables (default: the directories' names)")
    add("--baseline", metavar="NAME", help="the run that the others are compared with (default: the first)")
    add(
        "--verdict",
        choices=("correct", "correct_qwen"),
        default="correct",
        help="correct: mathematics (default). correct_qwen: the rules of the Qwen2.5-Math script, as in the paper",
    )
    add("--output", type=path, metavar="FILE", help="write all numbers there as JSON")
    add("--picture", type=path, metavar="FILE", help="draw accuracy within token budgets there, as .png or .svg")
    options = parser.parse_args(argv or ["--help"])

    from ..lab.evaluation.comparison import compare_folders, comparison_text

    print(comparison_text(compare_folders(**vars(options))), end="")
    return 0
