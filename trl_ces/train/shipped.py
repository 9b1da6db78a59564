"""Finds shipped recipes, studies and accelerate files by name."""

from pathlib import Path

from ..support.errors import UserError, nearest


def shipped_folders(room: str) -> list[Path]:
    """Folders of that name: in the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    return [folder for folder in (package / room, package.parent / room) if folder.is_dir()]


# Folders under recipes/ without training recipes.
OTHER_KINDS = ("accelerate", "evaluation")


def shipped_files(kind: str | None = None) -> dict[str, Path]:
    """Name -> file of the shipped training recipes, the studies, or the files in the folder `kind` of recipes/."""
    shipped: dict[str, Path] = {}
    if kind == "study":
        files = [file for folder in shipped_folders("experiments") for file in sorted(folder.glob("*/study.yaml"))]
        return {file.parent.name: file for file in files}
    for folder in shipped_folders("recipes"):
        start = folder if kind is None else folder / kind
        for file in sorted(start.rglob("*.yaml")):
            if kind is not None or file.relative_to(folder).parts[0] not in OTHER_KINDS:
                shipped.setdefault(str(file.relative_to(start).with_suffix("")), file)
    return shipped


def find_recipe(name: str, kind: str | None = None) -> Path:
    """The file of `--config`: a path, or the name of a shipped file such as `smollm2_135m/ces`."""
    if Path(name).expanduser().is_file():
        return Path(name).expanduser()
    if kind == "study":
        stem = name.removeprefix("experiments/").removesuffix("/study.yaml")
    else:
        stem = name.removeprefix("recipes/").removeprefix(f"{kind}/").removesuffix(".yaml")
    shipped = shipped_files(kind)
    if stem in shipped:
        return shipped[stem]
    what = kind or "recipe"
    listed = "Shipped recipes" if kind is None else "Shipped"
    hint = nearest(stem, shipped) or f" {listed}: {', '.join(shipped)}."
    raise UserError(f"The {what} {name} does not exist (searched from {Path.cwd()}).{hint}")


def find_accelerate_config(name: str) -> Path:
    """The file of `--accelerate_config`: a path, or the name of a file in recipes/accelerate such as `zero3`."""
    if Path(name).expanduser().is_file():
        return Path(name).expanduser()
    shipped = shipped_files("accelerate")
    if name in shipped:
        return shipped[name]
    hint = nearest(name, shipped)
    raise UserError(f"`--accelerate_config` {name!r} is neither a file nor one of {', '.join(sorted(shipped))}.{hint}")
