"""A test's script in one process, or in several under torchrun."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run_processes(script, output, processes, timeout, *more):
    """Runs tests/`script` with `output`, a new folder, the number of processes and `more` as its arguments."""
    output.mkdir()
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    )
    command = [sys.executable, *launcher, str(HERE / script), str(output), str(processes), *more]
    # The tree under test before any installed one, also in the children.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    assert finished.returncode == 0, finished.stderr[-3000:]
