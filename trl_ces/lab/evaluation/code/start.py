"""First program in the sandbox. It drops privileges, reports readiness, and runs the untrusted program.

sandbox.py passes this file's text to `python -c`, so this file imports only the standard library. Arguments: the
program's length, the limits on address space, output and CPU seconds, and the import path. stdin: the program and its
payload, sent once this process is ready. stdout: the bytes sent by the program. stderr: `READY` or an error message.
"""

import ctypes
import errno
import os
import resource
import sys

READY = b"ready\n"
OPEN_FILES = 64
RESULT = 3  # file descriptor of the program's output
# System calls that namespaces and limits do not cover: new processes (each would have its own memory limit), memory
# that RLIMIT_AS does not count, AF_VSOCK, access to bubblewrap's process, new namespaces, unneeded kernel features.
DENIED = """
fork vfork clone clone3 execve execveat
shmget msgget semget mq_open memfd_create memfd_secret
socket
ptrace process_vm_readv process_vm_writev pidfd_open pidfd_getfd
unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
add_key request_key keyctl bpf perf_event_open userfaultfd io_uring_setup
"""
# Constants from seccomp.h.
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | errno.EPERM


def limit(memory_bytes: int, output_bytes: int, cpu_seconds: int) -> None:
    """Set limits that only a privileged process can raise."""
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: output_bytes,
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


def filter_system_calls() -> None:
    """Make the kernel deny the calls in `DENIED`, and kill the process if it uses another architecture's calls."""
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(_ALLOW))
    for name in DENIED.split():
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if seccomp.seccomp_rule_add_array(rules, _DENY, number, 0, None):
            raise OSError(f"libseccomp does not know {name}: update libseccomp")
    if seccomp.seccomp_load(rules):
        raise OSError("the kernel does not support system call filters")


def send(data: bytes) -> None:
    """Send bytes out of the sandbox."""
    view = memoryview(data)
    while view:
        view = view[os.write(RESULT, view) :]


def main() -> None:
    """Drop privileges, then read and run the program. From then on, this process is untrusted."""
    size, memory_bytes, output_bytes, cpu_seconds = map(int, sys.argv[1:5])
    os.dup2(1, RESULT)
    os.closerange(RESULT + 1, 2**16)
    limit(memory_bytes, output_bytes, cpu_seconds)
    filter_system_calls()
    sys.argv, sys.path = ["program"], sys.argv[5:]
    os.environ.clear()
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    devnull = os.open("/dev/null", os.O_RDWR)
    os.write(2, READY)
    with open(0, "rb", closefd=False) as stdin:
        job = stdin.read()
    for standard in range(3):
        os.dup2(devnull, standard)
    os.close(devnull)
    try:
        exec(compile(job[:size], "<program>", "exec"), {"__name__": "program", "payload": job[size:], "send": send})
    except BaseException:
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
