"""Runs a test's script in one process, in several under torchrun, or by an accelerate configuration."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent


def environment(**changes):
    """Child environment: one thread, and the tree under test before an installed one."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]),
        **changes,
    }


def end_processes():
    """The last line of a script: no process leaves while another still talks to it."""
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def run_processes(script, output, processes, timeout, arguments=(), accelerate_config=None):
    """Runs tests/`script` with a new folder `output`, the number of processes, and `arguments`."""
    output.mkdir()
    if accelerate_config is not None:
        # One port per run: concurrent runs must not share it.
        launcher = ["-m", "accelerate.commands.launch", "--config_file", str(accelerate_config)]
        launcher += ["--num_processes", str(processes), "--main_process_port", "0"]
    elif processes > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    else:
        launcher = []
    command = [sys.executable, *launcher, str(HERE / script), str(output), str(processes), *arguments]
    child = subprocess.Popen(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, errors = child.communicate(timeout=timeout)
    finally:
        with suppress(ProcessLookupError):  # no child outlives the test
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 0, f"{said[-2000:]}\n{errors[-6000:]}"
