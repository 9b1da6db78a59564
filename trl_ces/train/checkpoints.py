"""Find the checkpoint from which a stopped run resumes."""

import json
import logging
import re
import shlex
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

logger = logging.getLogger(__name__)
STATE = "trainer_state.json"


@dataclass(frozen=True)
class Length:
    """Length of a run in the Trainer's settings: `max_steps` if positive, else `num_train_epochs`."""

    max_steps: int = -1
    num_train_epochs: float = 3.0


def read_state(checkpoint: Path) -> dict[str, Any] | None:
    """Return the Trainer state, the last file written to a checkpoint, or `None` if it is missing or truncated."""
    try:
        state = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the run was killed before the file was complete
        return None
    return state if isinstance(state, dict) and "global_step" in state else None


def is_finished(state: dict[str, Any], length: Length | None = None) -> bool:
    """Return whether all planned steps are done; a run resumed from such a checkpoint could make an extra step."""
    planned = state.get("max_steps", 0)
    if length is not None and length.max_steps > 0:
        planned = length.max_steps
    elif length is not None and length.num_train_epochs > state.get("num_train_epochs", length.num_train_epochs):
        return False
    return 0 < planned <= state["global_step"]


def find_damage(checkpoint: Path) -> str | None:
    """Describe the first file of a checkpoint with an invalid header or size; return `None` if all files are valid."""
    for file in sorted(checkpoint.rglob("*.safetensors")):
        try:
            with safe_open(file, framework="np"):
                pass
        except (SafetensorError, OSError, ValueError) as error:  # an empty file cannot be mapped
            return f"{file.name}: {error}"
    for file in sorted([*checkpoint.rglob("*.pt"), *checkpoint.rglob("*.pth")]):
        if not zipfile.is_zipfile(file):  # the zip directory is written last
            return f"{file.name} is truncated"
    return None


def has_optimizer(checkpoint: Path) -> bool:
    """Return whether a checkpoint has optimizer state, which the Trainer saves together with the RNG state."""
    return any(checkpoint.glob("rng_state*"))


def list_checkpoints(output_dir: Path) -> list[Path]:
    """Return all checkpoints in `output_dir`, complete or not, oldest first."""
    steps = {folder: re.fullmatch(r"checkpoint-(\d+)", folder.name) for folder in output_dir.glob("checkpoint-*")}
    return [folder for _, folder in sorted((int(number[1]), folder) for folder, number in steps.items() if number)]


def earlier_checkpoints(output_dir: Path, resumed: Any) -> set[tuple[Path, int]]:
    """Return earlier runs' checkpoints with their modification times, to recognize checkpoints that are rewritten."""
    if resumed is True:
        return set()
    own = Path(resumed or "").resolve()
    states = [folder / STATE for folder in list_checkpoints(output_dir) if folder.resolve() != own]
    return {(state.parent, state.stat().st_mtime_ns) for state in states if state.exists()}


def newest_checkpoint(
    output_dir: Path, length: Length | None = None, excluded: Collection[tuple[Path, int]] = ()
) -> Path | None:
    """
    Return the newest checkpoint in `output_dir` that can be resumed and has steps left, or `None`.

    Skip incomplete, model-only and `excluded` checkpoints (see [`earlier_checkpoints`]); skip damaged ones with a
    warning.
    """
    for folder in reversed(list_checkpoints(output_dir)):
        state = read_state(folder)
        if state is None or is_finished(state, length) or not has_optimizer(folder):
            continue
        if (folder, (folder / STATE).stat().st_mtime_ns) in excluded:
            continue
        damage = find_damage(folder)
        if damage is None:
            return folder
        logger.warning("%s is damaged (%s); trying the previous checkpoint.", folder, damage)
    return None


def resume_hint(output_dir: Path, length: Length, excluded: Collection[tuple[Path, int]]) -> str:
    """Explain in one sentence how to resume a stopped run; ignore `excluded` checkpoints."""
    checkpoint = newest_checkpoint(output_dir, length, excluded)
    if checkpoint is None:
        return "There is no checkpoint yet: start again."
    value = "true" if checkpoint == newest_checkpoint(output_dir, length) else shlex.quote(str(checkpoint))
    return f"Resume from {checkpoint} with the same command and `--resume_from_checkpoint {value}`."
