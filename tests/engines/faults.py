"""Reward function that injects faults into the training processes of tests. Not a test file.

With TRL_CES_TEST_FAULT set to `{"rank": R, "call": N, "what": W}`, the N-th call (counted from 1) on rank R causes
fault W.
"""

import json
import os
import resource
import signal

import psutil

FAULT = json.loads(os.environ.get("TRL_CES_TEST_FAULT", "null")) or {}
calls = 0


def vowel_accuracy_reward(completions, **kwargs):
    global calls
    calls += 1
    if FAULT.get("call") == calls and int(os.environ.get("RANK", "0")) == FAULT["rank"]:
        fail(FAULT["what"])
    texts = [row if isinstance(row, str) else row[0]["content"] for row in completions]
    return [float(any(character in "aeiou" for character in text[:3])) for text in texts]


def fail(what):
    command = next(process for process in psutil.Process().parents() if "trl_ces.cli.main" in process.cmdline())
    if what == "killed":  # as the kernel does when memory runs out
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "time limit":  # as a cluster does shortly before a job's time limit
        command.send_signal(signal.SIGTERM)
    elif what == "machine lost":
        other_processes = [process for process in command.children(recursive=True) if process.pid != os.getpid()]
        for process in [command, *other_processes, psutil.Process()]:
            process.kill()
    elif what == "reward raises":
        raise ValueError("grader unavailable")
    elif what == "full disk":  # limit this process's files to 4 kB, as if the disk were full
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    else:
        raise KeyError(what)
