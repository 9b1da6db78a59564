"""Signals between `trl-ces train` and its training processes, which end together with the command."""

import ctypes
import os
import signal
import sys
import threading
import time

import psutil

LAUNCHER = "TRL_CES_LAUNCHER"  # environment variable: process id of `trl-ces train`
REPORTED = "TRL_CES_REPORTED"  # environment variable: path of the file that a worker creates after printing its error
ENDED = "ended"  # name of the file that a worker creates after saving the model, or a checkpoint after a signal


def kill_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def prepare_child() -> None:
    """Kill a new child when its parent ends, and block SIGINT until the child handles it (see train/worker.py)."""
    kill_with_parent()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def end_with_launcher() -> None:
    """Kill this process when its parent or the `trl-ces train` process, which may be its grandparent, ends."""
    parent = os.getppid()
    launcher = int(os.environ.get(LAUNCHER, parent))
    kill_with_parent()

    # Also poll, because the parent may have ended before the call above, and the call has an effect only on Linux.
    def watch() -> None:
        while os.getppid() == parent and psutil.pid_exists(launcher):
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
