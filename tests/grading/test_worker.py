"""Test the grading worker and its pipe. The worker evaluates Python instead of algebra, so that it starts quickly."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import trl_ces

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and relies on RLIMIT_AS"),
    pytest.mark.timeout(120),
]

MEMORY_BYTES = 256 << 20
WORKER = """
import logging, mmap, os, resource, signal, sys, time, types
seeds, warm_ups, mappings = [], [], []
for name in ("sympy", "sympy.core", "sympy.core.random"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["sympy.core.random"].seed = seeds.append
from trl_ces.grading import worker
def load_algebra():
    warm_ups.append(os.getpid())
    return lambda request: eval(request["gold"])
worker.load_algebra = load_algebra
{settings}
worker.main()
"""


class Pipe:
    """Client of a worker. Its requests are numbered from 1."""

    def __init__(self, process):
        self.process, self.last_id = process, 0

    def send(self, expression, limit):
        self.last_id += 1
        request = {"id": self.last_id, "op": "equal", "gold": expression, "limit": limit}
        self.write(json.dumps(request).encode() + b"\n")

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, expression, limit=5.0):
        """Send a request and return the result, or the error or status."""
        self.send(expression, limit)
        reply = self.receive()
        assert reply.pop("id") == self.last_id
        return reply["verdict"] if reply["status"] == "ok" else reply.get("error", reply["status"])

    def kill_idle_child(self):
        child = self.child()
        while Path(f"/proc/{child}/stat").read_text().split()[2] != "S":  # until it waits for a request
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        self.child(other_than=child)

    def child(self, other_than=None):
        """Wait for a child of the worker and return its process id."""
        pid = self.process.pid
        while True:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if children and int(children[0]) != other_than:
                return int(children[0])
            time.sleep(0.005)


@contextmanager
def worker(settings=""):
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", WORKER.replace("{settings}", settings), str(MEMORY_BYTES)],
        env={**os.environ, "PYTHONPATH": str(Path(trl_ces.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            pipe = Pipe(process)
            assert pipe.receive() == {"status": "ready"}
            yield pipe
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def close_input(pipe):
    """Close the worker's input, and return the worker's exit code and stderr."""
    pipe.process.stdin.close()
    return pipe.process.wait(timeout=240), pipe.process.stderr.read()


def test_the_parent_warms_up_once_and_one_child_serves_all_requests():
    with worker() as pipe:
        assert pipe.ask("6 * 7") == 42
        supervisor, child = pipe.ask("[os.getppid(), os.getpid()]")
        assert supervisor == pipe.process.pid
        assert pipe.ask("[warm_ups, os.getpid()]") == [[supervisor], child]
        assert close_input(pipe) == (0, b"")


def test_the_random_generator_of_sympy_is_seeded_for_each_request():
    with worker() as pipe:
        assert [pipe.ask("seeds") for _ in range(3)] == [[0], [0, 0], [0, 0, 0]]


def test_output_and_logs_of_the_algebra_do_not_corrupt_the_protocol():
    with worker() as pipe:
        assert pipe.ask("print('printed')") is None
        assert pipe.ask("logging.getLogger('math_verify').critical('warned') or 7") == 7
        assert close_input(pipe) == (0, b"printed\n")


def test_an_error_is_sent_as_a_reply_and_the_child_continues():
    with worker() as pipe:
        child = pipe.ask("os.getpid()")
        assert pipe.ask("[].pop()") == "IndexError: pop from empty list"
        assert pipe.ask("{}['" + "x" * 1000 + "']") == "KeyError: '" + "x" * 199
        assert pipe.ask("bytearray(1 << 30)") == "MemoryError: "
        assert pipe.ask("os.getpid()") == child


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 11)", "os._exit(3)", "os._exit(1)"])
def test_a_child_that_dies_is_reported_and_replaced(end):
    with worker() as pipe:
        child = pipe.ask("os.getpid()")
        assert pipe.ask(end) == "died"
        assert pipe.ask("os.getpid()") != child
        assert pipe.ask("7") == 7


def test_a_malformed_request_terminates_only_the_child():
    with worker() as pipe:
        assert pipe.ask("7") == 7
        child = pipe.child()
        pipe.write(b"nonsense\n")
        pipe.child(other_than=child)
        assert pipe.ask("8") == 8


def test_an_idle_child_that_dies_is_replaced_silently():
    with worker() as pipe:
        pipe.kill_idle_child()  # before the first request
        assert pipe.ask("7") == 7
        pipe.kill_idle_child()  # after a reply
        assert pipe.ask("os._exit(1)") == "died"
        pipe.kill_idle_child()  # after a child that died during a request
        assert pipe.ask("8") == 8


@pytest.mark.parametrize(
    "settings",
    ["", "for number in worker._TIMER_SIGNALS: signal.signal(number, signal.SIG_IGN)",
     "signal.pthread_sigmask(signal.SIG_BLOCK, worker._TIMER_SIGNALS)"],
    ids=["default", "ignored by the trainer", "blocked by the trainer"],
)  # fmt: skip
def test_cpu_time_and_wall_clock_time_have_separate_limits(settings):
    with worker(settings) as pipe:
        assert pipe.ask("sum(iter(int, 1))", limit=0.2) == "timeout"
    with worker(f"{settings}\nworker.CLOCK_GRACE_S = 0.4") as pipe:
        # The status is not "timeout", because the answer may be cheap to grade.
        assert pipe.ask("time.sleep(600)", limit=0.1) == "died"


def test_waiting_does_not_count_toward_the_limit_of_a_request():
    with worker("worker.CLOCK_GRACE_S = 600.0") as pipe:
        assert pipe.ask("sum(iter(int, 1))", limit=0.2) == "timeout"
        assert pipe.ask("time.sleep(0.3) or 7", limit=0.2) == 7  # sleep uses no CPU time
        remaining = pipe.ask(
            "[signal.getitimer(timer)[0] for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL)]", limit=50
        )
        assert remaining[0] == pytest.approx(50, abs=1)
        assert remaining[1] == pytest.approx(650, abs=60)


def test_time_between_requests_does_not_count_toward_the_limit():
    with worker("worker.CLOCK_GRACE_S = 0.4") as pipe:
        child = pipe.ask("os.getpid()", limit=0.6)
        time.sleep(1.2)  # more than the limit of 0.6 s plus the grace time of 0.4 s
        assert pipe.ask("os.getpid()", limit=0.6) == child


def test_a_child_is_replaced_after_a_number_of_requests():
    with worker("worker.REQUESTS_PER_CHILD = 3") as pipe:
        pids = [pipe.ask("os.getpid()") for _ in range(7)]
        assert close_input(pipe) == (0, b"")
    assert len({*pids[:3]}) == len({*pids[3:6]}) == 1
    assert len({*pids}) == 3


def test_a_child_is_replaced_at_half_its_memory_limit():
    with worker() as pipe:
        assert pipe.ask("resource.getrlimit(resource.RLIMIT_AS)") == [MEMORY_BYTES, MEMORY_BYTES]
        assert pipe.ask("resource.getrlimit(resource.RLIMIT_CORE)") == [0, 0]
        child = pipe.ask("os.getpid()")
        # The limit applies to the address space, so untouched pages count.
        assert pipe.ask("mappings.append(mmap.mmap(-1, 60 << 20)) or os.getpid()") == child
        assert pipe.ask("mappings.append(mmap.mmap(-1, 60 << 20)) or os.getpid()") == child
        count, new_child = pipe.ask("[len(mappings), os.getpid()]")
        assert count == 0
        assert new_child != child


def test_long_requests_and_replies_are_transferred_in_pieces():
    with worker() as pipe:
        request = json.dumps({"id": 1, "gold": f"len('{'x' * 200_000}')", "limit": 5.0}).encode() + b"\n"
        for start in range(0, len(request), 50_000):
            pipe.write(request[start : start + 50_000])
            time.sleep(0.02)
        assert pipe.receive() == {"id": 1, "status": "ok", "verdict": 200_000}
        assert pipe.ask("'y' * 300_000") == "y" * 300_000
