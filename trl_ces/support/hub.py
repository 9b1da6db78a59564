"""Distinguish local paths from Hub ids, and switch to offline mode if the Hugging Face Hub is unreachable."""

import os
import sys
from pathlib import Path

from .errors import UserError, first_line, hub_errors, nearest

DATA_SUFFIXES = (".json", ".jsonl", ".parquet")


def is_local(name: str) -> bool:
    """Return whether a model or dataset name is a path: the path exists, or the name cannot be a Hub id."""
    path = Path(expand_home(name))
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or path.suffix in DATA_SUFFIXES or path.exists()


def nearest_model(name: str) -> str:
    """Return `" Did you mean ...?"` with the most similar path of a saved model, or an empty string."""
    path = Path(expand_home(name))
    existing = next(folder for folder in (path, *path.parents) if folder.is_dir())
    models = [file.parent for depth in ("*", "*/*") for file in existing.glob(f"{depth}/*config.json")]
    return nearest(str(path), map(str, models))


def expand_home(name: str | Path) -> str:
    """Expand `~` and `~user` at the start of a path; raise `UserError` if the home directory is unknown."""
    expanded = os.path.expanduser(name)
    if str(expanded).startswith("~"):
        raise UserError(f"{str(name)!r}: {Path(name).parts[0]} has no home directory; write the path without `~`.")
    return str(expanded)


def try_hub_once(*names: str) -> None:
    """Switch this process and its children to offline mode if a name is a Hub id but the Hub does not respond.

    Otherwise, the Hub client would retry each file five times, which takes half a minute.
    """
    from huggingface_hub import constants, get_session

    if constants.is_offline_mode() or all(is_local(name) for name in names):
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except hub_errors() as error:
        print(f"{constants.ENDPOINT} does not respond ({first_line(error)}); using only the cache.", file=sys.stderr)
        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True
