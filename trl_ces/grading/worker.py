"""
The process in which answers are compared: a single-threaded supervisor that imports the algebra once, and forks a
child that serves requests. The kernel, not Python, ends what takes too long: interval timers with their signals'
default action stop even a big-integer power inside C, and RLIMIT_AS bounds the memory. The supervisor then forks the
next child, which takes 10 ms instead of a fresh import.

The limit counts the processor's time, so that an answer scores the same on a busy machine; a second timer ends what
waits instead of computing.

Protocol, one JSON object a line: `{"id", "op": "equal" or "equal_as_script", "gold", "answer", "limit"}` or
`{"id", "op": "usable", "gold", "limit"}` on stdin, one at a time; `{"id", "status": "ok", "verdict"}` on stdout, or
status "timeout", "died", "error".
"""

import json
import logging
import mmap
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable

# A child that has served this many requests makes room for a fresh one: no cache of the algebra grows for days.
REQUESTS_PER_CHILD = 5000
# So does one that has taken this share of its memory: the next answer must find as much as the first.
FULL_AT = 0.5
# Seconds on the clock beyond the limit on the processor's; less than GRACE_S in pool.py.
CLOCK_GRACE_S = 3.0
_TIMER_SIGNALS = (signal.SIGALRM, signal.SIGPROF)
_STDIN, _STDOUT = 0, 1
_EXIT_END_OF_INPUT, _EXIT_RECYCLE = 0, 3


def main() -> None:
    """Supervises children until stdin ends. Arguments: the memory limit of a child in bytes."""
    memory_bytes = int(sys.argv[1])
    logging.disable(logging.CRITICAL)  # math-verify warns once a process that its own timeouts are off
    sys.stdout = sys.stderr  # a parser that prints must not write into the protocol
    from sympy.core.random import seed  # this import and the next load the algebra, for all children

    from . import verdicts

    verdicts.warm_up()

    def answer_request(request: dict) -> bool:
        seed(0)  # simplify() tries random numbers: the verdict must not depend on what was asked before
        return verdicts.answer_request(request)

    for number in _TIMER_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TIMER_SIGNALS)
    current = mmap.mmap(-1, 8)  # the id of the request in hand, 0 for none: a dead child cannot say it any more
    _reply({"status": "ready"})
    while True:
        child = os.fork()
        if child == 0:
            _limit_memory(memory_bytes)
            os._exit(_serve(current, answer_request, memory_bytes))
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _EXIT_END_OF_INPUT:
            return
        (request_id,) = struct.unpack("q", current[:])
        current[:] = struct.pack("q", 0)
        if request_id:
            timed_out = os.WTERMSIG(status) in _TIMER_SIGNALS  # 0 where no signal ended it
            _reply({"id": request_id, "status": "timeout" if timed_out else "died"})


def _limit_memory(memory_bytes: int) -> None:
    if sys.platform == "linux":  # elsewhere the kernel does not enforce it
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _is_full(memory_bytes: int) -> bool:
    if sys.platform != "linux":
        return False
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize() > FULL_AT * memory_bytes


def _serve(current: mmap.mmap, answer_request: Callable[[dict], bool], memory_bytes: int) -> int:
    for _ in range(REQUESTS_PER_CHILD):
        line = _read_line()
        if line is None:
            return _EXIT_END_OF_INPUT
        request = json.loads(line)
        current[:] = struct.pack("q", request["id"])
        signal.setitimer(signal.ITIMER_REAL, request["limit"] + CLOCK_GRACE_S)
        signal.setitimer(signal.ITIMER_PROF, request["limit"])
        try:
            reply = {"status": "ok", "verdict": answer_request(request)}
        except Exception as error:
            # MemoryError and RecursionError included: the parent counts the pair as not comparable, hence not equal.
            reply = {"status": "error", "error": f"{type(error).__name__}: {str(error)[:200]}"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _reply({"id": request["id"], **reply})
        current[:] = struct.pack("q", 0)
        if _is_full(memory_bytes):
            break
    return _EXIT_RECYCLE


def _read_line() -> bytes | None:
    # Unbuffered, and the parent sends the next request only after the last reply: nothing is lost with a killed child.
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(_STDIN, 65536)
        if not chunk:
            return None
        line += chunk
    return line


def _reply(reply: dict) -> None:
    data = json.dumps(reply).encode() + b"\n"
    while data:
        data = data[os.write(_STDOUT, data) :]
