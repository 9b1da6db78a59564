"""Run sequences of processes in parallel, each in a locked folder; SIGINT or SIGTERM stops all of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil

from ...support.locks import lock_file, write_pid

POLL_SECONDS = 0.2
LOCK = ".lock"  # lock file in the folder of a study and of each run
Child = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Step:
    """A process of a run, its log, and functions that are called before it starts and after it succeeds."""

    command: list[str]
    log: Path
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Pending:
    """A run: its remaining steps, in order, and the environment variables of its processes."""

    name: str
    folder: Path
    steps: list[Step]
    env: dict[str, str] = field(default_factory=dict)


class RunFailed(RuntimeError):
    """A process ended with a nonzero exit code (128 + n for signal n). The message quotes the last line of the log."""

    def __init__(self, name: str, code: int, log: Path):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "(empty)"
        super().__init__(f"{name} stopped with exit code {code}. The last line of {log}: {last}")
        self.name, self.code, self.log = name, code, log


def run_all(
    runs: Iterable[Pending],
    slots: list[dict[str, str]],
    on_finish: Callable[[str], None] = lambda name: None,
    on_failure: Callable[[RunFailed], None] = lambda failure: None,
    on_wait: Callable[[], None] = lambda: None,
    grace_seconds: float = 30.0,
) -> list[RunFailed]:
    """
    Start `runs` in order, at most one per slot at a time, and return the failures. Each slot holds the environment
    variables that assign devices to its run.

    Ctrl-C and SIGTERM end all runs; processes that are still alive after `grace_seconds` are killed.
    """
    pending, failures = list(runs), []
    running: dict[int, Generator[Child, None, None]] = {}  # slot -> its run
    children: dict[int, Child] = {}  # slot -> the current process of its run
    signals: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        signals.append(number)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while (pending or running) and not signals:
            for slot in [slot for slot in range(len(slots)) if slot not in running][: len(pending)]:
                running[slot] = _run_steps(pending.pop(0), slots[slot], on_finish)
            for slot, run in list(running.items()):
                try:
                    children[slot] = next(run)
                except StopIteration:
                    del running[slot]
                except RunFailed as failure:
                    del running[slot]
                    failures.append(failure)
                    on_failure(failure)
            time.sleep(POLL_SECONDS)
            on_wait()
    finally:
        end_processes([child for child in children.values() if child.poll() is None], grace_seconds)
        for run in running.values():
            run.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    if signals:
        raise KeyboardInterrupt if signals[0] == signal.SIGINT else SystemExit(128 + signals[0])
    return failures


def _run_steps(run: Pending, env: dict[str, str], on_finish: Callable[[str], None]) -> Generator[Child, None, None]:
    """Execute the steps of a run; yield the current process while it runs."""
    with contextlib.ExitStack() as stack:
        for step in run.steps:
            try:
                if step is run.steps[0]:
                    # The child inherits the lock, so no other run can start in this folder until the child ends.
                    lock = stack.enter_context(lock_file(run.folder / LOCK))
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
                write_pid(lock, child.pid)
                while child.poll() is None:
                    yield child
                code = child.returncode
                if code == 0:
                    step.after()
                    if step is run.steps[-1]:
                        on_finish(run.name)
            except Exception:  # only this run fails; the other runs continue
                code = 1
                with step.log.open("a", encoding="utf-8") as log:
                    log.write(traceback.format_exc())
            if code:
                raise RunFailed(run.name, code if code > 0 else 128 - code, step.log)


def end_processes(children: list[Child], grace_seconds: float) -> None:
    """End processes and all their descendants, including torchrun's workers, which run in their own sessions."""
    descendants = [process for child in children for process in psutil.Process(child.pid).children(recursive=True)]
    for child in children:
        os.killpg(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    _, remaining = psutil.wait_procs(descendants, timeout=max(0.0, deadline - time.monotonic()))
    for process in remaining:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
