"""End processes together with the command that started them."""

import ctypes
import os
import signal
import sys
import threading
import time

import psutil

LAUNCHER = "TRL_CES_LAUNCHER"  # environment variable with the process id of `trl-ces train`
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a run: Ctrl-C, SIGTERM, and a closed terminal unless `nohup` ignores it."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignores_hangup else [signal.SIGHUP])]


def kill_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends; no effect except on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_launcher() -> None:
    """Kill this process when its parent or `trl-ces train`, which may be the parent's parent, ends."""
    parent = os.getppid()
    launcher = int(os.environ.get(LAUNCHER, parent))
    kill_with_parent()

    def watch() -> None:  # also covers a launcher that ended before the line above, and other systems
        while os.getppid() == parent and psutil.pid_exists(launcher):
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
