"""`trl-ces recipes`: what is shipped, and one recipe whole."""

from pathlib import Path

from ..support.yaml import dump_yaml
from ..train.compose import compose
from ..train.shipped import OVERLAYS, WHOLE, shipped_files
from .parser import Parser


def run(argv: list[str]) -> int:
    """Lists the shipped files, or prints the flat recipe of some."""
    parser = Parser("recipes", description="List the shipped recipes and overlays, or print a recipe whole.")
    parser.add_argument("verb", nargs="?", choices=["show"], help="print the recipe that the names make together")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a recipe, and overlays, left to right")
    options = parser.parse_args(argv)
    if options.verb is None:
        print(_listed())
    elif not options.names:
        parser.error("`show` needs a name, such as `trl-ces recipes show R1-7B alp`")
    else:
        print(dump_yaml(compose(options.names)), end="")
    return 0


def _listed() -> str:
    titles = {WHOLE: "Recipes, whole", "methods": "Overlays: methods", "cluster": "Overlays: machines"}
    lines = []
    for folder in (WHOLE, *OVERLAYS):
        lines.append(f"{titles[folder]}:")
        lines += [f"  {name:<30}{_first_comment(file)}" for name, file in shipped_files(folder).items()]
    return "\n".join([*lines, "", "  trl-ces recipes show R1-7B alp", "  trl-ces train --config R1-7B alp"])


def _first_comment(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return next(lines).removeprefix("#").strip()
