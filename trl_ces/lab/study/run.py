"""Execute the unfinished runs of a study and compare the results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

from ...support.errors import UserError
from ...support.imports import install_line
from ...support.locks import lock_file, write_pid
from ...train.arguments import CommandLine
from ...train.checkpoints import newest_checkpoint
from ...train.checks import check
from ...train.launch import device_count, make_launch, read_accelerate_config, whole_number
from ...train.recipe import find_config
from .cells import Cell, Study
from .comparison import Results, accuracy_reward_name
from .folder import begin_training, check_unchanged, finish_training, is_finished, is_training_complete, write_recipe
from .measuring import check_evaluation, measuring_command
from .processes import LOCK, Pending, RunFailed, Step, run_all


def run_study(study: Study, jobs: int, report: Callable[[str], None]) -> tuple[list[str], list[RunFailed]]:
    """Check and execute the unfinished runs, `jobs` at a time; return the written files and the failures."""
    missing = [name for name in ("scipy", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UserError(f"the comparison needs {' and '.join(missing)}: {install_line('lab')}.")
    prepare(study, jobs)  # checks the runs before anything is written
    if study.evaluation is not None:
        for cell in {cell.variant: cell for cell in study.cells}.values():  # the last cell of each variant
            check_evaluation(study.evaluation, cell.checked_recipe)
    with lock_file(study.output_dir / LOCK) as lock:
        write_pid(lock, os.getpid())
        return _run_pending(study, jobs, report)


def _run_pending(study: Study, jobs: int, report: Callable[[str], None]) -> tuple[list[str], list[RunFailed]]:
    pending, slots = prepare(study, jobs)  # check again under the lock, because files may have changed
    results, count = Results(study), len(study.cells)
    cells = {cell.name: cell for cell in study.cells}
    for name in cells.keys() - {run.name for run in pending}:
        results.add(cells[name])
    report(f"{count} runs in {study.output_dir}: {len(results)} finished, {len(pending)} pending, {jobs} at a time.")

    def on_finish(name: str) -> None:
        cell, row = cells[name], results.add(cells[name])
        results.write_tables()
        if not study.keep_checkpoints:
            for checkpoint in cell.folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
        entropy = f", {row['entropy_bits']:.3f} bits" if "entropy_bits" in row else ""
        seconds = f" ({row['train/seconds']:.0f} s of training)" if row["train/seconds"] is not None else ""
        measures = f"{100 * row['accuracy']:.1f} %, {row['length_tokens']:.1f} tokens{entropy}{seconds}"
        report(f"[{len(results)}/{count}] {name}: {measures}")

    failures = run_all(pending, slots, on_finish, on_failure=lambda failure: report(str(failure)))
    return results.write() if len(results) else [], failures


def prepare(study: Study, jobs: int) -> tuple[list[Pending], list[dict[str, str]]]:
    """Check every run as `trl-ces train` would; return the pending runs and the devices of each slot."""
    processes, slots = share_devices(study, jobs)
    flags = {"num_processes": [str(processes)]}
    if slots[0] and processes > 1:
        flags["main_process_port"] = ["0"]  # lets accelerate choose a free port
    pending, needs_training = [], not all(map(is_training_complete, study.cells))
    # Untrained models come first, so that no two runs wait for the same `model_builder`. The remaining runs are sorted
    # by seed, so that a study that is stopped early covers all methods.
    for cell in sorted(study.cells, key=lambda cell: (cell.has_training, cell.seed)):
        try:
            accuracy_reward_name(cell)
            check_unchanged(cell, processes if needs_training else None)
            if not is_finished(cell, study.evaluation):
                pending.append(_pending_run(study, cell, flags))
        except UserError as error:
            raise UserError(f"{cell.name}: {error}") from None
    return pending, slots


def share_devices(study: Study, jobs: int) -> tuple[int, list[dict[str, str]]]:
    """Return the number of processes per run and, for each slot, the environment variable that lists its devices."""
    file = study.accelerate_config
    settings = read_accelerate_config(find_config(file, "accelerate")) if file is not None else {}
    requested = study.num_processes or whole_number(settings.get("num_processes", 0), "num_processes", minimum=0)
    on_cpu = settings.get("use_cpu") is True or all(cell.recipe.get("use_cpu") is True for cell in study.cells)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else [str(index) for index in range(0 if on_cpu else device_count())]
    if on_cpu or not devices:  # if a recipe needs an accelerator, `check` raises an error later
        return requested or 1, [{}] * jobs
    processes = requested or max(1, len(devices) // jobs)
    if processes * jobs > len(devices):
        raise UserError(
            f"`--jobs {jobs}` with {processes} processes per run needs {jobs * processes} devices, but there are "
            f"{len(devices)}: lower `--jobs` or `num_processes`."
        )
    shares = [devices[slot * processes : (slot + 1) * processes] for slot in range(jobs)]
    return processes, [{"CUDA_VISIBLE_DEVICES": ",".join(share)} for share in shares]


def _pending_run(study: Study, cell: Cell, flags: dict[str, list[str]]) -> Pending:
    """List a cell's remaining steps: train or resume training, then measure. `flags` are passed to accelerate."""
    checkpoint = newest_checkpoint(cell.folder) if cell.has_training else None
    line = CommandLine(accelerate_config=study.accelerate_config, accelerate_flags=flags)
    launch = make_launch(line, cell.checked_recipe)
    check(cell.checked_recipe, launch)
    steps = []
    if not is_training_complete(cell):
        begin, finish = partial(begin_training, cell, launch.num_processes), partial(finish_training, cell)
        command = launch.with_recipe(cell.recipe_file.resolve(), checkpoint)
        steps.append(Step(command, cell.folder / "train.log", begin, finish))
    if study.evaluation is not None:
        command, log = measuring_command(cell, study.evaluation), cell.folder / "evaluation.log"
        steps.append(Step(command, log) if cell.has_training else Step(command, log, partial(write_recipe, cell)))
    return Pending(cell.name, cell.folder, steps, {**cell.checked_recipe.env, **launch.env})
