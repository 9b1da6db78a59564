"""Processor time, which a busy machine does not lengthen as it does the clock's."""

import contextlib
import resource
import time

import psutil


def cpu_seconds(*pids):
    """CPU seconds so far of this process, of its children that have ended, and of the live ones named with theirs."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + ended.ru_utime + ended.ru_stime
    for live in map(psutil.Process, pids):
        seconds += sum(live.cpu_times()[:4])
        for child in live.children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended, full
                seconds += sum(child.cpu_times()[:2])
    return seconds
