"""What the folder of one run holds, and so what is left to do there.

`recipe.yaml` is written first, `clock.json` whenever training starts, `training.json` when it has ended and
`evaluation.json` when the model is measured. Each is written whole or not at all: a killed run is either finished or
can go on.
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
# A study may be moved or renamed: these fields say only where a run lies and what it is called.
NAMES_ONLY = ("output_dir", "run_name")


def read_json(file: Path) -> Any:
    """The file's content, `None` if there is no file."""
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{file} is damaged: remove it and start the study again to repeat that part.") from None


def write_recipe(cell: Cell) -> None:
    """Writes the cell's `recipe.yaml`, as the training itself does."""
    write_text(cell.recipe_file, dump_yaml(cell.checked_recipe.given))


def is_trained(cell: Cell) -> bool:
    """Whether nothing is left to train."""
    return not cell.trained or (cell.folder / TRAINING).is_file()


def is_finished(cell: Cell, evaluation: dict[str, Any] | None) -> bool:
    """Whether the cell is trained, and measured with the settings `evaluation`."""
    if evaluation is None:
        return is_trained(cell)
    measured = read_json(cell.folder / EVALUATION)
    as_kept = json.loads(json.dumps(evaluation))
    return measured is not None and measured["settings"] == as_kept and is_trained(cell)


def check_unchanged(cell: Cell, processes: int | None = None) -> None:
    """Refuses a folder that holds a run of another recipe, or on other than `processes`, as no run of this study."""
    if not cell.recipe_file.is_file():
        return
    found, here = read_yaml(cell.recipe_file), dict(cell.checked_recipe.given)
    if here.get("ces_tau") == AUTO and "ces_tau" in found:  # the training writes the number down
        here["ces_tau"] = found["ces_tau"]
    differing = [
        f"`{name}` {found.get(name)!r} there, {here.get(name)!r} here"
        for name in {**found, **here}
        if found.get(name) != here.get(name) and name not in NAMES_ONLY
    ]
    before = (read_json(cell.folder / CLOCK) or {}).get("processes")
    # Of a larger batch, unless `responses_per_step` keeps it.
    if processes and before and processes != before and cell.checked_recipe.script.responses_per_step is None:
        differing.append(f"`num_processes` {before} there, {processes} here")
    if differing:
        raise UserError(
            f"{cell.folder} holds a run with other settings ({'; '.join(differing)}): remove that folder to run it "
            "again, or give another `output_dir`."
        )


def begin_training(cell: Cell, processes: int = 1) -> None:
    """Writes the recipe, and starts the clock with the seconds that led to the checkpoint to continue from."""
    write_recipe(cell)
    before, checkpoint = read_json(cell.folder / CLOCK), newest_checkpoint(cell.folder)
    seconds = 0.0
    if before is not None and checkpoint is not None:
        saved = (checkpoint / "trainer_state.json").stat().st_mtime
        # A checkpoint older than the last start: that attempt saved none.
        seconds = before["seconds_before"] + max(0.0, saved - before["started"])
    attempts = before["attempts"] + 1 if before else 1
    clock = {"seconds_before": seconds, "started": time.time(), "attempts": attempts, "processes": processes}
    write_json(cell.folder / CLOCK, clock)


def finish_training(cell: Cell) -> None:
    """Writes `training.json` from the clock and the Trainer's state."""
    clock, state = read_json(cell.folder / CLOCK), read_json(cell.folder / "trainer_state.json")
    tokens = [entry["num_tokens"] for entry in state["log_history"] if "num_tokens" in entry]
    content = {
        "seconds": round(clock["seconds_before"] + time.time() - clock["started"], 1),
        "attempts": clock["attempts"],
        "steps": state["global_step"],
        "tokens": int(tokens[-1]) if tokens else None,
        "packages": environment(),
    }
    write_json(cell.folder / TRAINING, content)
