"""Measure CPU time, which depends less on a machine's load than wall-clock time does."""

import contextlib
import resource
import time

import psutil


def cpu_seconds(*pids):
    """Return the CPU seconds used by this process, its terminated children, and `pids` with their children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + children.ru_utime + children.ru_stime
    for live in map(psutil.Process, pids):
        seconds += sum(live.cpu_times()[:4])
        for child in live.children():
            with contextlib.suppress(psutil.NoSuchProcess):  # the child has just ended
                seconds += sum(child.cpu_times()[:2])
    return seconds
