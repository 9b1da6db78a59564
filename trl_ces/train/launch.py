"""Start training directly (one process), with torchrun (several CPU processes) or with `accelerate launch`.

On a CPU, `accelerate launch` would silently start a single process. The machine's default accelerate configuration is
ignored.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from ..support.errors import UserError
from ..support.imports import install_line
from ..support.locks import TRAINING_LOCK
from ..support.parent import LAUNCHER, prepare_child
from ..support.yaml import read_yaml
from .arguments import RESUME, CommandLine
from .checkpoints import Length, resume_hint
from .recipe import RECIPE, Recipe, find_config

WORKER = "trl_ces.cli.train_worker"
LAUNCHERS = ("torch.distributed.run", "accelerate.commands.launch")
REPORTED = "TRL_CES_REPORTED"  # path of the file that a worker creates after printing its error
ENDED = "ended"  # created next to it by a worker that saved the model, or saved a checkpoint after a signal
THREADS, VISIBLE = "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Launch:
    """Number of processes on all machines, and the command that starts this machine's processes."""

    num_processes: int
    distributed_type: str | None  # checked by the workers, because accelerate can silently fall back to DDP
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    machine_rank: int = 0
    checkpoint: str | None = None  # to resume from

    def with_recipe(self, file: Path, checkpoint: str | bool | None) -> list[str]:
        """Return the command with the composed recipe for the workers and the checkpoint to resume from."""
        return [*self.command, "--recipe", str(file), *([f"--{RESUME}", str(checkpoint)] if checkpoint else [])]


def make_launch(line: CommandLine, recipe: Recipe) -> Launch:
    """Build the launch settings of a run; [`Launch.with_recipe`] completes the command."""
    name = line.accelerate_config
    config_file = None if name is None else find_config(name, "accelerate").resolve()
    settings = read_accelerate_config(config_file) if config_file else {}
    on_cpu = bool(recipe.training.get("use_cpu")) or settings.get("use_cpu") is True
    devices = 0 if on_cpu else device_count()
    if not on_cpu and devices == 0:
        raise UserError("This machine has no accelerator: set `--use_cpu true`, or use a machine with a GPU.")
    flags = dict(line.accelerate_flags)
    values = settings | {flag: words[0] for flag, words in flags.items() if words}
    machines = whole_number(values.get("num_machines", 1), "num_machines")
    rank = whole_number(values.get("machine_rank", 0), "machine_rank", minimum=0)
    visible = recipe.env.get(VISIBLE)
    usable = min(devices, len(visible.split(","))) if visible else devices
    processes = whole_number(values.get("num_processes", max(usable, 1)), "num_processes")
    if devices and processes > usable * machines:
        raise UserError(
            f"`num_processes` is {processes}, but {machines} x {usable} accelerators are usable: use "
            f"`--num_processes {usable * machines}`."
        )
    distributed_type = settings.get("distributed_type")
    if distributed_type == "DEEPSPEED" and find_spec("deepspeed") is None:
        raise UserError(f"{config_file} needs DeepSpeed: {install_line('deepspeed')}.")
    expected_type = distributed_type if distributed_type in ("DEEPSPEED", "FSDP") else None
    # `-P`: files in the working directory must not replace modules that Python imports, such as `secrets`.
    python = [sys.executable, "-P"]
    worker = ["-m", WORKER, "--expect_processes", str(processes)]
    worker += ["--expect_distributed_type", expected_type] if expected_type else []
    flags.pop("num_processes", None)
    env: dict[str, str] = {}
    if processes == 1 and devices > 1:  # the Trainer would use `DataParallel`, with larger batches than the recipe's
        env[VISIBLE] = (os.environ | recipe.env).get(VISIBLE, "0").split(",")[0]
    if config_file is None and not flags and processes == 1:
        return Launch(1, None, [*python, *worker], env)
    if config_file is None and not flags and on_cpu:
        torchrun = ["-m", LAUNCHERS[0], "--standalone", "--nproc_per_node", str(processes), "--no-python"]
        return Launch(processes, None, [*python, *torchrun, *python, "-u", *worker])
    if config_file is None:
        config_file = find_config("ddp" if processes > 1 else "single", "accelerate").resolve()
    launch = ["-m", LAUNCHERS[1], "--config_file", str(config_file), "--num_processes", str(processes)]
    # quiet: suppress accelerate's traceback; no_python: accelerate would start the worker without `-P`
    for flag, words in (flags | {"quiet": [], "no_python": []}).items():
        launch += [f"--{flag}", *words]
    env |= _share_cores(processes // machines, recipe.env, line.accelerate_flags)
    return Launch(processes, expected_type, [*python, *launch, *python, "-u", *worker], env, rank)


def read_accelerate_config(file: Path) -> dict[str, Any]:
    """Read an accelerate configuration."""
    settings = read_yaml(file)
    if "distributed_type" not in settings and "compute_environment" not in settings:
        raise UserError(f"{file} is not an accelerate configuration: create one with `accelerate config`.")
    return settings


def whole_number(value: Any, name: str, minimum: int = 1) -> int:
    """Parse a whole number from an accelerate file or flag."""
    if not str(value).isdecimal() or len(str(value)) > 9 or int(value) < minimum:
        raise UserError(f"`{name}` is {value!r:.50}: expected a whole number of at least {minimum}.")
    return int(value)


def device_count() -> int:
    """Return the number of accelerators on this machine."""
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def _share_cores(processes: int, *settings: Mapping[str, Any]) -> dict[str, str]:
    """Divide this machine's cores among its processes; accelerate gives each only one, even if Adam uses the CPU."""
    names = (THREADS, "num_cpu_threads_per_process")
    if any(name in mapping for mapping in (os.environ, *settings) for name in names):
        return {}
    cores = psutil.cpu_count(logical=False) or 1
    if hasattr(psutil.Process, "cpu_affinity"):  # not available on macOS
        cores = min(cores, len(psutil.Process().cpu_affinity()))
    return {THREADS: str(max(1, cores // max(1, processes)))}


def run_training(launch: Launch, recipe: Recipe) -> int:
    """Run this machine's training processes, and print how to resume if one is killed or raises an error."""
    output_dir, received = Path(recipe.setting("output_dir")), list[int]()
    started = (output_dir / TRAINING_LOCK).stat().st_mtime  # from the file system's clock, like the checkpoints' times
    with tempfile.TemporaryDirectory() as folder:
        reported, file = Path(folder) / "reported", Path(folder) / RECIPE
        file.write_text(recipe.to_yaml(), encoding="utf-8")
        env = {**recipe.env, **launch.env, REPORTED: str(reported)}
        code, ended = run_child(launch.with_recipe(file, launch.checkpoint), env, received), Path(folder) / ENDED
        if received or (code == 0 and ended.exists()):
            return code if ended.exists() else code or 128 + received[0]
        if reported.exists():
            return 2
    length = Length(recipe.setting("max_steps"), recipe.setting("num_train_epochs"))
    outcome = "was killed" if code == 128 + signal.SIGKILL else f"ended with code {code}"
    outcome += "" if code else " before its model was saved (did a reward function call `os._exit`?)"
    print(
        f"trl-ces train: error: training {outcome}; the first error, if any was reported, is above. "
        f"{resume_hint(output_dir, length, started, launch.checkpoint)}",
        file=sys.stderr,
    )
    return code or 1


def run_child(command: list[str], env: dict[str, str], received: list[int] | None = None) -> int:
    """Run a command that is killed if this process ends; forward Ctrl-C, SIGTERM and SIGHUP to it and record them."""
    child: subprocess.Popen | None = None
    received = [] if received is None else received

    def forward(number: int) -> None:
        if child is None or child.poll() is not None:
            return
        if number == signal.SIGKILL or not _stop_workers(child.pid, number):
            # SIGINT would print a traceback.
            os.killpg(child.pid, signal.SIGTERM if number == signal.SIGTERM else signal.SIGKILL)
        elif number == signal.SIGINT:
            print("\nStopping after the current step. Press Ctrl-C again to stop immediately.", file=sys.stderr)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        forwarded = signal.SIGKILL if received else number  # a second Ctrl-C kills the processes
        received.append(number)
        forward(forwarded)

    numbers = [signal.SIGINT, signal.SIGTERM]
    numbers += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []  # `nohup` ignores it
    previous = {number: signal.signal(number, on_signal) for number in numbers}
    env = {**os.environ, **env, LAUNCHER: str(os.getpid())}
    code = None
    try:
        child = subprocess.Popen(command, env=env, start_new_session=True, preexec_fn=prepare_child)
        if received:  # while the child was starting
            forward(received[-1])
        while code is None:  # with a timeout, to handle a signal that arrives just before the wait
            with suppress(subprocess.TimeoutExpired):
                code = child.wait(1)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received == [signal.SIGTERM] and code == 0:
        return 0  # the workers have saved a checkpoint and printed how to resume
    if received:
        return 128 + received[0]
    return code if code >= 0 else 128 - code


def _stop_workers(launcher: int, number: int) -> bool:
    """Signal the training processes directly; a signaled launcher would soon kill them. Return whether any exist."""
    any_exists = False
    for process in [psutil.Process(launcher), *psutil.Process(launcher).children(recursive=True)]:
        with suppress(psutil.Error):
            words = process.cmdline()
            if WORKER in words and not any(module in words for module in LAUNCHERS):
                process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
                any_exists = True
    return any_exists
