"""The runs of a study as processes: started as `trl-ces train` starts its own, several at a time, stopped together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

import psutil

from ..support.files import lock_file, sign
from .cells import Cell

POLL_SECONDS = 0.2
LOCK = ".lock"  # in the folder of a study, and of a run


@dataclass(frozen=True)
class Stage:
    """One process of a job: what to do just before it, its command, its log, what to do once it ended well."""

    command: list[str]
    log: Path
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None


@dataclass
class Job:
    """What is left to do for a cell, in order."""

    cell: Cell
    stages: list[Stage]
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class _Running:
    job: Job
    slot: int
    lock: IO[str]
    stages: list[Stage]
    child: subprocess.Popen[bytes]


@dataclass(frozen=True)
class Failure:
    """A cell whose process ended with `code`; `log` says why."""

    cell: Cell
    log: Path
    code: int


def slot_environments(at_a_time: int, devices: list[str], per_job: int) -> list[dict[str, str]]:
    """For each slot the variables that give its processes devices of their own; empty on a CPU."""
    if not devices:
        return [{} for _ in range(at_a_time)]
    return [
        {"CUDA_VISIBLE_DEVICES": ",".join(devices[slot * per_job : (slot + 1) * per_job])} for slot in range(at_a_time)
    ]


def run_jobs(
    jobs: Iterable[Job],
    slots: list[dict[str, str]],
    on_finish: Callable[[Cell], None],
    patience_s: float = 30.0,
) -> list[Failure]:
    """Runs all jobs, as many at a time as there are slots.

    Ctrl-C and SIGTERM end all of them; what they had saved stays, and the next start goes on from there.

    Args:
        jobs (iterable of [`Job`]):
            In the order in which to start them.
        slots (`list[dict[str, str]]`):
            Environment variables of each place in which a job can run.
        on_finish (`Callable`):
            Called with the cell of each job that ended well.
        patience_s (`float`, *optional*, defaults to `30.0`):
            Seconds between asking the processes to end and ending them.

    Returns:
        `list[Failure]`: those that did not.

    Raises:
        Busy: if a process of an earlier start is still at work in a cell's folder; those running are ended first.
        KeyboardInterrupt: after a signal.
    """
    waiting, failed = list(jobs), []
    running: list[_Running] = []
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while (waiting or running) and not received:
            free = [slot for slot in range(len(slots)) if slot not in {entry.slot for entry in running}]
            for slot in free[: len(waiting)]:
                running.append(_start(waiting.pop(0), slot, slots[slot]))
            time.sleep(POLL_SECONDS)
            for entry in [entry for entry in running if entry.child.poll() is not None]:
                stage = entry.stages[0]
                code = _advance(entry, slots[entry.slot], on_finish)
                if code is not None:
                    running.remove(entry)
                    entry.lock.close()
                if code:
                    failed.append(Failure(entry.job.cell, stage.log, code if code > 0 else 128 - code))
    finally:
        _end(running, patience_s)
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt
    return failed


def _advance(entry: _Running, env: dict[str, str], on_finish: Callable[[Cell], None]) -> int | None:
    """After a stage has ended: the next one (`None`), or the job's end (0), or its failure (the exit code)."""
    stage, code = entry.stages.pop(0), entry.child.returncode
    if code != 0:
        return code
    try:
        stage.after()
        if entry.stages:
            entry.child = _launch(entry.stages[0], entry.job, env, entry.lock)
            return None
        on_finish(entry.job.cell)
    except Exception:  # whatever it is, it concerns this run: the others go on, and its log tells
        with stage.log.open("a", encoding="utf-8") as log:
            log.write(traceback.format_exc())
        return 1
    return 0


def _start(job: Job, slot: int, env: dict[str, str]) -> _Running:
    # The process that we start inherits it: as long as it lives, even without us, no second run starts in this folder.
    lock = lock_file(job.cell.folder / LOCK)
    return _Running(job, slot, lock, list(job.stages), _launch(job.stages[0], job, env, lock))


def _launch(stage: Stage, job: Job, env: dict[str, str], lock: IO[str]) -> subprocess.Popen[bytes]:
    stage.before()
    with stage.log.open("ab") as output:
        child = subprocess.Popen(
            stage.command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **job.env, **env},
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )
    sign(lock, child.pid)
    return child


def _end(running: list[_Running], patience_s: float) -> None:
    """Ends the processes that still run, with all their children: torchrun's have sessions of their own."""
    descendants: list[psutil.Process] = []
    for entry in running:
        if entry.child.poll() is None:
            descendants += psutil.Process(entry.child.pid).children(recursive=True)
            os.killpg(entry.child.pid, signal.SIGTERM)
    deadline = time.monotonic() + patience_s
    for entry in running:
        try:
            entry.child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(entry.child.pid, signal.SIGKILL)
            entry.child.wait()
    _, left = psutil.wait_procs(descendants, timeout=max(0.0, deadline - time.monotonic()))
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    for entry in running:
        entry.lock.close()


def evaluation_command(folder: Path, settings: str, trained: bool) -> list[str]:
    """The process that measures a cell's model."""
    state = "trained" if trained else "untrained"
    words: list[Any] = [sys.executable, "-m", "trl_ces.study.worker", folder, settings, state]
    return [str(word) for word in words]
