"""Measure CPU time, which depends less on a machine's load than wall-clock time does."""

import contextlib
import resource
import time

import psutil


def cpu_seconds(*pids):
    """Return the CPU seconds of this process, its terminated children, and `pids` with their children."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + ended.ru_utime + ended.ru_stime
    for live in map(psutil.Process, pids):
        seconds += sum(live.cpu_times()[:4])
        for child in live.children():
            with contextlib.suppress(psutil.NoSuchProcess):  # the child has just ended
                seconds += sum(child.cpu_times()[:2])
    return seconds
