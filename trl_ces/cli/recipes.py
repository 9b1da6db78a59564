"""`trl-ces recipes`: what is shipped and what it costs, and one recipe whole, to see or to keep."""

from pathlib import Path

from ..support.errors import UserError
from ..support.files import write_text
from ..support.yaml import dump_yaml, read_yaml
from ..train.recipe import OVERLAY_FOLDERS, OVERLAYS, compose, find_config, shipped_files, shipped_folders
from .parser import Parser


def run(argv: list[str]) -> int:
    parser = Parser("recipes", description="List the shipped recipes and overlays, or print a recipe whole.")
    verbs = "print the recipe that the names make together, copy it to a file of your own, or compute the costs anew"
    parser.add_argument("verb", nargs="?", choices=["show", "copy", "costs"], help=verbs)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a recipe, and overlays; `copy`: the new file last")
    options = parser.parse_args(argv)
    if options.verb is None:
        print(_listed())
    elif options.verb == "costs":
        from ..lab.plan.costs import table

        print(table())
    elif len(options.names) < (1 if options.verb == "show" else 2):
        file = "" if options.verb == "show" else " my.yaml"
        parser.error(f"name what to {options.verb}, such as `trl-ces recipes {options.verb} R1-7B alp{file}`")
    elif options.verb == "copy":
        *names, file = options.names
        if Path(file).exists():
            raise UserError(f"{file} exists: name a new file.")
        try:
            own = read_yaml(find_config(names[0])).get(OVERLAYS)
            text = dump_yaml(compose(names) | ({OVERLAYS: own} if own else {}))
            write_text(Path(file), f"# {' + '.join(names)}\n{text}")
        except OSError as error:
            raise UserError(f"{file} cannot be written ({error.strerror}): name another place.") from None
        print(f"Wrote {file}. Change it, and start: trl-ces train --config {file}")
    else:
        print(dump_yaml(compose(options.names)), end="")
    return 0


def _listed() -> str:
    titles = {"methods": "Overlays: methods", "cluster": "Overlays: machines"}
    costs = next(folder / "costs.md" for folder in shipped_folders("recipes")).read_text(encoding="utf-8")
    lines = [costs]
    for folder in OVERLAY_FOLDERS:
        lines.append(f"{titles[folder]}:")
        lines += [f"  {name:<30}{_first_comment(file)}" for name, file in shipped_files(folder).items()]
    examples = ["recipes show R1-7B alp", "recipes copy R1-7B alp my.yaml", "train --config R1-7B alp"]
    return "\n".join([*lines, "", *(f"  trl-ces {words}" for words in examples)])


def _first_comment(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return next(lines).removeprefix("#").strip()
