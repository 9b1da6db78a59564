"""Methods x seeds as resumable runs, several at a time, and the comparison of their results."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from ..support.errors import UserError
from ..support.files import Busy, lock_file, sign
from ..train.checks import check
from ..train.command_line import CommandLine
from ..train.launch import read_accelerate_config
from ..train.shipped import find_accelerate_config
from .cells import Cell, Study
from .folder import check_unchanged, finish_training, is_finished, is_trained, start_clock, write_recipe
from .measuring import check_evaluation, measuring_command
from .processes import LOCK, Pending, RunFailed, Step, run_all
from .results import COMPARISON, CURVES, RESULTS, Results, accuracy_reward


@dataclass(frozen=True)
class Finished:
    """What a start of a study left: the comparison as Markdown, the files that hold it, the runs that failed."""

    comparison: str
    files: list[str]
    failed: list[RunFailed]


def run_study(study: Study, at_a_time: int, say: Callable[[str], None]) -> Finished:
    """
    Checks every run, runs those that are not finished, and compares.

    Args:
        study ([`Study`]):
            The study.
        at_a_time (`int`):
            Runs at a time.
        say (`Callable`):
            Gets a line at the start, and one for each run that finishes.

    Returns:
        [`Finished`]

    Raises:
        UserError: if the study or one of its runs is refused, or another start of it is at work; nothing has been
            started then.
    """
    if at_a_time < 1:
        raise UserError(f"`--jobs` is {at_a_time}: at least one run at a time.")
    missing = [name for name in ("scipy", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UserError(f'the comparison needs {" and ".join(missing)}: pip install "trl_ces[study]".')
    prepare(study, at_a_time)  # before anything is written
    try:
        with lock_file(study.output_dir / LOCK) as lock:
            sign(lock, os.getpid())
            return _run_locked(study, at_a_time, say)
    except Busy as error:  # another start of the study, or a run that a killed one left behind
        raise UserError(str(error)) from None


def _run_locked(study: Study, at_a_time: int, say: Callable[[str], None]) -> Finished:
    pending, slots = prepare(study, at_a_time)  # again, now that no other start can change anything
    results = Results(study)
    for cell in study.cells:
        if is_finished(cell, study.evaluation):
            results.add(cell)
    say(
        f"{len(study.cells)} runs in {study.output_dir}: {len(results)} finished, {len(pending)} to go, "
        f"{at_a_time} at a time."
    )

    def on_finish(cell: Cell) -> None:
        row = results.add(cell)
        results.write_tables()
        if not study.keep_checkpoints:
            for checkpoint in cell.folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
        say(f"[{len(results)}/{len(study.cells)}] {summary(cell, row)}")

    failed = run_all(pending, slots, on_finish)
    if not len(results):
        return Finished("", [], failed)
    comparison = results.write_tables()
    return Finished(comparison, [RESULTS, CURVES, COMPARISON, *results.write_curves()], failed)


def summary(cell: Cell, row: dict[str, Any]) -> str:
    """One line for a run that has just finished."""
    entropy = f", {row['entropy_bits']:.3f} bits" if "entropy_bits" in row else ""
    spent = f" ({row['train/seconds']:.0f} s of training)" if row["train/seconds"] is not None else ""
    return f"{cell.name}: {100 * row['accuracy']:.1f} %, {row['length_tokens']:.1f} tokens{entropy}{spent}"


def prepare(study: Study, at_a_time: int) -> tuple[list[Pending], list[dict[str, str]]]:
    """Checks every run as `trl-ces train` would, and finds what is left to do and on which devices.

    Returns:
        `tuple`: the pending runs in the study's order, and for each of the runs at a time its environment variables.

    Raises:
        UserError: naming the run, the field, its value and the way out.
    """
    if study.evaluation is not None:
        check_evaluation(study.evaluation)
    devices = share_devices(study, at_a_time)
    pending = []
    for cell in study.cells:
        try:
            accuracy_reward(cell)
            check_unchanged(cell)
            if not is_finished(cell, study.evaluation):
                pending.append(make_pending(study, cell, devices))
        except UserError as error:
            raise UserError(f"{cell.name}: {error}") from None
    return pending, devices.slots


@dataclass(frozen=True)
class Devices:
    """`processes` of each run (`None`: the launcher decides), and each slot's environment variables."""

    on_cpu: bool
    processes: int | None
    slots: list[dict[str, str]]


def share_devices(study: Study, at_a_time: int) -> Devices:
    """Shares this machine's devices out among the runs.

    Raises:
        UserError: if there are too few.
    """
    file = study.accelerate_config
    settings = read_accelerate_config(find_accelerate_config(file)) if file is not None else {}
    on_cpu = settings.get("use_cpu") is True or all(cell.recipe.get("use_cpu") is True for cell in study.cells)
    devices = [] if on_cpu else visible_devices()
    if not devices:  # a CPU; or no accelerator, which the first run's own check refuses
        return Devices(on_cpu, study.num_processes, [{}] * at_a_time)
    processes = study.num_processes or settings.get("num_processes") or max(1, len(devices) // at_a_time)
    if processes * at_a_time > len(devices):
        raise UserError(
            f"`--jobs {at_a_time}` with {processes} processes each needs {at_a_time * processes} devices, and there "
            f"are {len(devices)}: lower `--jobs` or `num_processes`."
        )
    shares = [devices[slot * processes : (slot + 1) * processes] for slot in range(at_a_time)]
    return Devices(on_cpu, processes, [{"CUDA_VISIBLE_DEVICES": ",".join(share)} for share in shares])


def visible_devices() -> list[str]:
    """The accelerators that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named:
        return named.split(",")
    return [str(index) for index in range(torch.accelerator.device_count() if torch.accelerator.is_available() else 0)]


def make_pending(study: Study, cell: Cell, devices: Devices) -> Pending:
    """What is left to do for a cell: train, continue training, measure."""
    line = CommandLine(config=str(cell.recipe_file), accelerate_config=study.accelerate_config)
    if devices.processes is not None:
        line.accelerate_flags["num_processes"] = [str(devices.processes)]
    if not devices.on_cpu and (devices.processes or 1) > 1:
        line.accelerate_flags["main_process_port"] = [str(free_port())]  # each run needs its own
    checkpoint = cell.checkpoint()
    if cell.trained and checkpoint is not None:
        line.overrides["resume_from_checkpoint"] = [str(checkpoint)]
    plan = check(line, cell.checked_recipe, cell.recipe_file)
    steps = []
    if not is_trained(cell):
        begin, finish = partial(_begin_training, cell), partial(finish_training, cell)
        steps.append(Step(plan.command, cell.folder / "train.log", begin, finish))
    if study.evaluation is not None:
        command = measuring_command(cell, study.evaluation)
        log = cell.folder / "evaluation.log"
        steps.append(Step(command, log) if cell.trained else Step(command, log, partial(write_recipe, cell)))
    return Pending(cell, steps, {**cell.checked_recipe.env, **plan.env})


def _begin_training(cell: Cell) -> None:
    write_recipe(cell)
    start_clock(cell)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
