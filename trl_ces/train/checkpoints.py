"""Find, check and delete a run's checkpoints."""

import hashlib
import json
import logging
import os
import re
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support.files import write_json

logger = logging.getLogger(__name__)
STATE, MANIFEST = "trainer_state.json", "manifest.json"


@dataclass(frozen=True)
class Length:
    """Length of a run, as in the Trainer's arguments: `max_steps` if positive, else `num_train_epochs`."""

    max_steps: int = -1
    num_train_epochs: float = 3.0


def read_state(checkpoint: Path) -> dict[str, Any] | None:
    """Return the Trainer state, or `None` if its file, which the Trainer writes last, is missing or truncated."""
    try:
        state = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the run was killed before the file was complete
        return None
    return state if isinstance(state, dict) and "global_step" in state else None


def is_finished(state: dict[str, Any], length: Length | None = None) -> bool:
    """Return whether all planned steps are done; resuming a finished run could take an extra step."""
    planned = state.get("max_steps", 0)
    if length is not None and length.max_steps > 0:
        planned = length.max_steps
    elif length is not None and length.num_train_epochs > state.get("num_train_epochs", length.num_train_epochs):
        return False
    return 0 < planned <= state["global_step"]


def write_manifest(checkpoint: Path) -> None:
    """Atomically write `manifest.json` with the sizes and SHA-256 hashes of all files of a checkpoint."""
    files = [file for file in sorted(checkpoint.rglob("*")) if file.is_file() and not file.name.startswith(MANIFEST)]
    with ThreadPoolExecutor(8) as pool:  # hashing releases the GIL
        entries = list(pool.map(_describe, files))
    names = [file.relative_to(checkpoint).as_posix() for file in files]
    write_json(checkpoint / MANIFEST, dict(zip(names, entries, strict=True)))


def _describe(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        return {"size": os.fstat(stream.fileno()).st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def find_damage(checkpoint: Path, thorough: bool = True) -> str | None:
    """Describe a missing or changed file of a checkpoint, or return `None`; compare hashes only if `thorough`."""
    if not (checkpoint / MANIFEST).is_file():
        return f"it has no {MANIFEST}, which `trl-ces train` writes last"
    try:
        entries = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))
        for name, entry in entries.items():
            if not (checkpoint / name).is_file():
                return f"{name} is missing"
            if (size := (checkpoint / name).stat().st_size) != entry["size"]:
                return f"{name} has {size} bytes instead of {entry['size']}"
        with ThreadPoolExecutor(8) as pool:
            current = pool.map(_describe, [checkpoint / name for name in entries] if thorough else [])
            changed = [name for name, entry in zip(entries, current, strict=False) if entry != entries[name]]
        return f"{changed[0]} has changed since it was saved" if changed else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{MANIFEST}: {error}"


def has_optimizer(checkpoint: Path) -> bool:
    """Return whether a checkpoint contains more than the model (see `save_only_model`)."""
    names = ("optimizer*", "scheduler.pt", "rng_state*", "global_step*")
    return any(any(checkpoint.glob(name)) for name in names)


def list_checkpoints(output_dir: Path) -> list[Path]:
    """Return all complete and incomplete checkpoints in `output_dir`, oldest first."""
    steps = {folder: re.fullmatch(r"checkpoint-(\d+)", folder.name) for folder in output_dir.glob("checkpoint-*")}
    return [folder for _, folder in sorted((int(number[1]), folder) for folder, number in steps.items() if number)]


def delete_checkpoints(output_dir: Path) -> None:
    """Delete the checkpoints and the Trainer state of an earlier run."""
    folders = list_checkpoints(output_dir)
    if folders:
        print(
            f"Deleting {', '.join(folder.name for folder in folders)} from an earlier run in {output_dir}.", flush=True
        )
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)  # another machine may delete the folder at the same time
    (output_dir / STATE).unlink(missing_ok=True)


def newest_checkpoint(
    output_dir: Path, length: Length | None = None, since: float = 0.0, thorough: bool = True
) -> Path | None:
    """
    Return the newest checkpoint in `output_dir` that can be resumed and has steps left, or `None`.

    Skip model-only checkpoints, checkpoints saved before time `since`, and, with a warning, damaged checkpoints.
    Without `thorough`, compare only file sizes and do not warn.
    """
    for folder in reversed(list_checkpoints(output_dir)):
        state = read_state(folder)
        if state is not None:
            is_earlier = (folder / STATE).stat().st_mtime < since
            if is_earlier or is_finished(state, length) or not has_optimizer(folder):
                continue
        damage = f"{STATE} is missing or truncated" if state is None else find_damage(folder, thorough)
        if damage is None:
            return folder
        if thorough:
            logger.warning("%s is damaged (%s); trying the previous checkpoint.", folder, damage)
    return None


def resume_hint(output_dir: Path, length: Length, since: float, resumed_from: Path | None) -> str:
    """Explain how to resume a run that started at time `since`, possibly from the checkpoint `resumed_from`."""
    checkpoint = newest_checkpoint(output_dir, length, since, thorough=False) or resumed_from
    if not checkpoint:
        option = " with `--overwrite_output_dir true`" if list_checkpoints(output_dir) else ""
        return f"This run has no checkpoint to resume from: start it again{option}."
    newest = newest_checkpoint(output_dir, length, thorough=False)
    value = "true" if checkpoint == newest else shlex.quote(str(checkpoint))
    return f"Resume from {checkpoint} with the same command and `--resume_from_checkpoint {value}`."
