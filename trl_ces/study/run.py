"""`trl-ces study`: methods x seeds as resumable runs, several at a time, and the comparison of what came out."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import shutil
import socket
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.errors import UserError
from ..train.command_line import CommandLine
from ..train.shipped import find_accelerate_config, find_recipe

if TYPE_CHECKING:
    from .cells import Cell, Study
    from .jobs import Job


def run(argv: list[str]) -> int:
    """
    Checks every run of a study, runs what is not finished, and compares.

    Args:
        argv (`list[str]`):
            The words behind `trl-ces study`.

    Returns:
        `int`: 0, or 1 if a run failed.

    Raises:
        UserError: if the study or one of its runs is refused; nothing has been started then.
    """
    parser = argparse.ArgumentParser(
        prog="trl-ces study",
        description="Train several methods over several seeds and compare them. Started again, it goes on where it "
        "was: a finished run is kept, a half-finished one continues from its last checkpoint.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, help="a study's YAML file, or a shipped one's name: arithmetic")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default 1)")
    parser.add_argument("--output_dir", type=Path, help="instead of the study's own")
    options = parser.parse_args(argv)
    file = find_recipe(options.config, kind="study")
    if options.jobs < 1:
        raise UserError(f"`--jobs` is {options.jobs}: at least one run at a time.")
    missing = [name for name in ("scipy", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UserError(f'the comparison needs {" and ".join(missing)}: pip install "trl_ces[study]".')
    from .cells import load_study

    return run_study(load_study(file, find_recipe, options.output_dir), options.jobs)


def run_study(study: Study, at_a_time: int) -> int:
    """Checks, runs and compares; see [`run`]."""
    from ..support.files import Busy, lock_file, sign
    from .jobs import LOCK

    prepare(study, at_a_time)  # before anything is written
    try:
        with lock_file(study.output_dir / LOCK) as lock:
            sign(lock, os.getpid())
            return _run_locked(study, at_a_time)
    except Busy as error:  # another start of the study, or a run that a killed one left behind
        raise UserError(str(error)) from None


def _run_locked(study: Study, at_a_time: int) -> int:
    from .jobs import run_jobs
    from .outcome import Outcome, summary
    from .results import is_finished

    jobs, slots = prepare(study, at_a_time)  # as things stand now that no other start can change them
    outcome = Outcome(study)
    for cell in study.cells:
        if is_finished(cell, study.evaluation):
            outcome.add(cell)
    print(
        f"{len(study.cells)} runs in {study.output_dir}: {len(outcome)} finished, {len(jobs)} to go, "
        f"{at_a_time} at a time.",
        flush=True,
    )

    def on_finish(cell: Cell) -> None:
        row = outcome.add(cell)
        outcome.write_tables()
        if not study.keep_checkpoints:
            for checkpoint in cell.folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
        print(f"[{len(outcome)}/{len(study.cells)}] {summary(row)}", flush=True)

    failed = run_jobs(jobs, slots, on_finish)
    if len(outcome):
        outcome.write_tables()
        pictures = outcome.write_curves()
        print(f"\n{(study.output_dir / 'comparison.md').read_text(encoding='utf-8')}")
        print(f"In {study.output_dir}: {', '.join(['results.csv', 'curves.csv', 'comparison.md', *pictures])}.")
    for failure in failed:
        lines = failure.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = lines[-1] if lines else "(it is empty)"
        print(
            f"{failure.cell.name} stopped with exit code {failure.code}. The last line of {failure.log}: {said}",
            file=sys.stderr,
        )
    return 1 if failed else 0


def prepare(study: Study, at_a_time: int) -> tuple[list[Job], list[dict[str, str]]]:
    """Checks every run as `trl-ces train` would, and says what is left to do and in which places.

    Returns:
        Jobs in the study's order, and the environment variables of each place.

    Raises:
        UserError: naming the run, the field, its value and the way out.
    """
    from .outcome import accuracy_reward
    from .results import check_unchanged, is_finished

    if study.evaluation is not None:
        check_evaluation(study.evaluation)
    place = find_place(study, at_a_time)
    jobs = []
    for cell in study.cells:
        try:
            accuracy_reward(cell)
            check_unchanged(cell)
            if not is_finished(cell, study.evaluation):
                jobs.append(make_job(study, cell, place))
        except UserError as error:
            raise UserError(f"{cell.name}: {error}") from None
    return jobs, place.slots


@dataclass(frozen=True)
class Place:
    """Where runs run: `processes` for each (`None`: as the launcher decides), and the slots' variables."""

    on_cpu: bool
    processes: int | None
    slots: list[dict[str, str]]


def find_place(study: Study, at_a_time: int) -> Place:
    """How the devices of this machine are shared out among the runs.

    Raises:
        UserError: if there are too few devices.
    """
    from ..train.launch import read_accelerate_config
    from .jobs import slot_environments

    file = study.accelerate_config
    settings = read_accelerate_config(find_accelerate_config(file)) if file is not None else {}
    on_cpu = settings.get("use_cpu") is True or all(cell.recipe.get("use_cpu") is True for cell in study.cells)
    devices = [] if on_cpu else visible_devices()
    if not devices:  # a CPU, or no accelerator, which is refused with the run's own sentence
        return Place(on_cpu, study.num_processes, slot_environments(at_a_time, [], 1))
    processes = study.num_processes or settings.get("num_processes") or max(1, len(devices) // at_a_time)
    if processes * at_a_time > len(devices):
        raise UserError(
            f"`--jobs {at_a_time}` with {processes} processes each needs {at_a_time * processes} devices, and there "
            f"are {len(devices)}: lower `--jobs` or `num_processes`."
        )
    return Place(on_cpu, processes, slot_environments(at_a_time, devices, processes))


def check_evaluation(settings: dict[str, Any]) -> None:
    """Refuses an evaluation that would fail after the first training.

    Args:
        settings (`dict`):
            The study's `evaluation`. If beside its function `NAME` there is one called `check_NAME`, that is called
            with the same keyword arguments.

    Raises:
        UserError: if the function does not exist, or does not take the settings.
    """
    from ..train.lookup import import_function

    function = import_function(settings["function"], "evaluation")
    arguments = {name: value for name, value in settings.items() if name != "function"}
    try:
        inspect.signature(function).bind("model", **arguments)
    except TypeError as error:
        raise UserError(f"`evaluation`: {settings['function']} does not take these settings: {error}.") from None
    check = vars(sys.modules[function.__module__]).get(f"check_{function.__name__}")
    if check is not None:
        check(**arguments)


def make_job(study: Study, cell: Cell, place: Place) -> Job:
    """What is left to do for a cell: train, go on training, measure."""
    from ..support.environment import environment
    from ..train.checks import check
    from ..train.recipe import make_recipe
    from .jobs import Job, Stage, evaluation_command
    from .results import finish_training, is_trained, start_clock, write_recipe

    line = CommandLine(config=str(cell.recipe_file), accelerate_config=study.accelerate_config)
    if place.processes is not None:
        line.accelerate_flags["num_processes"] = [str(place.processes)]
    if not place.on_cpu and (place.processes or 1) > 1:
        line.accelerate_flags["main_process_port"] = [str(free_port())]  # runs at the same time must not meet on one
    checkpoint = cell.checkpoint()
    if cell.trained and checkpoint is not None:
        line.overrides["resume_from_checkpoint"] = [str(checkpoint)]
    recipe = make_recipe(cell.recipe, study.source, line.overrides)
    plan = check(line, recipe, cell.recipe_file)
    stages = []

    def begin() -> None:
        write_recipe(cell)
        if cell.trained:
            start_clock(cell)

    if not is_trained(cell):
        stages.append(Stage(plan.command, cell.log, begin, lambda: finish_training(cell, environment())))
    if study.evaluation is not None:
        command = evaluation_command(cell.folder, json.dumps(study.evaluation), cell.trained)
        before = begin if not cell.trained else lambda: None
        stages.append(Stage(command, cell.folder / "evaluation.log", before))
    return Job(cell, stages, {**recipe.env, **plan.env})


def visible_devices() -> list[str]:
    """The accelerators that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named:
        return named.split(",")
    return (
        [str(index) for index in range(torch.accelerator.device_count())] if torch.accelerator.is_available() else []
    )


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
