"""Runs foreign code where it can do no harm: namespaces, limits, a system call filter; refuses where it cannot.

What holds for the code, on Linux 5.12 or newer on x86_64 and aarch64, for root and for other users, or it is not run:

- files: it sees Python's libraries, to be read, and an empty /tmp of 64 MiB that vanishes with it; none of the host's
- network: none, not even the host's own (an empty network namespace, and no `socket`)
- processes: it cannot start any, sees no other, and can signal none; at most 16 threads
- memory, time, open files, size of a file: limited; what it prints is thrown away
- environment: empty
- no user's rights: no capabilities, none to be had

When its time is up, or this process ends in whatever way, the kernel ends all of it.
"""

import json
import os
import selectors
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from ...support.errors import UserError
from .syscalls import filter_lines

SUPERVISOR = Path(__file__).with_name("supervisor.py")
DEFAULT_MEMORY_BYTES = 2**31
DEFAULT_OUTPUT_BYTES = 2**26
# The supervisor's own start and end. It keeps the time; this process only steps in if it does not.
GRACE_S = 30.0
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_STATUS: dict[int, Literal["ok", "died", "timeout"]] = {0: "ok", 1: "died", 2: "timeout"}


class SandboxError(RuntimeError):
    """The sandbox could not be built, hence nothing was run. The message says why."""


@dataclass(frozen=True)
class Outcome:
    """
    What came of a program.

    Args:
        status (`str`): `"ok"`: it ran to its end. `"died"`: an exception, an exit, a signal. `"timeout"`. `"flood"`:
            it sent more than it may.
        output (`bytes`): What it sent. It is foreign whatever the status.
    """

    status: Literal["ok", "died", "timeout", "flood"]
    output: bytes


def run_sandboxed(
    program: str,
    payload: bytes = b"",
    *,
    seconds: float,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    output_bytes: int = DEFAULT_OUTPUT_BYTES,
) -> Outcome:
    """
    Runs a Python program in the sandbox. Safe to call from several threads.

    Args:
        program (`str`): Python. It finds the names `payload` and `send`, a function that takes bytes.
        payload (`bytes`): For the program to read.
        seconds (`float`): Wall-clock time that it may take.
        memory_bytes (`int`): Address space that it may have.
        output_bytes (`int`): As much may it send.

    Raises:
        SandboxError: if the sandbox cannot be built here. The program was not run.
    """
    if sys.platform != "linux":
        raise SandboxError(f"the sandbox needs Linux, and this is {sys.platform}")
    text = program.encode(errors="surrogatepass")
    try:
        lines = filter_lines()
    except OSError as error:
        raise SandboxError(str(error)) from None
    header = {
        "program_bytes": len(text),
        "payload_bytes": len(payload),
        "seconds": seconds,
        "memory_bytes": memory_bytes,
        "path": _python_path(),
        "filter": lines.hex(),
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-S", "-s", str(SUPERVISOR), json.dumps(visible_folders())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A fixed hash seed: the order of a set must be the same in the reference and in the answer.
        env={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        start_new_session=True,  # Ctrl-C is for this process, whose end ends the sandbox
        bufsize=0,
    )
    with process:
        try:
            job = json.dumps(header).encode() + b"\n" + text + payload
            output, flooded = _talk(process, job, output_bytes, time.monotonic() + seconds + GRACE_S)
            if flooded:
                return Outcome("flood", output)
            code = process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return Outcome("timeout", b"")
        finally:
            process.kill()  # init ends with it, and all else with init
        assert process.stderr is not None
        if code not in _STATUS:
            why = process.stderr.read().decode(errors="replace").strip().splitlines()
            raise SandboxError(why[-1] if why else f"its supervisor ended with {code}")
        return Outcome(_STATUS[code], output)


def _talk(process: subprocess.Popen[bytes], job: bytes, output_bytes: int, deadline: float) -> tuple[bytes, bool]:
    """Writes the job and reads what is sent, side by side; stdin stays open, for its end would mean ours."""
    assert process.stdin is not None
    assert process.stdout is not None
    view, size = memoryview(job), 0
    parts: list[bytes] = []
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            for key, _ in selector.select(left):
                if key.fileobj is process.stdin:
                    try:
                        view = view[os.write(process.stdin.fileno(), view[: 2**20]) :]
                    except BrokenPipeError:  # it has ended, and says why
                        view = view[:0]
                    if not view:
                        selector.unregister(process.stdin)
                    continue
                part = os.read(process.stdout.fileno(), 2**20)
                if not part:
                    return b"".join(parts), False
                size += len(part)
                if size > output_bytes:
                    return b"".join(parts), True
                parts.append(part)


@cache
def _python_path() -> list[str]:
    paths = sysconfig.get_paths()
    extensions = str(Path(paths["stdlib"]) / "lib-dynload")
    return list(dict.fromkeys([paths["stdlib"], extensions, paths["purelib"], paths["platlib"]]))


@cache
def visible_folders() -> list[str]:
    """The folders that a program sees: Python's libraries with the installed packages, and the system's."""
    wanted = [*_python_path(), f"{sys.base_prefix}/lib", *_LIBRARIES]
    there = sorted({os.path.normpath(path) for path in wanted if os.path.isdir(path)})
    return [path for path in there if not any(path.startswith(other + "/") for other in there)]


def check_sandbox() -> None:
    """
    Refuses where model-written code could not be kept in.

    Raises:
        UserError: saying why, and what helps.
    """
    try:
        outcome = run_sandboxed("send(b'here')", seconds=60.0)
    except SandboxError as error:
        raise UserError(
            f"Model-written code runs only in a sandbox, which cannot be built here ({error}): it needs Linux 5.12 or "
            "newer with user namespaces. In a container allow them (docker run --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined), or judge on another machine."
        ) from None
    if outcome != Outcome("ok", b"here"):
        raise UserError(f"Model-written code runs only in a sandbox, which does not work here ({outcome.status}).")
