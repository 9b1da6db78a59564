"""Several runs at a time, each a chain of processes, stopped together and never two in one folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

import psutil

from ...support.files import lock_file, sign

POLL_SECONDS = 0.2
LOCK = ".lock"  # in the folder of a study, and of a run


@dataclass(frozen=True)
class Step:
    """One process of a run: its command and log, what to do just before it and after it succeeded."""

    command: list[str]
    log: Path
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Pending:
    """A run: its name and folder, the steps left to do, in order, and the variables that its processes get."""

    name: str
    folder: Path
    steps: list[Step]
    env: dict[str, str] = field(default_factory=dict)


class RunFailed(RuntimeError):
    """A process ended with an exit code other than 0 (128 + n: by signal n). Quotes the last line of its log."""

    def __init__(self, name: str, code: int, log: Path):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "(it is empty)"
        super().__init__(f"{name} stopped with exit code {code}. The last line of {log}: {last}")
        self.name, self.code, self.log = name, code, log


@dataclass
class _Running:
    run: Pending
    slot: int
    lock: IO[str]
    steps: list[Step]
    child: subprocess.Popen[bytes]


def run_all(
    runs: Iterable[Pending],
    slots: list[dict[str, str]],
    on_finish: Callable[[str], None] = lambda name: None,
    on_failure: Callable[[RunFailed], None] = lambda failure: None,
    on_wait: Callable[[], None] = lambda: None,
    patience_s: float = 30.0,
) -> list[RunFailed]:
    """Runs `runs` in order, one in each slot at a time, and returns the failures.

    Ctrl-C and SIGTERM end all of them, after `patience_s` by SIGKILL; the next start continues from what they saved.
    A slot is the environment variables that give a run its devices. `on_finish` gets the name of each success,
    `on_failure` each failure when it happens, which may be hours before the end; `on_wait` is called all the time.
    """
    waiting, failed = list(runs), []
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
            on_wait()
            for entry in [entry for entry in running if entry.child.poll() is not None]:
                step = entry.steps[0]
                code = _advance(entry, slots[entry.slot], on_finish)
                if code is not None:
                    running.remove(entry)
                    entry.lock.close()
                if code:
                    failed.append(RunFailed(entry.run.name, code if code > 0 else 128 - code, step.log))
                    on_failure(failed[-1])
    finally:
        _end(running, patience_s)
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt if received[0] == signal.SIGINT else SystemExit(128 + received[0])
    return failed


def _advance(entry: _Running, env: dict[str, str], on_finish: Callable[[str], None]) -> int | None:
    """After a process has ended: starts the next (`None`), or returns the run's exit code."""
    step, code = entry.steps.pop(0), entry.child.returncode
    if code != 0:
        return code
    try:
        step.after()
        if entry.steps:
            entry.child = _launch(entry.steps[0], entry.run, env, entry.lock)
            return None
        on_finish(entry.run.name)
    except Exception:  # it concerns this run alone: its log gets the traceback, the others go on
        with step.log.open("a", encoding="utf-8") as log:
            log.write(traceback.format_exc())
        return 1
    return 0


def _start(run: Pending, slot: int, env: dict[str, str]) -> _Running:
    # The child inherits the lock: while it lives, even without us, no second run starts in this folder.
    lock = lock_file(run.folder / LOCK)
    return _Running(run, slot, lock, list(run.steps), _launch(run.steps[0], run, env, lock))


def _launch(step: Step, run: Pending, env: dict[str, str], lock: IO[str]) -> subprocess.Popen[bytes]:
    step.before()
    with step.log.open("ab") as output:
        child = subprocess.Popen(
            step.command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **run.env, **env},
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )
    sign(lock, child.pid)
    return child


def _end(running: list[_Running], patience_s: float) -> None:
    """Ends the processes that still run and all their children; torchrun's have sessions of their own."""
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
