"""Processor time, which a busy machine does not lengthen as it does the clock's."""

import resource
import time

import psutil


def cpu_seconds(*pids):
    """CPU seconds so far of this process, of its children that have ended, and of the live ones named with theirs."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    live = [process for pid in pids for process in (psutil.Process(pid), *psutil.Process(pid).children())]
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(sum(one.cpu_times()[:4]) for one in live)
