"""Files in a run's folder that record its progress.

`recipe.yaml` is written first, `clock.json` whenever training starts, `training.json` when training has ended, and
`evaluation.json` when the model has been measured. All writes are atomic, so a killed run can always be resumed.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from ...methods.ces import AUTO
from ...support.environment import environment
from ...support.errors import UserError
from ...support.files import write_json, write_text
from ...support.yaml import dump_yaml, read_yaml
from ...train.checkpoints import newest_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from .cells import Cell

TRAINING, EVALUATION, CLOCK = "training.json", "evaluation.json", "clock.json"
# Fields that may change before a run is resumed, because a study may be moved or renamed.
LOCATION_FIELDS = ("output_dir", "run_name")


def read_json(file: Path) -> Any:
    """Read a JSON file; return `None` if the file does not exist."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def write_recipe(cell: Cell) -> None:
    """Write the cell's `recipe.yaml` in the same format as training."""
    write_text(cell.recipe_file, dump_yaml(cell.checked_recipe.given))


def is_training_complete(cell: Cell) -> bool:
    """Return whether the cell has finished training or has no training."""
    return not cell.has_training or (cell.folder / TRAINING).is_file()


def is_finished(cell: Cell, evaluation: dict[str, Any] | None) -> bool:
    """Return whether training is complete and the model has been evaluated with the `evaluation` settings."""
    if evaluation is None or not is_training_complete(cell):
        return is_training_complete(cell)
    results = read_json(cell.folder / EVALUATION)
    return results is not None and results["settings"] == json.loads(json.dumps(evaluation))


def check_unchanged(cell: Cell, processes: int | None = None) -> None:
    """Raise `UserError` if the folder contains a run with a different recipe or number of `processes`."""
    if not cell.recipe_file.is_file():
        return
    stored, expected = read_yaml(cell.recipe_file), dict(cell.checked_recipe.given)
    if expected.get("ces_tau") == AUTO and "ces_tau" in stored:  # training replaces `auto` with a number
        expected["ces_tau"] = stored["ces_tau"]
    differing = [
        f"`{name}` was {stored.get(name)!r} and is now {expected.get(name)!r}"
        for name in {**stored, **expected}
        if stored.get(name) != expected.get(name) and name not in LOCATION_FIELDS
    ]
    previous_processes = (read_json(cell.folder / CLOCK) or {}).get("processes")
    # The batch grows with the number of processes, unless `responses_per_step` fixes its size.
    has_fixed_batch = cell.checked_recipe.script.responses_per_step is not None
    if processes and previous_processes and processes != previous_processes and not has_fixed_batch:
        differing.append(f"`num_processes` was {previous_processes} and is now {processes}")
    if differing:
        raise UserError(
            f"{cell.folder} contains a run with different settings ({'; '.join(differing)}): remove the folder to "
            "repeat the run, or set another `output_dir`."
        )


def begin_training(cell: Cell, processes: int = 1) -> None:
    """Write the recipe and start the clock, which includes the training time before the resumed checkpoint."""
    write_recipe(cell)
    previous, checkpoint = read_json(cell.folder / CLOCK), newest_checkpoint(cell.folder)
    seconds = 0.0
    if previous is not None and checkpoint is not None:
        saved_at = (checkpoint / "trainer_state.json").stat().st_mtime
        # If the last attempt saved no checkpoint, the newest checkpoint is older than the start of that attempt.
        seconds = previous["seconds_before"] + max(0.0, saved_at - previous["started"])
    attempts = previous["attempts"] + 1 if previous else 1
    clock = {"seconds_before": seconds, "started": time.time(), "attempts": attempts, "processes": processes}
    write_json(cell.folder / CLOCK, clock)


def finish_training(cell: Cell) -> None:
    """Write `training.json` from the clock and the Trainer's state."""
    clock, state = read_json(cell.folder / CLOCK), read_json(cell.folder / "trainer_state.json")
    if state is None:
        raise UserError("training ended before the model was saved.")
    tokens = [entry["num_tokens"] for entry in state["log_history"] if "num_tokens" in entry]
    content = {
        "seconds": round(clock["seconds_before"] + time.time() - clock["started"], 1),
        "attempts": clock["attempts"],
        "steps": state["global_step"],
        "tokens": int(tokens[-1]) if tokens else None,
        "packages": environment(),
    }
    write_json(cell.folder / TRAINING, content)
