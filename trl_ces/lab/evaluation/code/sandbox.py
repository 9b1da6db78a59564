"""Sandbox for untrusted Python code: bubblewrap namespaces, resource limits and a system call filter.

No code runs unless all three are available. docs/evaluation.md, "Code benchmarks", lists the guarantees and their
mechanisms. The sandbox requires Linux, but not root. The kernel kills the whole sandbox at the time limit and when
this process ends.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from ....support.errors import UserError
from . import start

START = Path(start.__file__).read_text(encoding="utf-8")
SANDBOX_MEMORY_BYTES = 2**31
SANDBOX_OUTPUT_BYTES = 2**26
READY_SECONDS, POLL_SECONDS, SPARE_SECONDS = 60.0, 0.1, 10.0
MARK = b"\0"
NOBODY = "65534"
NAMESPACES = ("ipc", "mnt", "net", "pid", "user", "uts")
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")


class SandboxError(UserError):
    """The sandbox could not be created, so no code was run."""


@dataclass(frozen=True)
class Outcome:
    """Status and output of a program."""

    status: str  # `"ok"`, `"timeout"`, or `"died"` (exception, exit or signal)
    output: bytes  # bytes sent by the program; untrusted regardless of the status


def run_sandboxed(
    program: str,
    payload: bytes = b"",
    *,
    seconds: float,
    call_seconds: Sequence[float] = (),
    memory_bytes: int = SANDBOX_MEMORY_BYTES,
    output_bytes: int = SANDBOX_OUTPUT_BYTES,
) -> Outcome:
    """
    Run a Python program for at most `seconds` of wall-clock time. The globals of the program are `payload` and the
    function `send`, which takes `bytes`. This function is thread-safe.

    `call_seconds` limits the CPU time of each call. The program must then send `MARK` before and after each call.
    """
    text = program.encode(errors="surrogatepass")
    limits = [len(text), memory_bytes, output_bytes, int(seconds) + 2]
    command = [*_bubblewrap(), "-P", "-S", "-s", "-c", START, *map(str, limits), *_python_path()]
    # Write the output to a file in memory. The kernel limits the file's size, so no thread has to read from a pipe.
    with open(os.memfd_create("output"), "rb", buffering=0) as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
            # With a fixed hash seed, sets have the same order in the reference and in the program.
            env={"PYTHONHASHSEED": "0"},
            start_new_session=True,  # Ctrl-C interrupts only this process, which then ends the sandbox
            bufsize=0,
        )
        with process:
            try:
                inside = _wait_until_ready(process)
                status = _finish(process, text + payload, seconds, inside, output.fileno(), call_seconds)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # all processes in the sandbox die with bubblewrap
        return Outcome(status, os.pread(output.fileno(), output_bytes, 0))


def _wait_until_ready(process: subprocess.Popen[bytes]) -> psutil.Process:
    """Wait until the sandbox is ready, check that it is isolated, and return the process that will run the program."""
    assert process.stderr is not None
    received, deadline, poll = b"", time.monotonic() + READY_SECONDS, select.poll()
    poll.register(process.stderr, select.POLLIN)
    while start.READY not in received.splitlines(keepends=True):
        if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
            raise SandboxError(f"bwrap was not ready after {READY_SECONDS:.0f} s")
        chunk = os.read(process.stderr.fileno(), 2**16)
        if not chunk:
            lines = received.decode(errors="replace").strip().splitlines()
            raise SandboxError(lines[-1] if lines else "bwrap exited without a message")
        received += chunk
    own_namespaces = Path("/proc/self/ns")
    try:
        outside = psutil.Process(process.pid)
        inside = [outside, *outside.children(recursive=True)][-1]
        root = Path(f"/proc/{inside.pid}/root")
        shared = [
            name for name in NAMESPACES if (own_namespaces / name).readlink() == (root.parent / "ns" / name).readlink()
        ]
        extra = {file.name for file in root.iterdir()} - {Path(folder).parts[1] for folder in visible_folders()}
        extra -= {"dev", Path(sys.base_prefix).parts[1]}
        is_writable = not os.statvfs(root).f_flag & os.ST_RDONLY
    except (OSError, psutil.Error) as error:
        raise SandboxError(f"the isolation cannot be verified: {error}") from None
    if shared or extra or is_writable:
        exposed = [f"the {name} namespace" for name in shared] + [f"/{name}" for name in sorted(extra)[:3]]
        raise SandboxError(f"{shutil.which('bwrap')} exposes {', '.join(exposed) or 'a writable /'} to programs")
    return inside


def _finish(
    process: subprocess.Popen[bytes], data: bytes | None, seconds: float,
    inside: psutil.Process, output: int, limits: Sequence[float],
) -> str:  # fmt: skip
    """Send `data`, wait until the program ends or exceeds a limit, and return the status.

    CPU time is measured from outside the sandbox, because a program can change its own timers. The program is a
    single process, because the filter blocks new processes. The program can send false marks, so its total CPU time is
    also limited.
    """
    deadline, cpu_seconds, call_start, position, marks = time.monotonic() + seconds, 0.0, 0.0, 0, 0
    while (remaining := deadline - time.monotonic()) > 0:
        try:
            process.communicate(data, timeout=min(remaining, POLL_SECONDS) if limits else remaining)
            return "died" if process.returncode else "ok"
        except subprocess.TimeoutExpired:
            data = None  # `communicate` sends the remaining data
        with contextlib.suppress(psutil.Error):  # the process may have just ended
            cpu_seconds = sum(inside.cpu_times()[:2])  # user and system
        output_chunk = os.pread(output, os.fstat(output).st_size - position, position)
        position += len(output_chunk)
        if MARK in output_chunk:
            marks, call_start = marks + output_chunk.count(MARK), cpu_seconds
        limit = [*limits, 0.0][min(marks // 2, len(limits))]
        if limits and (cpu_seconds > sum(limits) + SPARE_SECONDS or (marks % 2 and cpu_seconds - call_start > limit)):
            break
    return "timeout"


def _bubblewrap() -> list[str]:
    """Build the command line up to and including Python."""
    if sys.platform != "linux":
        raise SandboxError(f"the sandbox requires Linux, but the platform is {sys.platform}")
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxError("bwrap is not installed")
    isolation = ["--unshare-all", "--unshare-user", "--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL"]
    files = [word for path in visible_folders() for word in ("--ro-bind", path, path)]
    python = f"{sys.base_prefix}/bin/python3"  # next to Python's libraries, even if sys.executable is a symlink
    files += ["--ro-bind", os.path.realpath(sys.executable), python]
    files += ["--dev-bind", "/dev/null", "/dev/null", "--remount-ro", "/", "--chdir", "/"]
    return [bwrap, *isolation, *files, "--die-with-parent", "--new-session", "--", python]


@cache
def _python_path() -> list[str]:
    paths = sysconfig.get_paths()
    extensions = str(Path(paths["stdlib"]) / "lib-dynload")
    return list(dict.fromkeys([paths["stdlib"], extensions, paths["purelib"], paths["platlib"]]))


@cache
def visible_folders() -> list[str]:
    """List the paths that a program can read: Python's libraries, installed packages and system libraries."""
    folders = [*_python_path(), f"{sys.base_prefix}/lib", *_LIBRARIES]
    existing = sorted({os.path.normpath(path) for path in folders if os.path.exists(path)})
    return [path for path in existing if not any(path.startswith(other + "/") for other in existing)]


def check_sandbox() -> None:
    """Raise `UserError` if the sandbox does not work on this machine."""
    try:
        outcome = run_sandboxed("import os\ntry: os.fork()\nexcept PermissionError: send(b'isolated')", seconds=60.0)
    except SandboxError as error:
        raise UserError(
            f"Model-written code runs only in a sandbox, which cannot be created here ({error}): the sandbox requires "
            "Linux with bubblewrap and libseccomp (`apt install bubblewrap libseccomp2` or `dnf install bubblewrap "
            "libseccomp`) and user namespaces. In a container, allow namespaces (docker run --security-opt "
            "seccomp=unconfined --security-opt apparmor=unconfined), or grade on another machine."
        ) from None
    if outcome != Outcome("ok", b"isolated"):
        raise UserError(f"Model-written code runs only in a sandbox, which does not work here ({outcome.status}).")
