"""Sandbox for untrusted Python code: bubblewrap namespaces, resource limits and a system call filter.

No code runs unless all three are available. docs/evaluation.md, "Code benchmarks", lists the guarantees and their
mechanisms. The sandbox works only on Linux, for root and for other users. The kernel kills the whole sandbox at the
time limit and when this process ends.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ....support.errors import UserError
from . import start

START = Path(start.__file__).read_text(encoding="utf-8")
SANDBOX_MEMORY_BYTES = 2**31
SANDBOX_OUTPUT_BYTES = 2**26
NOBODY = "65534"
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")


class SandboxError(RuntimeError):
    """The sandbox could not be created, so no code was run."""


@dataclass(frozen=True)
class Outcome:
    """Status and output of a program."""

    status: str  # `"ok"`, `"timeout"`, or `"died"` (exception, exit or signal)
    output: bytes  # bytes sent by the program; untrusted whatever the status


def run_sandboxed(
    program: str,
    payload: bytes = b"",
    *,
    seconds: float,
    memory_bytes: int = SANDBOX_MEMORY_BYTES,
    output_bytes: int = SANDBOX_OUTPUT_BYTES,
) -> Outcome:
    """Run Python source code with the globals `payload` and `send`, a function that takes `bytes`. Thread-safe."""
    text = program.encode(errors="surrogatepass")
    limits = [len(text), memory_bytes, output_bytes, int(seconds) + 2]
    command = [*_bubblewrap(), "-P", "-S", "-s", "-c", START, *map(str, limits), *_python_path()]
    # Write the output to a file in memory: the kernel limits its size, so no reader is needed.
    with open(os.memfd_create("output"), "rb", buffering=0) as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
            # With a fixed hash seed, sets have the same order in the reference and in the program.
            env={"PYTHONHASHSEED": "0"},
            start_new_session=True,  # Ctrl-C interrupts only this process; the sandbox ends with it
            bufsize=0,
        )
        with process:
            assert process.stderr is not None
            try:
                messages = [b"bwrap ended without a message"]
                for line in process.stderr:
                    if line == start.READY:
                        break
                    messages.append(line)
                else:
                    raise SandboxError(messages[-1].decode(errors="replace").strip())
                process.communicate(text + payload, timeout=seconds)
                status = "died" if process.returncode else "ok"
            except subprocess.TimeoutExpired:
                status = "timeout"
            finally:
                process.kill()  # all processes in the sandbox die with bubblewrap
        return Outcome(status, os.pread(output.fileno(), output_bytes, 0))


def _bubblewrap() -> list[str]:
    """Build the command line up to and including Python."""
    if sys.platform != "linux":
        raise SandboxError(f"the sandbox requires Linux, but the platform is {sys.platform}")
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxError("bwrap is not installed")
    rights = ["--unshare-all", "--unshare-user", "--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL"]
    files = [word for path in visible_folders() for word in ("--ro-bind", path, path)]
    python = f"{sys.base_prefix}/bin/python3"  # path next to its libraries, even if sys.executable is a link
    files += ["--ro-bind", os.path.realpath(sys.executable), python]
    files += ["--dev-bind", "/dev/null", "/dev/null", "--remount-ro", "/", "--chdir", "/"]
    return [bwrap, *rights, *files, "--die-with-parent", "--new-session", "--", python]


@cache
def _python_path() -> list[str]:
    paths = sysconfig.get_paths()
    extensions = str(Path(paths["stdlib"]) / "lib-dynload")
    return list(dict.fromkeys([paths["stdlib"], extensions, paths["purelib"], paths["platlib"]]))


@cache
def visible_folders() -> list[str]:
    """List the folders that a program can read: Python's libraries, installed packages, and system libraries."""
    folders = [*_python_path(), f"{sys.base_prefix}/lib", *_LIBRARIES]
    found = sorted({os.path.normpath(path) for path in folders if os.path.exists(path)})
    return [path for path in found if not any(path.startswith(other + "/") for other in found)]


def check_sandbox() -> None:
    """Raise `UserError` if the sandbox does not work on this machine."""
    try:
        outcome = run_sandboxed("import os\ntry: os.fork()\nexcept PermissionError: send(b'here')", seconds=60.0)
    except SandboxError as error:
        raise UserError(
            f"Model-written code runs only in a sandbox, which cannot be created here ({error}): it requires Linux "
            "with bubblewrap and libseccomp (`apt install bubblewrap libseccomp2` or `dnf install bubblewrap "
            "libseccomp`) and user namespaces. In a container, allow namespaces (docker run --security-opt "
            "seccomp=unconfined --security-opt apparmor=unconfined), or grade on another machine."
        ) from None
    if outcome != Outcome("ok", b"here"):
        raise UserError(f"Model-written code runs only in a sandbox, which does not work here ({outcome.status}).")
