"""`trl-ces recipes`: list the shipped recipes with their costs, or print or copy a recipe."""

from pathlib import Path

from ..support.errors import UserError
from ..support.yaml import dump_yaml, read_yaml
from ..train.recipe import OVERLAY_FOLDERS, OVERLAYS, compose, find_config, shipped_files, shipped_folders
from .parser import Parser


def run(argv: list[str]) -> int:
    """List recipes, or run `show`, `copy` or `costs`."""
    parser = Parser("recipes", description="List the shipped recipes and overlays, or print a recipe in full.")
    actions = "print a composed recipe, copy it to a new file, or compute the cost table"
    parser.add_argument("action", nargs="?", choices=["show", "copy", "costs"], help=actions)
    parser.add_argument("names", nargs="*", metavar="NAME", help="recipe and overlays; for `copy`, also a new file")
    options = parser.parse_args(argv)
    if options.action is None:
        print(_listing())
    elif options.action == "costs":
        from ..lab.plan.text import costs_table

        print(costs_table())
    elif len(options.names) < (1 if options.action == "show" else 2):
        parser.error("specify a recipe, such as `trl-ces recipes show R1-7B alp` or `... copy R1-7B alp my.yaml`")
    elif options.action == "copy":
        *names, file = options.names
        if Path(file).exists():
            raise UserError(f"{file} already exists: choose another file name.")
        if file in shipped_files():
            raise UserError(f"{file} is the name of a shipped recipe: add a file name, such as `my.yaml`.")
        overlays = read_yaml(find_config(names[0])).get(OVERLAYS)
        text = dump_yaml(compose(names) | ({OVERLAYS: overlays} if overlays else {}))
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(f"# {' + '.join(names)}\n{text}", encoding="utf-8")
        print(f"Wrote {file}. Edit it, then run: trl-ces train --config {file}")
    else:
        print(dump_yaml(compose(options.names)), end="")
    return 0


def _listing() -> str:
    """Return the cost table, the overlays with their descriptions, and example commands."""
    costs = next(folder / "costs.md" for folder in shipped_folders("recipes"))
    lines = [costs.read_text(encoding="utf-8")]
    for folder, title in zip(OVERLAY_FOLDERS, ("methods", "machines"), strict=True):
        lines.append(f"Overlays ({title}):")
        for name, file in shipped_files(folder).items():
            lines.append(f"  {name:<30}{file.read_text(encoding='utf-8').splitlines()[0].removeprefix('#').strip()}")
    examples = ("recipes show R1-7B alp", "recipes copy R1-7B alp my.yaml", "train --config R1-7B alp")
    return "\n".join([*lines, "", *(f"  trl-ces {args}" for args in examples)])
