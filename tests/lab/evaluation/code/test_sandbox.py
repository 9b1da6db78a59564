"""Malicious programs cannot escape the sandbox, outlive it, or harm other processes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from code_sandbox import needs_sandbox

from trl_ces.lab.evaluation.code import sandbox
from trl_ces.lab.evaluation.code.sandbox import Outcome, SandboxError, check_sandbox, run_sandboxed
from trl_ces.support.errors import UserError

MARK = f"# started by {os.getpid()}"


@pytest.fixture(autouse=True)
def mark_sandbox_processes(monkeypatch):
    monkeypatch.setattr(sandbox, "START", sandbox.START + MARK)


def sandboxed_processes():
    """Return the ids of this test's sandbox processes."""
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            command_line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if MARK.encode() in command_line:
            processes.append(int(entry.name))
    return processes


def cpu_ticks(process):
    return int((Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[11])


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def all_sandboxes_ended():
    return wait_until(lambda: not sandboxed_processes())


def attempt(code):
    """Return a program that runs `code` and sends the name of the exception that it raises."""
    indented = "\n".join("    " + line for line in code.splitlines())
    return f"try:\n{indented}\nexcept BaseException as error:\n    send(type(error).__name__.encode())\n"


@needs_sandbox
def test_program_receives_its_payload_and_sends_bytes():
    assert run_sandboxed("send(payload[::-1])", b"abc", seconds=20) == Outcome("ok", b"cba")
    assert run_sandboxed("send(b'a'); 1 / 0", seconds=20) == Outcome("died", b"a")
    assert run_sandboxed("import sys; sys.exit(0)", seconds=20).status == "died"
    large = run_sandboxed("send(payload * 2)", bytes(3 * 10**6), seconds=20)
    assert (large.status, len(large.output)) == ("ok", 6 * 10**6)


C_CALL = (
    "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.{} < 0: raise OSError(ctypes.get_errno(), '')"
)


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "exception"),
    [
        ("import os\nos.fork()", b"PermissionError"),
        ("import subprocess\nsubprocess.run(['/bin/sh'])", b"PermissionError"),
        ("import os\nos.execv('/usr/bin/env', ['env'])", b"PermissionError"),
        ("import os\nfiles = [open(os.__file__) for _ in range(99)]", b"OSError"),
        ("import tempfile\ntempfile.TemporaryFile()", b"FileNotFoundError"),
        ("open('/dev/shm/new', 'w')", b"FileNotFoundError"),
        ("open('VICTIM').read()", b"FileNotFoundError"),
        ("open('VICTIM', 'w')", b"FileNotFoundError"),
        ("import os\nos.remove('VICTIM')", b"FileNotFoundError"),
        ("open('/new', 'w')", b"OSError"),
        ("import os\nopen(os.__file__, 'a')", b"Error"),
        ("import os\nos.remove(os.__file__)", b"Error"),
        ("import os\nos.kill(PARENT, 9)", b"ProcessLookupError"),
        ("open('/proc/1/environ').read()", b"FileNotFoundError"),
        ("import os\nos.setuid(0)", b"OSError"),
        ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))", b"ValueError"),
        ("import os\nos.memfd_create('x')", b"PermissionError"),
        ("import socket\nsocket.socket(socket.AF_VSOCK)", b"PermissionError"),
        (C_CALL.format("ptrace(16, 1, 0, 0)"), b"PermissionError"),
        (C_CALL.format("unshare(0x10000000)"), b"PermissionError"),
        (C_CALL.format("shmget(0, 2**20, 0o1600)"), b"PermissionError"),
        ("import threading\nthreading.Thread(target=print).start()", b"RuntimeError"),
    ],
    ids=lambda value: value.split("\n")[-1][:40] if isinstance(value, str) else "",
)
def test_kernel_denies_harmful_calls(tmp_path, code, exception):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    code = code.replace("VICTIM", str(victim)).replace("PARENT", str(os.getpid()))
    assert exception in run_sandboxed(attempt(code), seconds=20).output
    assert victim.read_text() == "untouched"


@needs_sandbox
def test_local_servers_are_unreachable():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        code = f"import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{server.getsockname()[1]}')"
        assert run_sandboxed(attempt(code), seconds=20).output == b"URLError"
        with pytest.raises(BlockingIOError):
            server.accept()


@needs_sandbox
def test_signals_do_not_reach_processes_outside_the_sandbox():
    for code in ("os.kill(-1, 9)", "os.kill(1, 9)", "os.kill(0, 9)", "os.kill(os.getppid(), 9)"):
        outcome = run_sandboxed(f"import os\n{code}\nwhile True: pass", seconds=2)
        assert outcome.output == b""
    assert run_sandboxed("send(b'next')", seconds=20) == Outcome("ok", b"next")


@needs_sandbox
@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import signal\nfor n in range(1, 32):\n  if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\n"
        "while True: pass",
        "import time\ntime.sleep(1000)",
        "import os, time\nos.close(3)\ntime.sleep(1000)",
        "9 ** 9 ** 9",
    ],
)
@pytest.mark.timeout(120)
def test_endless_programs_are_killed_at_the_time_limit(code):
    assert run_sandboxed(code, seconds=1).status == "timeout"
    assert all_sandboxes_ended()


@needs_sandbox
def test_output_is_limited_and_prints_are_discarded():
    outcome = run_sandboxed("for _ in range(99): send(bytes(10**6))", seconds=30, output_bytes=10**7)
    assert outcome.status == "died"
    assert len(outcome.output) <= 10**7
    printed = run_sandboxed("for i in range(10**5): print('passed' * 20)\nsend(b'end')", seconds=30)
    assert printed == Outcome("ok", b"end")
    assert all_sandboxes_ended()


@needs_sandbox
def test_memory_is_limited():
    code = "blocks = []\ntry:\n    for _ in range(999): blocks.append(bytearray(2**20))\n"
    code += "except MemoryError: send(b'%d' % len(blocks))"
    assert 100 < int(run_sandboxed(code, seconds=30, memory_bytes=2**28).output) < 256


@needs_sandbox
def test_environment_variables_and_host_files_are_not_visible(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    code = "import os, sys\nsend(repr((dict(os.environ), sorted(os.listdir('/')), sys.argv, os.getuid())).encode())"
    environment, root, arguments, user = eval(run_sandboxed(code, seconds=20).output)
    assert environment == {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    # The folders of the Python environment, which may be under /tmp, are visible.
    python_folders = {Path(folder).parts[1] for folder in (*sandbox.visible_folders(), sys.executable)}
    assert not ({"proc", "sys", "tmp", "run", "var", "bin"} - python_folders) & set(root)
    assert (arguments, user) == (["program"], 65534)
    code = "import os\nfor number in range(1000):\n    try: os.fstat(number); send(b'%d ' % number)\n"
    code += "    except OSError: pass"
    assert run_sandboxed(code, seconds=20).output == b"0 1 2 3 "
    code = "import ctypes\nget = ctypes.CDLL(None).getenv\nget.restype = ctypes.c_char_p\n"
    code += "send(repr(get(b'HF_TOKEN')).encode())"
    assert run_sandboxed(code, seconds=20).output == b"None"


@needs_sandbox
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_no_sandbox_survives_its_parent(signal_number):
    code = "import sys; from trl_ces.lab.evaluation.code import sandbox; sandbox.START += sys.stdin.read(); "
    code += "sandbox.run_sandboxed('while True: pass', seconds=100)"
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    parent.stdin.write(MARK.encode())
    parent.stdin.close()
    ticks = os.sysconf("SC_CLK_TCK")
    assert wait_until(lambda: any(cpu_ticks(process) > ticks for process in sandboxed_processes()))
    parent.send_signal(signal_number)
    parent.wait(60)
    assert all_sandboxes_ended()


def test_code_does_not_run_without_linux(monkeypatch, tmp_path):
    marker = tmp_path / "ran"
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(SandboxError, match="requires Linux, but the platform is darwin"):
        run_sandboxed(f"open({str(marker)!r}, 'w')", seconds=5)
    with pytest.raises(UserError, match=r"cannot be created here \(the sandbox requires Linux.*another machine"):
        check_sandbox()
    assert not marker.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox requires Linux")
@pytest.mark.parametrize("message", [None, "bwrap: No permissions to create new namespace"])
def test_error_without_a_working_bwrap_states_cause_and_solution(monkeypatch, tmp_path, message):
    if message:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\necho '{message}' >&2\nexit 1\n")
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = message or "bwrap is not installed"
    with pytest.raises(
        UserError, match=rf"cannot be created here \({reason}\): .*`apt install bubblewrap libseccomp2`"
    ):
        check_sandbox()


@needs_sandbox
def test_code_does_not_run_without_the_system_call_filter(monkeypatch):
    monkeypatch.setattr(sandbox, "START", sandbox.START.replace("libseccomp.so.2", "libmissing.so"))
    with pytest.raises(SandboxError, match=r"libmissing\.so: cannot open shared object"):
        run_sandboxed("send(b'here')", seconds=20)


def put_bwrap_on_path(folder, monkeypatch, script):
    """Write a `bwrap` shell script to `folder` and put the folder first on PATH."""
    (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


REAL_BWRAP = shutil.which("bwrap")
DROP_OPTIONS = 'while [ "$1" != -- ]; do shift; done; shift\n'
ALL_FILES = "--ro-bind / / --dev-bind /dev /dev"


@needs_sandbox
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ('exec "$@"', "the ipc namespace, the mnt namespace, the net namespace, the pid namespace"),
        ('"$@"', "the pid namespace"),
        (f'exec {REAL_BWRAP} --unshare-all --share-net {ALL_FILES} -- "$@"', "the net namespace, /"),
        (f'exec {REAL_BWRAP} --unshare-all {ALL_FILES} -- "$@"', "bwrap exposes /"),
        (f'exec {REAL_BWRAP} --unshare-net --unshare-user --dev-bind / / -- "$@"', "the pid namespace"),
    ],
)
def test_a_bwrap_that_does_not_isolate_is_rejected(tmp_path, monkeypatch, script, message):
    put_bwrap_on_path(tmp_path, monkeypatch, DROP_OPTIONS + script)
    with pytest.raises(UserError, match=rf"only in a sandbox, which cannot be created here \(.*({message})"):
        check_sandbox()
    marker = tmp_path / "ran"
    with pytest.raises(SandboxError):
        run_sandboxed(f"open({str(marker)!r}, 'w')", seconds=5)
    assert not marker.exists()
    assert all_sandboxes_ended()


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox requires Linux")
@pytest.mark.parametrize("script", ["sleep 1000", "exec sleep 1000", "sleep 1000 & exec 2>&-; sleep 1000"])
def test_a_bwrap_that_hangs_is_rejected_after_the_time_limit(tmp_path, monkeypatch, script):
    put_bwrap_on_path(tmp_path, monkeypatch, script)
    monkeypatch.setattr(sandbox, "READY_SECONDS", 0.5)
    with pytest.raises(UserError, match=r"cannot be created here \(bwrap was not ready after|bwrap exited without"):
        check_sandbox()  # the script would take 1000 s


IGNORE_SIGNALS = "import signal\nfor n in (24, 25, 26, 27): signal.signal(n, signal.SIG_IGN)\n"
RESET_TIMER = "import signal\nsignal.setitimer(signal.ITIMER_PROF, 0)\n"


@needs_sandbox
@pytest.mark.parametrize("call_prefix", ["", IGNORE_SIGNALS, RESET_TIMER])
def test_cpu_time_of_a_call_is_limited_from_outside_the_program(monkeypatch, call_prefix):
    calls = "send(b'\\0a\\0')\n" * 3 + "send(b'\\0')\n" + call_prefix + "while True: pass"
    monkeypatch.setattr(sandbox, "SPARE_SECONDS", 10_000)  # only the limit per call applies
    outcome = run_sandboxed(calls, seconds=10_000, call_seconds=[0.5] * 4)
    assert outcome == Outcome("timeout", b"\0a\0" * 3 + b"\0")
    assert all_sandboxes_ended()


@needs_sandbox
def test_call_time_excludes_sleep_and_code_between_calls():
    busy = "import time\ndef work(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass\n"
    code = busy + "work(0.6)\nsend(b'\\0')\nwork(0.2)\ntime.sleep(0.8)\nsend(b'\\0')\nwork(0.6)\nsend(b'end')"
    assert run_sandboxed(code, seconds=100, call_seconds=[0.4]) == Outcome("ok", b"\0\0end")


@needs_sandbox
def test_forged_call_markers_do_not_lift_the_total_cpu_limit(monkeypatch):
    monkeypatch.setattr(sandbox, "SPARE_SECONDS", 0.5)
    assert run_sandboxed("send(b'\\0' * 2)\nwhile True: pass", seconds=100, call_seconds=[0.2]).status == "timeout"
