"""Run test scripts in one or more processes, or with an accelerate configuration."""

import gc
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

HERE = Path(__file__).parent
# Each pytest worker has one fork server, which imports the packages only once because this takes ten seconds.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["trl_ces.trainer"])


def environment(**changes):
    """Return the environment for child processes, with one thread and imports from the source tree."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (HERE, HERE.parent, HERE.parents[1]))),
        **changes,
    }


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def end_processes():
    """Wait for all processes of a distributed script, and destroy the process group."""
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def run_processes(script, output, processes, timeout, arguments=(), accelerate_config=None):
    """Run a script in this folder with the arguments `output` (a new folder), `processes`, and `arguments`.

    With an accelerate configuration, accelerate launches the processes. Otherwise the fork server forks them.
    """
    output.mkdir()
    args = [str(output), str(processes), *arguments]
    if accelerate_config is None:
        _run_forked(HERE / script, args, processes, output, timeout)
        return
    # Port 0 selects a free port, because concurrent runs must not share a port.
    launcher = ["-m", "accelerate.commands.launch", "--config_file", str(accelerate_config)]
    launcher += ["--num_processes", str(processes), "--main_process_port", "0"]
    child = subprocess.Popen(
        [sys.executable, *launcher, str(HERE / script), *args],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, errors = child.communicate(timeout=timeout)
    finally:
        _kill(child.pid)
    assert child.returncode == 0, f"{stdout[-2000:]}\n{errors[-6000:]}"


def _run_forked(file, args, processes, output, timeout):
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(processes)}
    children, logs = [], [output / f"process{rank}.log" for rank in range(processes)]
    for rank, log in enumerate(logs):
        log.touch()
        # Set the same variables as torchrun.
        variables = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(processes)}
        children.append(_fork(str(file), args, environment(**variables if processes > 1 else {}), None, log, log))
    deadline = time.monotonic() + timeout
    try:
        # If one process fails, kill the others, which would otherwise wait for it.
        while not any(codes := [child.exitcode for child in children]):
            if None not in codes:
                return
            running = [child.sentinel for child, code in zip(children, codes, strict=True) if code is None]
            if not wait(running, max(0, deadline - time.monotonic())):
                raise TimeoutError(f"{file.name} did not finish within {timeout} s")
    finally:
        for child in children:
            child.kill()  # in case the child has not created its session yet
            _kill(child.pid)
    raise AssertionError("\n".join(f"{log.name}: {log.read_text()[-6000:]}" for log in logs))


def run_command(args, folder=None, timeout=280, module="trl_ces.cli.main"):
    """Run `trl-ces ARGS` in `folder` and return a `CompletedProcess`; forking avoids repeated imports."""
    with tempfile.TemporaryDirectory() as logs:
        output, errors = Path(logs) / "stdout", Path(logs) / "stderr"
        child = _fork(module, args, environment(), folder, output, errors)
        try:
            child.join(timeout)
            if child.exitcode is None:
                raise TimeoutError(f"trl-ces {args[0]} did not finish within {timeout} s")
        finally:
            child.kill()  # in case the child has not created its session yet
            _kill(child.pid)
        return subprocess.CompletedProcess(args, child.exitcode, output.read_text(), errors.read_text())


def _fork(target, arguments, environ, folder, output, errors):
    child = FORKS.Process(
        target=_run_target, args=(target, list(map(str, arguments)), environ, folder, output, errors)
    )
    child.start()
    return child


def _run_target(target, args, environ, folder, output, errors):
    """Emulate `python TARGET ARGS` in a forked process, or `python -m TARGET ARGS` if the target is a module."""
    import torch

    os.setsid()  # so that the process and its children can be killed together
    for number, log in ((1, output), (2, errors)):
        with open(log, "a") as stream:
            os.dup2(stream.fileno(), number)
    os.environ.clear()
    os.environ.update(environ)
    torch.set_num_threads(1)
    gc.freeze()  # as in conftest.py
    if folder is not None:
        os.chdir(folder)
    sys.argv[1:] = args
    if target.endswith(".py"):
        sys.argv[0] = target
        runpy.run_path(target, run_name="__main__")
    else:
        runpy.run_module(target, run_name="__main__", alter_sys=True)


def _kill(session):
    with suppress(ProcessLookupError):  # already ended
        os.killpg(session, signal.SIGKILL)
