"""Test the pool of grading workers. The stand-in worker evaluates Python, so that it starts quickly."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from trl_ces.grading import pool as pool_module
from trl_ces.grading.pool import Worker, WorkerLost, WorkerPool, default_worker_count, shared_pool

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the stand-in is a shell script"),
    pytest.mark.timeout(120),
]

PYTHON = sys.executable
STAND_IN = """
import json, os, signal, sys, time
starts = len(open({log!r}).readlines())
def send(**reply):
    os.write(1, json.dumps(reply).encode() + b"\\n")
{at_start}
send(status="ready")
for line in sys.stdin.buffer:
    message = json.loads(line)
    send(id=message["id"], status="ok", verdict=eval(message["gold"]))
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Make workers start the stand-in; return a function that counts the starts."""
    log, server, script = tmp_path / "starts", tmp_path / "server.py", tmp_path / "python"
    script.write_text(f'#!/bin/sh\necho start >> {log}\nexec {sys.executable} -S {server} "$@"\n')
    script.chmod(0o755)
    log.write_text("")
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(pool_module, "GRACE_S", 0.4)

    def write(at_start="", source=STAND_IN):
        server.write_text(source.replace("{at_start}", at_start).replace("{log!r}", repr(str(log))))
        return lambda: log.read_text().count("start")

    return write


@pytest.fixture
def worker():
    worker = Worker(memory_bytes=123 << 20)
    yield worker
    worker.stop()


def verdict_of(worker, expression, limit_s=5.0):
    return worker.request({"op": "equal", "gold": expression}, limit_s)["verdict"]


def test_a_worker_starts_with_the_first_request_and_is_reused(stand_in, worker):
    starts = stand_in()
    assert worker.process is None
    assert worker.request({"op": "equal", "gold": "6 * 7"}, 5.0) == {"id": 1, "status": "ok", "verdict": 42}
    assert worker.request({"op": "equal", "gold": "message"}, 2.5)["verdict"] == {
        "op": "equal", "gold": "message", "id": 2, "limit": 2.5,
    }  # fmt: skip
    assert verdict_of(worker, "os.getpid()") == worker.process.pid
    assert starts() == 1


def test_a_worker_has_the_expected_arguments_and_environment(stand_in, worker, monkeypatch):
    stand_in()
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    arguments = verdict_of(worker, "sys.argv[1:]")
    root = str(Path(pool_module.__file__).parents[2])
    command = f"import sys; sys.path.append({root!r}); from trl_ces.grading.worker import main; main()"
    assert arguments == ["-P", "-c", command, str(123 << 20)]
    environment = verdict_of(worker, "dict(os.environ)")
    assert environment["LANG"] == "C.UTF-8"
    assert "PYTHONPATH" not in environment  # its folders would come before the standard library
    assert (environment["SYMPY_GROUND_TYPES"], environment["PYTHONHASHSEED"]) == ("python", "0")
    assert "HF_TOKEN" not in environment
    # A worker has its own session, so that Ctrl-C reaches only the trainer, which then ends its workers.
    assert verdict_of(worker, "os.getsid(0)") == worker.process.pid


def test_late_replies_to_other_requests_are_ignored(stand_in, worker):
    stand_in()
    assert verdict_of(worker, "send(id=0, status='died') or send(id=-1, status='died') or 7") == 7


def test_long_requests_and_replies_are_transferred_in_pieces(stand_in, worker):
    stand_in("time.sleep(0.1)")
    assert verdict_of(worker, f"len('{'x' * 500_000}')") == 500_000
    assert verdict_of(worker, "'y' * 500_000") == "y" * 500_000
    assert verdict_of(worker, "os.write(1, b'{\"id\":') and time.sleep(0.1) or os.write(1, b'0}\\n') and 7") == 7


def test_a_worker_that_does_not_reply_is_replaced(stand_in, worker, monkeypatch):
    starts = stand_in()
    pid = verdict_of(worker, "os.getpid()")
    deadlines, wait_for = [], Worker._wait_for
    with monkeypatch.context() as patched:
        patched.setattr(pool_module, "time", SimpleNamespace(monotonic=lambda: 100.0))
        patched.setattr(worker, "_wait_for", lambda *wait: deadlines.append(wait[2]) or wait_for(*wait))
        with pytest.raises(WorkerLost, match="does not respond"):
            verdict_of(worker, "os.write(1, b'half a re') and time.sleep(600)", limit_s=0.3)
    assert min(deadlines) == max(deadlines) == pytest.approx(100.0 + 0.3 + 0.4)  # the limit and GRACE_S
    assert worker.process is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert verdict_of(worker, "7") == 7
    assert starts() == 2


def test_a_worker_that_does_not_read_is_terminated(stand_in, worker):
    stand_in(source='print(\'{"status": "ready"}\', flush=True)\nimport time; time.sleep(600)')
    with pytest.raises(WorkerLost, match="does not respond"):
        verdict_of(worker, "x" * 500_000, limit_s=0.2)
    assert worker.process is None


def test_the_error_for_a_worker_exit_contains_its_stderr(stand_in, worker):
    starts = stand_in()
    with pytest.raises(WorkerLost, match=r"The grading worker exited\. Its stderr ends with:\nout of luck$"):
        verdict_of(worker, "os.write(2, b'out of luck') and os._exit(1)")
    assert verdict_of(worker, "7") == 7
    with pytest.raises(WorkerLost) as lost:
        verdict_of(worker, "os.write(2, b'x' * 3000 + b'y') and os._exit(1)")
    assert str(lost.value).endswith("ends with:\n" + "x" * 1999 + "y")
    assert starts() == 2


def test_a_worker_that_exits_between_requests_is_restarted(stand_in, worker):
    starts = stand_in()
    os.kill(verdict_of(worker, "os.getpid()"), signal.SIGKILL)
    worker.process.wait()
    pipes = [worker.process.stdin, worker.process.stdout]
    assert verdict_of(worker, "7") == 7
    assert starts() == 2
    assert [pipe.closed for pipe in pipes] == [True, True]


def test_stop_terminates_the_worker_and_its_children_and_can_be_repeated(stand_in, worker):
    stand_in()
    worker.stop()
    child = verdict_of(worker, "os.fork() or time.sleep(600)")
    process, pipes = worker.process, [worker.process.stdin, worker.process.stdout]
    worker.stop()
    assert process.returncode == -signal.SIGKILL
    worker.stop()
    assert worker.process is None
    assert [pipe.closed for pipe in pipes] == [True, True]
    while Path(f"/proc/{child}").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)


def test_a_forgotten_worker_runs_until_its_input_ends(stand_in, worker):
    stand_in()
    assert verdict_of(worker, "7") == 7
    process = worker.process
    worker.forget()
    assert (worker.process, process.stdin.closed, process.stdout.closed) == (None, True, True)
    assert process.wait(timeout=240) == 0  # the worker reads the end of its input


@pytest.mark.parametrize(
    ("at_start", "error", "message"),
    [
        (
            "sys.exit('No module named math_verify')",
            RuntimeError,
            "did not start.* exited. Its stderr ends with:\nNo",
        ),
        ("sys.exit()", RuntimeError, "did not start.* exited.$"),
        ("time.sleep(600)", RuntimeError, "did not start.* does not respond.$"),
        # The machine may be temporarily out of memory, so the request is retried.
        ("os.kill(os.getpid(), 9)", WorkerLost, "The grading worker exited.$"),
        ("os.kill(os.getpid(), 15)", WorkerLost, "The grading worker exited.$"),
        ("os.close(1); time.sleep(0.3); os.kill(os.getpid(), 9)", WorkerLost, "The grading worker exited.$"),
    ],
    ids=["error", "no error", "hang", "SIGKILL", "SIGTERM", "late SIGKILL"],
)
def test_a_worker_that_does_not_start_is_reported(stand_in, worker, monkeypatch, at_start, error, message):
    stand_in(at_start)
    monkeypatch.setattr(pool_module, "START_LIMIT_S", 0.5)
    with pytest.raises(error, match=f"(?s){message}"):
        verdict_of(worker, "7")
    assert worker.process is None


def test_a_worker_that_cannot_be_started_raises_an_error(worker, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(RuntimeError, match=r"did not start.*Resource temporarily unavailable"):
        verdict_of(worker, "7")


# ---- pools


@pytest.fixture
def pool():
    pool = WorkerPool(3)
    yield pool
    pool.close()


def evaluate(pool, *expressions, limit_s=5.0):
    replies = pool.map([{"op": "equal", "gold": expression} for expression in expressions], limit_s)
    return [reply.get("verdict", reply["status"]) for reply in replies]


def test_replies_are_in_the_order_of_the_requests(stand_in, pool):
    starts = stand_in()
    assert evaluate(pool, "time.sleep(0.6) or 1", "2", "time.sleep(0.1) or 3", "4", "5") == [1, 2, 3, 4, 5]
    assert starts() == 3
    assert evaluate(pool) == []


@pytest.mark.parametrize("count", [2, 3])
def test_requests_are_served_concurrently(stand_in, pool, tmp_path, count):
    stand_in()
    folder = tmp_path / "started"
    folder.mkdir()
    # Each request waits until all requests have started, so sequential execution would fail.
    all_started = f"any(len(os.listdir({str(folder)!r})) == {count} or time.sleep(0.01) for _ in range(3000))"
    expressions = [f"open({str(folder / str(number))!r}, 'w') and {all_started}" for number in range(count)]
    assert evaluate(pool, *expressions, limit_s=60.0) == [True] * count


def test_the_default_limit_is_three_seconds(stand_in, pool):
    stand_in()
    [reply] = pool.map([{"op": "equal", "gold": "message['limit']"}])
    assert reply["verdict"] == 3.0


def test_sequential_requests_start_one_worker(stand_in, pool):
    starts = stand_in()
    assert [evaluate(pool, str(n)) for n in range(4)] == [[0], [1], [2], [3]]
    assert starts() == 1


def test_a_request_to_a_lost_worker_is_retried_once(stand_in, pool):
    starts = stand_in()
    assert evaluate(pool, "starts if starts > 1 else os._exit(1)") == [2]
    assert evaluate(pool, "os._exit(1)") == ["died"]
    assert starts() == 3
    [reply] = pool.map([{"op": "equal", "gold": "os.write(2, b'out of luck') and os._exit(1)"}])
    assert reply["error"].endswith("out of luck")
    assert evaluate(pool, "7", "8", "9", "10") == [7, 8, 9, 10]


def test_only_requests_with_a_dead_child_are_retried_once(stand_in, pool, tmp_path):
    stand_in()
    log = tmp_path / "log"
    count = f"open({str(log)!r}, 'a').write('x')"
    for status, tries in (("died", 2), ("timeout", 1), ("error", 1)):
        log.write_text("")
        assert evaluate(pool, f"{count} and send(id=message['id'], status={status!r})") == [status]
        assert len(log.read_text()) == tries


def test_a_closed_pool_restarts_its_workers(stand_in, pool):
    starts = stand_in()
    [pid] = evaluate(pool, "os.getpid()")
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert evaluate(pool, "7") == [7]
    assert starts() == 2


def test_threads_that_share_a_worker_use_it_one_at_a_time(stand_in):
    starts = stand_in()
    single = WorkerPool(1)
    results = []
    threads = [
        threading.Thread(target=lambda n=n: results.append((n, evaluate(single, f"{n} + 0", f"{n} + 1"))))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    single.close()
    assert sorted(results) == [(n, [n, n + 1]) for n in range(8)]
    assert starts() == 1


def test_a_forked_process_starts_its_own_workers(stand_in, pool):
    stand_in()
    [parent_pid] = evaluate(pool, "os.getpid()")
    shared = shared_pool()
    assert isinstance(shared, WorkerPool)
    assert shared_pool() is shared
    child = os.fork()
    if child == 0:
        [child_pid] = evaluate(pool, "os.getpid()")
        pool_module._close_pools()
        os._exit(0 if child_pid != parent_pid and shared_pool() is shared else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert evaluate(pool, "os.getpid()") == [parent_pid]


def test_a_forked_process_can_grade_while_its_parent_uses_all_workers(stand_in, tmp_path):
    stand_in()
    single, busy, released = WorkerPool(1), tmp_path / "busy", tmp_path / "released"
    wait = (
        f"open({str(busy)!r}, 'w') and any(os.path.exists({str(released)!r}) or time.sleep(0.01) for _ in range(6000))"
    )
    holder = threading.Thread(target=evaluate, args=(single, wait), kwargs={"limit_s": 80.0})
    holder.start()
    while not busy.exists():
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        results = evaluate(single, "7", "8", "9")
        pool_module._close_pools()
        os._exit(0 if results == [7, 8, 9] else 1)
    status = os.waitpid(child, 0)[1]
    released.touch()
    holder.join()
    assert status == 0
    assert evaluate(single, "7") == [7]
    single.close()


EXIT_DURING_A_REQUEST = """
import sys, threading
sys.executable = {python!r}
from trl_ces.grading import WorkerPool
pool = WorkerPool(1)
print(pool.map([{{"gold": "os.getpid()"}}])[0]["verdict"], flush=True)
messages = [{{"gold": "open({started!r}, 'w') and time.sleep(600)"}}]
threading.Thread(target=pool.map, args=(messages, 600.0), daemon=True).start()
import os, time
while not os.path.exists({started!r}):
    time.sleep(0.01)
"""


def test_a_busy_worker_exits_with_the_trainer(stand_in, tmp_path):
    stand_in()
    source = EXIT_DURING_A_REQUEST.format(python=sys.executable, started=str(tmp_path / "started"))
    environment = {**os.environ, "PYTHONPATH": str(Path(pool_module.__file__).parents[2])}
    result = subprocess.run([PYTHON, "-P", "-c", source], env=environment, capture_output=True, text=True, timeout=240)
    assert (result.returncode, result.stderr) == (0, "")
    pid = int(result.stdout)
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


@pytest.mark.parametrize(
    ("cores", "processes", "expected"),
    [(16, None, 8), (8, None, 8), (3, None, 3), (1, None, 1), (8, "2", 4), (7, "2", 3), (2, "4", 1)],
)
def test_a_process_has_one_worker_per_core_and_at_most_8(monkeypatch, cores, processes, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)) if pid == 0 else set())
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if processes:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    assert default_worker_count() == expected
    assert len(WorkerPool().workers) == expected
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert default_worker_count() == expected
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert default_worker_count() == 1


def test_a_pool_has_the_requested_number_of_workers():
    assert [worker.memory_bytes for worker in WorkerPool(2, memory_bytes=5).workers] == [5, 5]
    assert [worker.memory_bytes for worker in WorkerPool(1).workers] == [1 << 30]
    with pytest.raises(ValueError, match="workers=0: a pool needs at least 1 worker"):
        WorkerPool(0)
