"""Which checkpoint a stopped run goes on from."""

import json
import re
from pathlib import Path
from typing import Any


def read_state(checkpoint: Path) -> dict[str, Any] | None:
    """The Trainer's state in a checkpoint's folder, which it writes last; `None` where that is missing or cut off."""
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # a kill while it was written
        return None
    return state if isinstance(state, dict) and "global_step" in state else None


def is_at_its_end(state: dict[str, Any]) -> bool:
    """Whether all planned steps were made. The Trainer, told to go on from there, can make one more."""
    return 0 < state.get("max_steps", 0) <= state["global_step"]


def newest_checkpoint(output_dir: Path) -> Path | None:
    """The newest checkpoint in `output_dir` that is whole and has steps left to make, `None` if there is none."""
    found: dict[int, Path] = {}
    for folder in output_dir.glob("checkpoint-*"):
        number = re.fullmatch(r"checkpoint-(\d+)", folder.name)
        state = read_state(folder) if number else None
        if number and state is not None and not is_at_its_end(state):
            found[int(number[1])] = folder
    return found[max(found)] if found else None
