"""
Start grading workers, which can be killed at any time, and send them requests. `python -c` runs the supervisor of
worker.py in a new process: a fork would inherit CUDA and threads, and multiprocessing's spawn would run the user's
script again.
"""

import atexit
import contextlib
import itertools
import json
import logging
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

logger = logging.getLogger(__name__)

DEFAULT_LIMIT_S = 3.0
DEFAULT_MEMORY_BYTES = 1 << 30
# The kernel ends a comparison at its limit. A worker that has not replied this many seconds later is replaced.
GRACE_S = 30.0
START_LIMIT_S = 120.0
# The folder that contains this package comes last in `sys.path`, because its files could shadow standard modules.
_ROOT = str(Path(__file__).resolve().parents[2])
_COMMAND = f"import sys; sys.path.append({_ROOT!r}); from trl_ces.grading.worker import main; main()"
_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT")


class WorkerLost(RuntimeError):
    """A grading worker exited or stopped responding during a request."""


class Worker:
    """A supervisor process and its pipes. Not thread-safe: a [`WorkerPool`] lends it to one thread at a time."""

    def __init__(self, memory_bytes: int = DEFAULT_MEMORY_BYTES):
        self.memory_bytes = memory_bytes
        self.process: subprocess.Popen[bytes] | None = None
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the worker
        self._received = b""
        self._ids = itertools.count(1)

    def request(self, message: dict, limit_s: float) -> dict:
        """Send a request and wait for its reply."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        request_id = next(self._ids)
        deadline = time.monotonic() + limit_s + GRACE_S
        line = json.dumps({**message, "id": request_id, "limit": limit_s}).encode() + b"\n"
        try:
            while line:
                self._wait_for(self._stdin, select.POLLOUT, deadline)
                line = line[os.write(self._stdin, line) :]
            while True:
                reply = self._receive(deadline)
                if reply.get("id") == request_id:
                    return reply
        except (OSError, WorkerLost) as error:
            tail = self._stderr_tail()
            self.stop()
            raise WorkerLost(f"{error}{tail}") from error

    def stop(self) -> None:
        """Kill the worker and its child."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # already gone
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this process's ends of the pipes without killing the worker."""
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
        self.process = None
        self._received = b""

    def _start(self) -> None:
        self.stop()
        environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
        # At the memory limit, Python's integers raise MemoryError, whereas gmpy2 aborts. A fixed hash seed makes
        # sympy's choices, and thus the grades, repeatable.
        environment |= {"SYMPY_GROUND_TYPES": "python", "PYTHONHASHSEED": "0"}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(self.memory_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches only the trainer, which then stops its workers
            )
            self._stdin, self._stdout = (pipe.fileno() for pipe in (self.process.stdin, self.process.stdout) if pipe)
            os.set_blocking(self._stdin, False)
            self._receive(time.monotonic() + START_LIMIT_S)
        except (OSError, WorkerLost) as error:
            tail, was_killed = self._stderr_tail(), False
            with contextlib.suppress(subprocess.TimeoutExpired):  # the process hangs
                was_killed = self.process is not None and self.process.wait(timeout=1) < 0
            self.stop()
            if was_killed:  # perhaps a temporary lack of memory, not a missing package
                raise
            raise RuntimeError(
                f"A grading worker did not start. Check that math-verify is installed for {sys.executable} and that "
                f"memory is available for one more process. {error}{tail}"
            ) from error

    def _receive(self, deadline: float) -> dict:
        while b"\n" not in self._received:
            self._wait_for(self._stdout, select.POLLIN, deadline)
            chunk = os.read(self._stdout, 65536)
            if not chunk:
                raise WorkerLost("The grading worker exited.")
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    @staticmethod
    def _wait_for(descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise WorkerLost("The grading worker does not respond.")

    def _stderr_tail(self) -> str:
        size = os.fstat(self._stderr.fileno()).st_size
        tail = os.pread(self._stderr.fileno(), 2000, max(0, size - 2000)).decode(errors="replace").strip()
        return f" Its stderr ends with:\n{tail}" if tail else ""


def default_worker_count() -> int:
    """Return the number of cores available to this process, at least 1 and at most 8."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(8, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


class WorkerPool:
    """A thread-safe pool of grading workers, each started on its first request."""

    def __init__(self, workers: int | None = None, memory_bytes: int = DEFAULT_MEMORY_BYTES):
        count = default_worker_count() if workers is None else workers
        if count < 1:
            raise ValueError(f"workers={workers}: a pool needs at least 1 worker.")
        self.workers = [Worker(memory_bytes) for _ in range(count)]
        self._reset()
        _POOLS.append(self)

    def _reset(self) -> None:
        # Last in, first out, so that few requests start few workers.
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        for worker in self.workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(len(self.workers), thread_name_prefix="trl_ces_grading")

    def map(self, messages: list[dict], limit_s: float = DEFAULT_LIMIT_S) -> list[dict]:
        """Send requests in parallel and return the replies in order. Retry a request once if its worker dies."""
        if len(messages) <= 1:
            return [self._request(message, limit_s) for message in messages]
        return list(self._threads.map(lambda message: self._request(message, limit_s), messages))

    def close(self) -> None:
        """Stop the workers. A later request restarts them."""
        for worker in self.workers:
            worker.stop()

    def _request(self, message: dict, limit_s: float) -> dict:
        worker = self._idle.get()
        try:
            reply = _try_request(worker, message, limit_s)
            return _try_request(worker, message, limit_s) if reply["status"] == "died" else reply
        finally:
            self._idle.put(worker)


def _try_request(worker: Worker, message: dict, limit_s: float) -> dict:
    try:
        return worker.request(message, limit_s)
    except WorkerLost as lost:
        return {"status": "died", "error": str(lost)}


_POOLS: list[WorkerPool] = []
_shared: WorkerPool | None = None
_shared_lock = threading.Lock()


def shared_pool() -> WorkerPool:
    """Return the pool of this process, created on first use."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = WorkerPool()
        return _shared


def _close_pools() -> None:
    for pool in _POOLS:
        pool.close()


def _forget_pools() -> None:
    # A forked process, such as a DataLoader worker, must neither share its parent's pipes nor wait for its parent's
    # locks, workers or threads, because a fork does not copy threads.
    global _shared, _shared_lock
    for pool in _POOLS:
        for worker in pool.workers:
            worker.forget()
        pool._reset()
    _shared_lock = threading.Lock()


atexit.register(_close_pools)
os.register_at_fork(after_in_child=_forget_pools)
