"""Finds shipped recipes, studies and accelerate files by name."""

import re
from pathlib import Path

from ..support.errors import UserError, nearest


def shipped_folders(room: str) -> list[Path]:
    """Folders of that name: in the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    return [folder for folder in (package / room, package.parent / room) if folder.is_dir()]


# Folders under recipes/ with training recipes: whole ones, then overlays.
WHOLE, OVERLAY_FOLDERS = "models", ("methods", "cluster")


def is_overlay(file: Path) -> bool:
    """Whether a shipped file changes a recipe and is none."""
    return any(
        file.resolve().parent == folder / kind for folder in shipped_folders("recipes") for kind in OVERLAY_FOLDERS
    )


def shipped_files(kind: str | None = None) -> dict[str, Path]:
    """Name -> file of the shipped recipes and overlays, the studies, or the files in the folder `kind` of recipes/."""
    shipped: dict[str, Path] = {}
    if kind == "study":
        files = [file for folder in shipped_folders("experiments") for file in sorted(folder.glob("*/study.yaml"))]
        return {file.parent.name: file for file in files}
    for folder in shipped_folders("recipes"):
        for start in (WHOLE, *OVERLAY_FOLDERS) if kind is None else (kind,):
            for file in sorted((folder / start).glob("*.yaml")):
                shipped.setdefault(file.stem, file)
    return shipped


def find_config(name: str, kind: str | None = None) -> Path:
    """The file of `--config`: a path, or the name of a shipped file such as `R1-7B`."""
    if Path(name).expanduser().is_file():
        return Path(name).expanduser()
    if kind == "study":
        stem = name.removeprefix("experiments/").removesuffix("/study.yaml")
    else:
        stem = name.removesuffix(".yaml").rpartition("/")[2] if name.startswith(("recipes/", f"{kind}/")) else name
    shipped = shipped_files(kind)
    if stem in shipped:
        return shipped[stem]
    what = {None: "recipe", "accelerate": "accelerate configuration"}.get(kind, kind)
    listed = "Shipped recipes" if kind is None else "Shipped"
    last = re.split(r"[/_\s]", stem)[-1]  # of `runs/R1-7B`, or of `ces_lora`, which is `R1-7B lora`
    hint = nearest(stem, shipped) or nearest(last, shipped) or f" {listed}: {', '.join(shipped)}."
    raise UserError(f"The {what} {name} does not exist (searched from {Path.cwd()}).{hint}")
