"""
Compare answers in a separate process. A single-threaded supervisor imports the algebra once and forks a child, which
serves requests. The kernel, not Python, ends slow requests. The default action of an interval timer's signal kills the
child even during a big-integer power in C, and RLIMIT_AS bounds memory. The supervisor then forks the next child in
10 ms instead of importing everything again.

The limit counts CPU time, so that grades do not depend on the load of the machine. A second timer ends requests that
wait instead of computing. Such a request is reported as "died", retried once, and left ungraded if the retry fails.

Protocol, one JSON object per line: `{"id", "op": "equal" or "equal_as_script", "gold", "answer", "limit"}` or
`{"id", "op": "usable", "gold", "limit"}` on stdin, one at a time; `{"id", "status": "ok", "verdict"}` on stdout, or
status "timeout", "died" or "error".
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

# Replace a child after this many requests, because the algebra's caches grow.
REQUESTS_PER_CHILD = 5000
# Replace a child that uses this fraction of its memory limit, so that every request has enough memory.
FULL_AT = 0.5
# Wall-clock seconds beyond the CPU time limit; less than GRACE_S in pool.py. The value is large because, with ten busy
# processes per core, a comparison takes ten times its CPU time.
CLOCK_GRACE_S = 20.0
_TIMER_SIGNALS = (signal.SIGALRM, signal.SIGPROF)
_STDIN, _STDOUT = 0, 1
_EXIT_END_OF_INPUT, _EXIT_RECYCLE = 0, 3


def main() -> None:
    """Supervise children until stdin closes. The command-line argument is the memory limit per child in bytes."""
    memory_bytes = int(sys.argv[1])
    logging.disable(logging.CRITICAL)  # math-verify warns in each process that its timeouts are off
    sys.stdout = sys.stderr  # a parser's output must not mix with the replies
    from sympy.core.random import seed

    compare = load_algebra()  # once for all children

    def answer_request(request: dict) -> bool:
        seed(0)  # simplify() uses random numbers, but results must not depend on earlier requests
        return compare(request)

    for number in _TIMER_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TIMER_SIGNALS)
    current = mmap.mmap(-1, 8)  # id of the current request, or 0; readable after the child dies
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
            # A request that waited instead of computing says nothing about the answer, so it is not a timeout.
            _reply({"id": request_id, "status": "timeout" if os.WTERMSIG(status) == signal.SIGPROF else "died"})


def load_algebra() -> Callable[[dict], bool]:
    """Import the algebra and return the function that answers a request."""
    from .equality import equal
    from .golds import usable
    from .qwen.equality import equal_as_script, parser_problem
    from .symbolic import expression, same

    # Parse and compare common LaTeX, so that the parser builds its tables once, before children are forked.
    same(r"\frac{-3x^{2}+\sqrt{5}}{2(y-1)}", r"y=e^{-2t}\cos(3t)+C_{1}\ln x")
    same(r"\begin{pmatrix}1 & x \\ 2 & y\end{pmatrix}", r"\pi r^2+2ab-5i")
    same(r"2\sqrt{2}+x", r"\sqrt{8}+x")
    # Only `correct_qwen` needs sympy's generated parser, whose location depends on the version of sympy.
    script_problem = parser_problem()
    if script_problem is None:
        try:
            from .qwen.symbolic import same_as_script

            same_as_script(r"\frac{-3x^{2}+\sqrt{5}}{2(y-1)}", r"y=e^{-2}\cos(3t)+C_{1}\ln(x)-\frac{1}{2}")
            same_as_script(r"2\sqrt{2}+x", r"\sqrt{8}+x")
        except ImportError as error:
            script_problem = str(error)

    def answer_request(request: dict) -> bool:
        if request["op"] == "equal":
            return equal(request["gold"], request["answer"], same)
        if request["op"] == "equal_as_script":
            if script_problem is not None:
                raise ImportError(script_problem)
            return equal_as_script(request["gold"], request["answer"], same_as_script)
        return usable(request["gold"], lambda value: expression(value) is not None)

    return answer_request


def _limit_memory(memory_bytes: int) -> None:
    if sys.platform == "linux":  # other kernels do not enforce RLIMIT_AS
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
            # MemoryError and RecursionError are included. The parent treats pairs that cannot be compared as unequal.
            reply = {"status": "error", "error": f"{type(error).__name__}: {str(error)[:200]}"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _reply({"id": request["id"], **reply})
        current[:] = struct.pack("q", 0)
        if _is_full(memory_bytes):
            break
    return _EXIT_RECYCLE


def _read_line() -> bytes | None:
    # Read without a buffer. The parent sends one request at a time, so a killed child loses no other requests.
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
