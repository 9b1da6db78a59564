"""`trl-ces compare`: compare evaluations side by side."""

from .parser import Parser, path


def run(argv: list[str]) -> int:
    """Print the comparison."""
    parser = Parser(
        "compare",
        usage="trl-ces compare A B [C ...] [--names NAME ...] [--baseline NAME] [--correctness correct_qwen]",
        description="Compare evaluations (output directories of `trl-ces eval`) in the layout of the paper's Table 1.",
        epilog="The first directory is the reference model: its results determine which questions are simple and "
        "which are hard (section 5.2 of the paper).",
    )
    add = parser.add_argument
    add("folders", nargs="+", type=path, metavar="DIR", help="output directories of `trl-ces eval`")
    add("--names", nargs="+", metavar="NAME", help="names to show in the tables (default: the directory names)")
    add("--baseline", metavar="NAME", help="evaluation to compare all others with (default: the first)")
    choices = ("correct", "correct_qwen")
    text = "`correct` tests mathematical equality (default); `correct_qwen` uses the rules of the Qwen2.5-Math script"
    add("--correctness", choices=choices, default=choices[0], help=text)
    add("--output", type=path, metavar="FILE", help="write all numbers to FILE as JSON")
    options = parser.parse_args(argv or ["--help"])

    from ..lab.evaluation.results import compare_folders, comparison_text

    print(comparison_text(compare_folders(**vars(options))), end="")
    return 0
