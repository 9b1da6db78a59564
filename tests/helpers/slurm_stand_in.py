"""Stand-ins for `sbatch`, `srun` and `scontrol`, which run a job's commands on this machine. Not a test file.

    python tests/helpers/slurm_stand_in.py sbatch FOLDER SCRIPT [WORDS ...]

In FOLDER they record what they did, one JSON per line of `log`. Nodes are addresses of the loopback device. As in
Slurm: directives end at the script's first command; the script is a copy; SIGTERM before the time limit reaches the
batch shell alone; SIGTERM to srun kills its tasks; a requeued job is killed and starts again with the same words; when
the script ends, so do its steps. An option that is not below is refused.

SLURM_STAND_IN_TERM names a file whose appearance is the time limit's approach, once.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

JOB = "4711"
DIRECTIVES = ("account", "partition", "nodes", "gpus-per-node", "time", "signal", "open-mode", "job-name", "output")
DIRECTIVES += ("ntasks-per-node", "mem")
SWITCHES = ("requeue", "exclusive")
STEP = ("nodes", "ntasks", "nodelist", "cpu-bind", "kill-on-bad-exit", "ntasks-per-node")


def install(folder):
    """Writes the three commands into `folder`, which goes in front of PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("sbatch", "srun", "scontrol"):
        words = shlex.join([sys.executable, str(Path(__file__)), name, str(folder)])
        (folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def log(folder):
    """What the commands have recorded."""
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def record(folder, **entry):
    with (folder / "log").open("a") as file:
        file.write(json.dumps(entry) + "\n")


def directives(script):
    """The options of a batch script, as sbatch reads them."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in DIRECTIVES:
        parser.add_argument(f"--{name}")
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    words = []
    for line in script.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH "):
            words += shlex.split(line.removeprefix("#SBATCH "), comments=True)
    return parser.parse_args(words)


def kill_steps(folder):
    """As slurmd does at a job's end: nothing of it is left."""
    for file in folder.glob("step-*"):
        with suppress(psutil.Error):
            for process in psutil.Process(int(file.read_text())).children(recursive=True):
                with suppress(psutil.Error):
                    process.kill()
        file.unlink()


def sbatch(folder, script, *words):
    options = directives(Path(script))
    record(folder, command="sbatch", options=vars(options), words=words)
    spooled = folder / "slurm_script"
    shutil.copy(script, spooled)
    limit = os.environ.get("SLURM_STAND_IN_TERM")
    for restart in range(10):
        variables = {
            "SLURM_JOB_ID": JOB,
            "SLURM_JOB_NODELIST": f"127.0.0.[1-{options.nodes}]",
            "SLURM_GPUS_ON_NODE": options.gpus_per_node,
            "SLURM_RESTART_COUNT": str(restart),
        }
        with Path(options.output.replace("%x", options.job_name).replace("%j", JOB)).open("a") as output:
            shell = subprocess.Popen(
                ["bash", spooled, *words], env={**os.environ, **variables}, stdout=output, stderr=subprocess.STDOUT
            )
            while shell.poll() is None:
                if limit and Path(limit).exists():
                    limit = None
                    assert options.signal.startswith("B:TERM@")
                    record(folder, command="time limit")
                    shell.send_signal(signal.SIGTERM)
                time.sleep(0.05)
        kill_steps(folder)
        if not (folder / "requeued").exists():
            return shell.returncode
        (folder / "requeued").unlink()
        assert options.requeue
    raise AssertionError("requeued without end")


def srun(folder, *words):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in STEP:
        parser.add_argument(f"--{name}")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    step = parser.parse_args(words)
    nodes = step.nodelist.split(",")
    assert len(nodes) == int(step.nodes) == int(step.ntasks or len(nodes))
    record(folder, command="srun", nodes=nodes, words=step.command)
    (folder / f"step-{os.getpid()}").write_text(str(os.getpid()))
    tasks = [
        subprocess.Popen(
            step.command,
            env={**os.environ, "SLURM_NODEID": str(rank), "SLURM_PROCID": str(rank), "SLURMD_NODENAME": node},
        )
        for rank, node in enumerate(nodes)
    ]

    def kill(*_):
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                process.kill()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, kill)
    while any(task.poll() is None for task in tasks):
        if step.kill_on_bad_exit == "1" and any(task.poll() for task in tasks):
            kill()
        time.sleep(0.05)
    codes = [task.returncode for task in tasks]
    record(folder, command="step ended", nodes=nodes, codes=codes)
    return max(code if code >= 0 else 128 - code for code in codes)


def scontrol(folder, *words):
    record(folder, command="scontrol", words=words)
    if words[:2] == ("show", "hostnames"):
        prefix, first, last = words[2].replace("[", " ").replace("-", " ").rstrip("]").split()
        print(*(f"{prefix}{number}" for number in range(int(first), int(last) + 1)), sep="\n")
        return 0
    assert words == ("requeue", JOB)
    (folder / "requeued").touch()
    return 0


if __name__ == "__main__":
    name, folder, *words = sys.argv[1:]
    sys.exit({"sbatch": sbatch, "srun": srun, "scontrol": scontrol}[name](Path(folder), *words))
