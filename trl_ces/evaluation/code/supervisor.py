"""
The processes of the sandbox. sandbox.py starts this file as a script, with the standard library only.

    supervisor   this script: makes the namespaces, watches the clock and its parent; runs no untrusted code
    init         process 1 of the new process namespace: builds the file system; all processes there end with it
    program      unprivileged, behind limits and a system call filter: runs the untrusted code

stdin: one JSON line with sizes, limits and the system call filter (syscalls.py), then the program's text and its
payload. It stays open: its end means that the parent is gone. stdout: what the program sends. Exit status: 0 the
program ran to its end, 1 it did not, 2 time was up, 3 the sandbox could not be built (stderr says why).
"""

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import struct
import sys
import time

ENDED_WELL, DIED, TIME_UP, NOT_BUILT = 0, 1, 2, 3
# User and group of the program inside the sandbox: "nobody".
NOBODY = 65534
SCRATCH_BYTES, SCRATCH_FILES, FILE_BYTES, OPEN_FILES, THREADS = 2**26, 1024, 2**24, 64, 16
_STDIN, _STDOUT, _STDERR, _RESULT, _READY = range(5)
_HIGH = 1000
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

# Linux's numbers: linux/sched.h, linux/mount.h, linux/prctl.h, linux/seccomp.h.
_NEW_NAMESPACES = (
    0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
)  # NS UTS IPC USER PID NET
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 2, 4, 0x1000, 0x4000, 0x40000, 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _READ_ONLY, _NO_SUID, _NO_DEV = 442, -100, 0x8000, 1, 2, 4
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER, _FILTER_LINE_BYTES = 1, 22, 38, 2, 8
# machine -> the numbers of pivot_root and capset
_MACHINES = {"x86_64": (155, 126), "aarch64": (41, 91)}

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    """Calls a C library function; raises `OSError` if it fails."""
    function = getattr(_libc, name)
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = function(*words)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def main() -> None:
    """Reads a job from stdin, runs it, and exits with one of the statuses above."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    header, stream = _read_until_newline(), json.loads(sys.argv[1])
    job = json.loads(header)
    program, payload = _read(job["program_bytes"]), _read(job["payload_bytes"])
    try:
        os._exit(_supervise(stream, job, program, payload))
    except OSError as error:
        _refuse(error)


def _refuse(error: BaseException) -> None:
    os.write(_STDERR, f"{error}".encode())
    os._exit(NOT_BUILT)


def _read_until_newline() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += _read(1)
    return line


def _read(count: int) -> bytes:
    parts = []
    while count:
        part = os.read(_STDIN, min(count, 2**20))
        if not part:
            os._exit(DIED)  # the parent is gone
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _supervise(folders: list[str], job: dict, program: bytes, payload: bytes) -> int:
    privileged = os.geteuid() == 0
    _enter_namespaces(privileged)
    init = os.fork()
    if init == 0:
        _init(folders, job, program, payload, privileged)
    os.close(_STDOUT)  # so that the reader sees its end when the program is gone
    deadline = time.monotonic() + job["seconds"]
    poll, watch = select.poll(), os.pidfd_open(init)
    poll.register(_STDIN, 0)
    poll.register(watch, select.POLLIN)
    events = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
    if watch not in events:  # time is up, or the parent is gone
        os.kill(init, signal.SIGKILL)
    _, status = os.waitpid(init, 0)
    return os.waitstatus_to_exitcode(status) if watch in events else TIME_UP


def _enter_namespaces(privileged: bool) -> None:
    """A helper outside maps the users: a process cannot map its own."""
    ready, go = os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(go)
        try:
            if os.read(ready, 1):  # else there was no namespace to enter, which is said below
                _map_users(os.getppid(), privileged)
        except OSError as error:
            _refuse(error)
        os._exit(0)
    os.close(ready)
    try:
        _call("unshare", _NEW_NAMESPACES)
    except OSError:
        os.close(go)
        os.waitpid(helper, 0)
        raise
    os.write(go, b".")
    os.close(go)
    if os.waitpid(helper, 0)[1]:
        os._exit(NOT_BUILT)


def _map_users(process: int, privileged: bool) -> None:
    """Root keeps all ids, to become `NOBODY` later, whose processes the kernel counts; other users are `NOBODY`."""
    if not privileged:
        with open(f"/proc/{process}/setgroups", "w") as file:
            file.write("deny")
    for kind, own in (("uid", os.geteuid()), ("gid", os.getegid())):
        with open(f"/proc/self/{kind}_map") as file:
            extents = [line.split() for line in file]
        lines = [f"{inside} {inside} {count}\n" for inside, _, count in extents]
        with open(f"/proc/{process}/{kind}_map", "w") as file:
            file.write("".join(lines) if privileged else f"{NOBODY} {own} 1\n")


def _init(folders: list[str], job: dict, program: bytes, payload: bytes, privileged: bool) -> None:
    """Process 1: ends with the supervisor, and all others in its namespace end with it."""
    try:
        _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _build_root(folders)
        said, say = os.pipe()
        child = os.fork()
        if child == 0:
            _program(say, job, program, payload, privileged)
        os.close(say)
        os.close(_STDOUT)
        if os.read(said, 1) != b".":  # stderr says why
            os._exit(NOT_BUILT)
    except OSError as error:
        _refuse(error)
    while True:
        process, status = os.wait()
        if process == child:
            os._exit(ENDED_WELL if status == 0 else DIED)


def _build_root(folders: list[str]) -> None:
    """A root without the host's files: read-only libraries, four devices, and a 64 MiB /tmp in memory."""
    root = "/tmp"
    sources = {path: os.open(path, os.O_PATH) for path in [*folders, *_DEVICES]}
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID, "mode=755,size=1m,nr_inodes=4096")
    os.mkdir(root + "/tmp")
    # Before the libraries, which may lie below the host's /tmp.
    options = f"mode=1777,size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES}"
    _mount("tmpfs", root + "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    for path, source in sources.items():
        target = root + path
        os.makedirs(target if path in folders else os.path.dirname(target), exist_ok=True)
        if path in _DEVICES:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        _mount(f"/proc/self/fd/{source}", target, None, _MS_BIND | _MS_REC)
        if path in folders:
            _set_mount(target, _READ_ONLY | _NO_SUID | _NO_DEV, _AT_RECURSIVE)  # a remount would leave mounts below
    _set_mount(root, _READ_ONLY | _NO_SUID, 0)
    os.chdir(root)
    _call("syscall", _MACHINES[os.uname().machine][0], b".", b".")  # pivot_root; the old root lies over the new one
    _call("umount2", b".", _MNT_DETACH)
    os.chdir("/tmp")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    try:
        _call("mount", *words, flags, options.encode())
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({target})") from None


def _set_mount(target: str, attributes: int, how: int) -> None:
    words = struct.pack("4Q", attributes, 0, 0, 0)
    _call("syscall", _MOUNT_SETATTR, _AT_FDCWD, target.encode(), how, words, len(words))


def _program(say: int, job: dict, program: bytes, payload: bytes, privileged: bool) -> None:
    """Gives up all rights, then runs the program. Only the host's libraries can be reached from here."""
    try:
        os.setsid()  # a signal to the process group must not reach the supervisor
        _keep_two_pipes(say)
        _drop_privileges(privileged)
        _limit(job["memory_bytes"], job["seconds"])
        _filter_system_calls(bytes.fromhex(job["filter"]))
        os.environ.clear()
        os.environ.update(HOME="/tmp", TMPDIR="/tmp", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        sys.argv, sys.path = ["program"], job["path"]
        os.dup2(_STDIN, _STDERR)
        os.write(_READY, b".")
        os.close(_READY)
    except (OSError, ValueError) as error:
        _refuse(error)
    # From here on, nothing this process does is trusted; what it sends is only data.
    try:
        exec(compile(program, "<program>", "exec"), {"__name__": "program", "payload": payload, "send": _send})
    except BaseException:
        os._exit(DIED)
    os._exit(ENDED_WELL)


def _keep_two_pipes(say: int) -> None:
    """Keeps the result pipe and, until all is locked, init's; printed output goes nowhere."""
    kept = {_RESULT: _dup_high(_STDOUT), _READY: _dup_high(say), _STDIN: _dup_high(os.open("/dev/null", os.O_RDWR))}
    for place, file in kept.items():
        os.dup2(file, place)
    os.dup2(_STDIN, _STDOUT)
    os.closerange(_READY + 1, _HIGH + 100)


def _dup_high(file: int) -> int:
    """A copy above all numbers in use."""
    return fcntl.fcntl(file, fcntl.F_DUPFD, _HIGH)


def _drop_privileges(privileged: bool) -> None:
    if privileged:
        os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # Capability version 3, this process: none effective, permitted or inheritable.
    _call("syscall", _MACHINES[os.uname().machine][1], struct.pack("Ii", 0x20080522, 0), bytes(24))


def _limit(memory_bytes: int, seconds: float) -> None:
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: int(seconds) + 2,
        resource.RLIMIT_NPROC: THREADS,
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


def _filter_system_calls(lines: bytes) -> None:
    """From here on, the kernel filters the system calls of this process and its children."""
    held = ctypes.create_string_buffer(lines, len(lines))
    filter_ = struct.pack("HxxxxxxP", len(lines) // _FILTER_LINE_BYTES, ctypes.addressof(held))
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filter_, 0, 0)


def _send(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(_RESULT, view) :]


if __name__ == "__main__":
    main()
