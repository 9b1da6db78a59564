"""Sandbox for untrusted Python: namespaces, limits and a system call filter, or a refusal.

Guarantees, on Linux 5.12 or newer, x86_64 or aarch64, for root and other users:

- files: Python's libraries, read-only, and an empty 64 MiB /tmp that vanishes with the program; no file of the host
- network: none, loopback included (an empty network namespace, and no `socket`)
- processes: starts none, sees none, signals none; at most 16 threads
- memory, time, open files, file size: limited; printed output is discarded
- environment: empty
- rights: no capabilities, and no way to gain any

When time is up, or this process ends in any way, the kernel ends the whole sandbox.
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
SANDBOX_MEMORY_BYTES = 2**31
SANDBOX_OUTPUT_BYTES = 2**26
# Seconds for the supervisor to start and end. It keeps the time; this process steps in only if it does not.
SUPERVISOR_GRACE_S = 30.0
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_STATUS: dict[int, Literal["ok", "died", "timeout"]] = {0: "ok", 1: "died", 2: "timeout"}


class SandboxError(RuntimeError):
    """The sandbox could not be built, so nothing was run."""


@dataclass(frozen=True)
class Outcome:
    """
    How a program ended.

    Args:
        status (`str`): `"ok"`: ran to its end. `"died"`: exception, exit or signal. `"timeout"`. `"flood"`: sent too
            many bytes.
        output (`bytes`): What it sent: untrusted, whatever the status.
    """

    status: Literal["ok", "died", "timeout", "flood"]
    output: bytes


def run_sandboxed(
    program: str,
    payload: bytes = b"",
    *,
    seconds: float,
    memory_bytes: int = SANDBOX_MEMORY_BYTES,
    output_bytes: int = SANDBOX_OUTPUT_BYTES,
) -> Outcome:
    """
    Runs a Python program in the sandbox. Thread-safe.

    Args:
        program (`str`): Python source, with `payload` (`bytes`) and `send` (a function of `bytes`) in its globals.
        payload (`bytes`): Input of the program.
        seconds (`float`): Limit on wall-clock time.
        memory_bytes (`int`): Limit on address space.
        output_bytes (`int`): Limit on what it sends.

    Raises:
        SandboxError: if the sandbox cannot be built here.
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
        # A fixed hash seed: sets must have the same order in the reference and in the answer.
        env={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        start_new_session=True,  # Ctrl-C goes to this process, whose end ends the sandbox
        bufsize=0,
    )
    with process:
        try:
            job = json.dumps(header).encode() + b"\n" + text + payload
            output, flooded = _talk(process, job, output_bytes, time.monotonic() + seconds + SUPERVISOR_GRACE_S)
            if flooded:
                return Outcome("flood", output)
            code = process.wait(SUPERVISOR_GRACE_S)
        except subprocess.TimeoutExpired:
            return Outcome("timeout", b"")
        finally:
            process.kill()  # init dies with it, and everything else with init
        assert process.stderr is not None
        if code not in _STATUS:
            why = process.stderr.read().decode(errors="replace").strip().splitlines()
            raise SandboxError(why[-1] if why else f"its supervisor ended with {code}")
        return Outcome(_STATUS[code], output)


def _talk(process: subprocess.Popen[bytes], job: bytes, output_bytes: int, deadline: float) -> tuple[bytes, bool]:
    """Writes the job while reading what is sent; stdin stays open, as its end would mean ours."""
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
                    except BrokenPipeError:  # it has ended; stderr says why
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
    """Folders that a program can read: Python's libraries with installed packages, and the system's."""
    wanted = [*_python_path(), f"{sys.base_prefix}/lib", *_LIBRARIES]
    there = sorted({os.path.normpath(path) for path in wanted if os.path.isdir(path)})
    return [path for path in there if not any(path.startswith(other + "/") for other in there)]


def check_sandbox() -> None:
    """
    Refuses a machine on which the sandbox does not work.

    Raises:
        UserError: with the reason and the way out.
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
