"""Seccomp filter: the system calls that a program in the sandbox may not make.

supervisor.py sets it, and gets it with its job because that script can import the standard library only.
"""

import os
import struct

# Linux's numbers: linux/seccomp.h, linux/audit.h, linux/sched.h.
_KILL, _ERRNO, _ALLOW, _EPERM, _ENOSYS, _CLONE_THREAD = 0x80000000, 0x00050000, 0x7FFF0000, 1, 38, 0x00010000
# machine -> (audit number, clone). clone3 is 435 on both.
MACHINES = {"x86_64": (0xC000003E, 56), "aarch64": (0xC00000B7, 220)}
_CLONE3 = 435
# Calls that escape the limits, or reach more of the kernel than an answer needs: number on x86_64, on aarch64.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # processes
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    # the network: AF_VSOCK has no namespace
    "socket": (41, 198),
    # memory that RLIMIT_AS does not count
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # other processes and their memory
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    # namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # keys, which outlive a process, and large attack surfaces
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}


def filter_lines() -> bytes:
    """
    The filter for this machine: a BPF program, 8 bytes per instruction.

    Raises:
        OSError: if this machine's system call numbers are not known.
    """
    machine = os.uname().machine
    if machine not in MACHINES:
        raise OSError(f"no system call filter is known for {machine}")
    load, equal, at_least, bits, give = 0x20, 0x15, 0x35, 0x45, 0x06
    audit, clone = MACHINES[machine]
    column = list(MACHINES).index(machine)
    # (operation, jump if true, jump if false, number)
    lines = [(load, 0, 0, 4), (equal, 1, 0, audit), (give, 0, 0, _KILL), (load, 0, 0, 0)]
    if machine == "x86_64":  # x32 calls have their own numbers
        lines += [(at_least, 0, 1, 0x40000000), (give, 0, 0, _ERRNO | _EPERM)]
    # A thread is a clone with CLONE_THREAD. clone3 hides its flags; without it, C libraries fall back to clone.
    lines += [(equal, 0, 1, _CLONE3), (give, 0, 0, _ERRNO | _ENOSYS)]
    lines += [(equal, 0, 4, clone), (load, 0, 0, 16), (bits, 0, 1, _CLONE_THREAD), (give, 0, 0, _ALLOW)]
    lines += [(give, 0, 0, _ERRNO | _EPERM)]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            lines += [(equal, 0, 1, number), (give, 0, 0, _ERRNO | _EPERM)]
    lines += [(give, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
