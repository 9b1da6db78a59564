"""Finished cells as rows of one tidy file.

A cell's folder holds `training.json` once its training has ended and `evaluation.json` once its model was measured;
both are written whole or not at all, so a kill leaves a cell either finished or to be gone on with.
"""

from __future__ import annotations

import csv
import io
import json
import math
import time
from pathlib import Path
from typing import Any

import yaml

from ..support.errors import UserError
from ..support.files import write_json, write_text
from ..support.yaml import read_yaml
from ..train.curves import Curve, read_curves
from .cells import Cell, Study

MEASURES = ("accuracy", "length_tokens", "entropy_bits")
# They say where and under which name: a study may be moved or renamed.
NAMES_ONLY = ("output_dir", "run_name")
# Without `evaluation` a run is judged by the mean over this last part of what it logged in training.
LAST_PART = 0.1


def read_json(file: Path) -> Any:
    """The file's content, `None` if it is not there.

    Raises:
        UserError: if it is damaged.
    """
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{file} is damaged: remove it, and start the study again to do that part anew.") from None


def write_recipe(cell: Cell) -> None:
    """Writes the cell's `recipe.yaml`, if it is not there as it should be."""
    text = yaml.safe_dump(cell.recipe, sort_keys=False, allow_unicode=True)
    if not cell.recipe_file.is_file() or cell.recipe_file.read_text(encoding="utf-8") != text:
        write_text(cell.recipe_file, text)


def is_trained(cell: Cell) -> bool:
    """Whether nothing is left to train."""
    return not cell.trained or (cell.folder / "training.json").is_file()


def is_finished(cell: Cell, evaluation: dict[str, Any] | None) -> bool:
    """Whether the cell need not be run: it is trained, and measured with these settings."""
    measured = read_json(cell.folder / "evaluation.json")
    return is_trained(cell) and (evaluation is None or (measured is not None and measured["settings"] == evaluation))


def check_unchanged(cell: Cell) -> None:
    """Refuses a folder whose run was made by another recipe: it would be taken for this one.

    Raises:
        UserError: naming the fields that differ.
    """
    if not cell.recipe_file.is_file():
        return
    found = read_yaml(cell.recipe_file)
    differing = [
        name
        for name in {**found, **cell.recipe}
        if found.get(name) != cell.recipe.get(name) and name not in NAMES_ONLY
    ]
    if differing:
        changes = "; ".join(
            f"`{name}` {found.get(name)!r} there, {cell.recipe.get(name)!r} here" for name in differing
        )
        raise UserError(
            f"{cell.folder} holds a run with other settings ({changes}): remove that folder to run it again, or give "
            "another `output_dir`."
        )


def start_clock(cell: Cell) -> None:
    """Notes that a training starts now, and how long the part before its checkpoint took."""
    file, checkpoint = cell.folder / "clock.json", cell.checkpoint()
    before = read_json(file)
    seconds = 0.0
    if before is not None and checkpoint is not None:
        saved = (checkpoint / "trainer_state.json").stat().st_mtime
        # A checkpoint older than the last start: that attempt came no further.
        seconds = before["seconds_before"] + max(0.0, saved - before["started"])
    attempts = before["attempts"] + 1 if before else 1
    write_json(file, {"seconds_before": seconds, "started": time.time(), "attempts": attempts})


def finish_training(cell: Cell, packages: dict[str, str]) -> None:
    """Writes `training.json` from the clock and the trainer's own state."""
    clock = read_json(cell.folder / "clock.json")
    state = read_json(cell.folder / "trainer_state.json")
    tokens = [entry["num_tokens"] for entry in state["log_history"] if "num_tokens" in entry]
    seconds = clock["seconds_before"] + time.time() - clock["started"]
    write_json(
        cell.folder / "training.json",
        {
            "seconds": round(seconds, 1),
            "attempts": clock["attempts"],
            "steps": state["global_step"],
            "tokens": int(tokens[-1]) if tokens else None,
            "packages": packages,
        },
    )


def make_row(cell: Cell, accuracy_reward: str, evaluated: bool = True) -> dict[str, Any]:
    """One row of `results.csv`.

    Args:
        cell ([`Cell`]):
            A finished cell.
        accuracy_reward (`str`):
            Name of the reward function whose mean is the training accuracy.
        evaluated (`bool`, *optional*, defaults to `True`):
            Whether the study has an `evaluation`.
    """
    training = read_json(cell.folder / "training.json") or {}
    measured = read_json(cell.folder / "evaluation.json") if evaluated else None
    row: dict[str, Any] = {"variant": cell.variant, "method": cell.method, "seed": cell.seed}
    logged = final_training(read_curves(cell.folder, accuracy_reward)) if cell.trained else {}
    if measured is not None:
        row["measured_on"] = " + ".join(measured["benchmarks"])
        row |= average(measured["benchmarks"])
        for benchmark, values in measured["benchmarks"].items():
            row |= {f"{benchmark}/{name}": value for name, value in values.items()}
    else:
        row |= {"measured_on": f"last {LAST_PART:.0%} of the training log"} | logged
    row |= {f"train/{name}": value for name, value in logged.items()}
    for name in ("seconds", "attempts", "steps", "tokens"):
        row[f"train/{name}"] = training.get(name)
    row["settings"] = json.dumps(cell.recipe, sort_keys=True)
    row["packages"] = json.dumps(training.get("packages") or (measured or {}).get("packages"), sort_keys=True)
    return row


def average(benchmarks: dict[str, dict[str, float]]) -> dict[str, float]:
    """The unweighted mean over benchmarks, as in the last line of the paper's Table 1."""
    shared = [name for name in MEASURES if all(name in values for values in benchmarks.values())]
    return {name: sum(values[name] for values in benchmarks.values()) / len(benchmarks) for name in shared}


def final_training(curve: Curve) -> dict[str, float]:
    """Means over the last `LAST_PART` of the logged points (at least one)."""
    count = max(1, round(LAST_PART * len(curve["step"])))
    names = dict(zip(MEASURES, ("accuracy", "length", "entropy"), strict=True))
    return {name: sum(curve[key][-count:]) / count for name, key in names.items()}


def write_results(study: Study, rows: list[dict[str, Any]]) -> Path:
    """`results.csv`: one row for each run, `None` as an empty field."""
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    last = [name for name in ("settings", "packages") if name in columns]
    ordered = [name for name in columns if name not in last] + last
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, ordered)
    writer.writeheader()
    writer.writerows(rows)
    file = study.output_dir / "results.csv"
    write_text(file, stream.getvalue())
    return file


def write_curves(study: Study, curves: dict[tuple[str, str], dict[int, Curve]]) -> Path:
    """`curves.csv`: one row for each logged point of each run, from (variant, method) -> seed -> curve."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(["variant", "method", "seed", "step", *MEASURES])
    for (variant, method), runs in curves.items():
        for seed, curve in runs.items():
            points = zip(curve["step"], curve["accuracy"], curve["length"], curve["entropy"], strict=True)
            writer.writerows([variant, method, seed, *point] for point in points)
    file = study.output_dir / "curves.csv"
    write_text(file, stream.getvalue())
    return file


def check_measured(benchmarks: Any, function: str) -> None:
    """Refuses what an evaluation returned, if no row could be made of it.

    Raises:
        UserError: if it is not benchmark -> measure -> number, with `accuracy` in [0, 1] and `length_tokens`.
    """
    expected = f"`evaluation`: {function} must return benchmark -> {{accuracy, length_tokens, ...}} with numbers; "
    if not isinstance(benchmarks, dict) or not benchmarks:
        raise UserError(f"{expected}it returned {benchmarks!r:.200}.")
    for name, values in benchmarks.items():
        numbers = isinstance(values, dict) and all(
            isinstance(value, int | float) and math.isfinite(value) for value in values.values()
        )
        if not isinstance(name, str) or not numbers or not {"accuracy", "length_tokens"} <= set(values):
            raise UserError(f"{expected}{name!r} has {values!r:.200}.")
        if not 0 <= values["accuracy"] <= 1:
            raise UserError(f"{expected}the accuracy of {name!r} is {values['accuracy']}, not in [0, 1].")
        if name == "train":
            raise UserError(f"{expected}'train' names the columns of the training log: call it otherwise.")
